#include "mir/precision/autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace mir::precision {

namespace autocast = at::autocast;

Autocast::Autocast(c10::DeviceType device_type, Precision precision)
    : device_type_(device_type), active_(precision != Precision::kFloat32) {
  if (!active_) return;
  previous_enabled_ = autocast::is_autocast_enabled(device_type_);
  previous_dtype_ = autocast::get_autocast_dtype(device_type_);
  autocast::set_autocast_enabled(device_type_, true);
  autocast::set_autocast_dtype(device_type_, precision == Precision::kFloat16
                                                 ? at::kHalf
                                                 : at::kBFloat16);
  autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!active_) return;
  if (autocast::decrement_nesting() == 0) autocast::clear_cache();
  autocast::set_autocast_enabled(device_type_, previous_enabled_);
  autocast::set_autocast_dtype(device_type_, previous_dtype_);
}

NoAutocast::NoAutocast()
    : previous_cpu_(autocast::is_autocast_enabled(at::kCPU)),
      previous_cuda_(autocast::is_autocast_enabled(at::kCUDA)) {
  autocast::set_autocast_enabled(at::kCPU, false);
  autocast::set_autocast_enabled(at::kCUDA, false);
}

NoAutocast::~NoAutocast() {
  autocast::set_autocast_enabled(at::kCPU, previous_cpu_);
  autocast::set_autocast_enabled(at::kCUDA, previous_cuda_);
}

DeviceSupport SupportOf(const c10::Device& device) {
  DeviceSupport support;
  if (device.is_cpu()) {
    support.available = support.bfloat16 = true;
  } else if (device.is_cuda()) {
    const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
    support.available = hooks.hasCUDA() && device.index() < hooks.getNumGPUs();
    if (support.available) {
      const c10::OptionalDeviceGuard on_device(
          device.has_index() ? std::optional<c10::Device>(device)
                             : std::nullopt);
      // True from compute capability 8.0 on.
      support.bfloat16 = hooks.supportsBFloat16ConvolutionWithCuDNNv8();
    }
  }
  return support;
}

absl::StatusOr<Precision> RunnablePrecision(Precision wanted,
                                            const c10::Device& device,
                                            std::string* warning) {
  // Float32 runs everywhere; do not wake a GPU to learn that.
  if (wanted == Precision::kFloat32) return wanted;
  return RunnablePrecision(wanted, device, SupportOf(device), warning);
}

absl::StatusOr<Precision> RunnablePrecision(Precision wanted,
                                            const c10::Device& device,
                                            const DeviceSupport& support,
                                            std::string* warning) {
  if (wanted == Precision::kFloat32) return wanted;
  if (!support.available) {
    return absl::FailedPreconditionError(
        absl::StrCat("precision ", PrecisionName(wanted), " was asked for on ",
                     device.str(), ", which is not available here"));
  }
  if (wanted == Precision::kBFloat16 && !support.bfloat16) {
    return absl::FailedPreconditionError(absl::StrCat(
        "precision bf16 needs a GPU of compute capability 8.0 or newer (A100, "
        "H100, RTX 30xx and later), and ",
        device.str(), " is older; use fp16 or fp32"));
  }
  if (wanted == Precision::kFloat16 && device.is_cpu()) {
    if (warning != nullptr) {
      *warning =
          "precision fp16 runs in fp32 on a CPU, which has no fast float16 "
          "convolutions; use bf16 for 16 bits on a CPU";
    }
    return Precision::kFloat32;
  }
  return wanted;
}

}  // namespace mir::precision
