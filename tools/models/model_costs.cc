#include "tools/models/model_costs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/models/layers/weights.h"
#include "mir/models/registry.h"
#include "mir/precision/autocast.h"

namespace mir::tools {
namespace {

using precision::Precision;

// A weight, its gradient, and AdamW's first, second and largest second moment.
constexpr double kFloatsPerParameter = 5;

// Sums what this thread's tensors allocate and free.
class PeakMemory : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t,
                         c10::Device) override {
    current_ += bytes;
    peak_ = std::max(peak_, current_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t peak() const { return peak_; }

 private:
  int64_t current_ = 0, peak_ = 0;
};

int64_t Parameters(const models::RegistrationModel& model) {
  int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    count += parameter.numel();
  }
  return count;
}

}  // namespace

absl::StatusOr<int64_t> CountParameters(absl::string_view model,
                                        const nlohmann::json& config) {
  const models::WithoutWeights scope;
  MIR_ASSIGN_OR_RETURN(const std::shared_ptr<models::RegistrationModel> built,
                       models::BuildModel(model, config));
  return Parameters(*built);
}

absl::StatusOr<StepMemory> MeasureStep(absl::string_view model,
                                       const nlohmann::json& config,
                                       Precision precision,
                                       const std::vector<int64_t>& sizes) {
  MIR_ASSIGN_OR_RETURN(const std::shared_ptr<models::RegistrationModel> built,
                       models::BuildModel(model, config));
  const int64_t parameters = Parameters(*built);
  // Their gradients are tensors of the step, but counted with the weights.
  const double gradients = parameters * sizeof(float);

  const auto peak = std::make_shared<PeakMemory>();
  MIR_RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    std::vector<int64_t> shape = {1, 1};
    shape.insert(shape.end(), sizes.begin(), sizes.end());
    const at::Tensor moving = at::rand(shape), fixed = at::rand(shape);
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, peak);
    at::Tensor sum;
    {
      const precision::Autocast autocast(at::kCPU, precision);
      sum = built->Register(moving, fixed).displacement.sum();
    }
    sum.backward();
    return absl::OkStatus();
  }));

  StepMemory memory;
  const bool wide = precision == Precision::kFloat32;
  memory.weights = parameters * (kFloatsPerParameter * sizeof(float) +
                                 (wide ? 0 : sizeof(float) / 2));
  memory.activations = std::max(0.0, peak->peak() - gradients);
  return memory;
}

}  // namespace mir::tools
