#include "mir/precision/fp32_region.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <mutex>

#include "mir/precision/autocast.h"

namespace mir::precision {
namespace {

constexpr at::Float32Backend kBackend = at::Float32Backend::CUDA;
constexpr at::Float32Op kOp = at::Float32Op::CONV;

// The regions that are open in all threads: the first one in saves cuDNN's
// switch and the last one out restores it.
struct OpenRegions {
  std::mutex mutex;
  int count = 0;
  at::Float32Precision saved = at::Float32Precision::IEEE;
};

OpenRegions& Regions() {
  static OpenRegions& regions = *new OpenRegions;
  return regions;
}

}  // namespace

at::ScalarType ComputeType(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor ToComputeType(const at::Tensor& tensor) {
  return tensor.to(ComputeType(tensor.scalar_type()));
}

struct Fp32Region::Guards {
  NoAutocast no_autocast;
  at::NoTF32Guard no_tf32_products;
};

Fp32Region::Fp32Region() : guards_(std::make_unique<Guards>()) {
  OpenRegions& regions = Regions();
  const std::lock_guard<std::mutex> lock(regions.mutex);
  if (regions.count++ > 0) return;
  at::Context& context = at::globalContext();
  regions.saved = context.float32Precision(kBackend, kOp);
  if (regions.saved == at::Float32Precision::TF32) {
    context.setFloat32Precision(kBackend, kOp, at::Float32Precision::IEEE);
  }
}

Fp32Region::~Fp32Region() {
  OpenRegions& regions = Regions();
  const std::lock_guard<std::mutex> lock(regions.mutex);
  if (--regions.count > 0) return;
  if (regions.saved == at::Float32Precision::TF32) {
    at::globalContext().setFloat32Precision(kBackend, kOp, regions.saved);
  }
}

}  // namespace mir::precision
