#ifndef MIR_THIRD_PARTY_GLOO_STUBS_GLOO_TRANSPORT_DEVICE_H_
#define MIR_THIRD_PARTY_GLOO_STUBS_GLOO_TRANSPORT_DEVICE_H_

namespace gloo::transport {

// Only ever held by pointer; LibTorch makes it.
class Device;

// The gloo group's SendWork and RecvWork own one; LibTorch alone makes those.
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};

}  // namespace gloo::transport

#endif  // MIR_THIRD_PARTY_GLOO_STUBS_GLOO_TRANSPORT_DEVICE_H_
