#ifndef MIR_THIRD_PARTY_GLOO_STUBS_GLOO_CONTEXT_H_
#define MIR_THIRD_PARTY_GLOO_STUBS_GLOO_CONTEXT_H_

#include <chrono>

namespace gloo {

// Only ever held by pointer; LibTorch defines it.
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo

#endif  // MIR_THIRD_PARTY_GLOO_STUBS_GLOO_CONTEXT_H_
