#ifndef MIR_THIRD_PARTY_GLOO_STUBS_GLOO_COMMON_ERROR_H_
#define MIR_THIRD_PARTY_GLOO_STUBS_GLOO_COMMON_ERROR_H_

// The gloo group's header includes this one and names nothing of it.

#endif  // MIR_THIRD_PARTY_GLOO_STUBS_GLOO_COMMON_ERROR_H_
