#ifndef MIR_PRECISION_AUTOCAST_H_
#define MIR_PRECISION_AUTOCAST_H_

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "absl/status/statusor.h"
#include "mir/precision/precision.h"

namespace mir::precision {

// Runs LibTorch's operators in mixed precision for a scope, as Python's
// torch.autocast does: convolutions and matrix products on `device_type` cast
// to float16 or bfloat16, operators that need the range compute in float32.
// kFloat32 changes nothing at all, also inside another Autocast.
//
// Scopes nest and must be left in the reverse order. Leaving one (by an
// exception too) restores what was before; leaving the outermost one drops the
// cached 16-bit copies of the weights, so that an optimizer's step is seen.
// As in LibTorch the state is that of the thread: threads made inside do not
// inherit it, and a backward pass needs no scope, since it runs in the types
// that the forward pass recorded.
class Autocast {
 public:
  Autocast(c10::DeviceType device_type, Precision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const c10::DeviceType device_type_;
  const bool active_;
  bool previous_enabled_ = false;
  c10::ScalarType previous_dtype_ = c10::ScalarType::Float;
};

// Turns autocast off for a scope, on the CPU and on CUDA: operators compute in
// the types of their inputs. Scopes nest, within Autocast and around it.
class NoAutocast {
 public:
  NoAutocast();
  ~NoAutocast();
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  const bool previous_cpu_;
  const bool previous_cuda_;
};

// What a device can do, as far as precisions go.
struct DeviceSupport {
  bool available = false;  // The device is there.
  bool bfloat16 = false;   // A CPU, or a GPU of compute capability 8.0 or more.
};

// Asks LibTorch; on CUDA this initialises the GPU.
DeviceSupport SupportOf(const c10::Device& device);

// The precision to run in where `wanted` is asked for on `device`:
//
//   fp16 on a CPU: fp32, and a sentence in `warning`; on CPUs float16
//     convolutions are many times slower than float32 ones;
//   bf16 on a GPU below compute capability 8.0: FAILED_PRECONDITION;
//   fp16 or bf16 on a GPU that is not there: FAILED_PRECONDITION;
//   anything else: `wanted`, and `warning` is left as it was.
//
// `warning` may be null.
absl::StatusOr<Precision> RunnablePrecision(Precision wanted,
                                            const c10::Device& device,
                                            std::string* warning);

// The same where the device is known to support `support`.
absl::StatusOr<Precision> RunnablePrecision(Precision wanted,
                                            const c10::Device& device,
                                            const DeviceSupport& support,
                                            std::string* warning);

}  // namespace mir::precision

#endif  // MIR_PRECISION_AUTOCAST_H_
