#include "mir/training/summary.h"

#include <c10/core/InferenceMode.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "mir/base/status_macros.h"
#include "mir/data/pair.h"
#include "mir/data/summary_picture.h"
#include "mir/geometry/warp.h"
#include "mir/training/any_size.h"

namespace mir::training {
namespace {

// The losses of a run's steps; those that were not finite are left out.
absl::StatusOr<std::vector<double>> Losses(const RunFolder& folder) {
  std::vector<double> losses;
  MIR_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> lines,
                       folder.ReadMetrics());
  for (const nlohmann::json& line : lines) {
    if (line.contains("loss") && line["loss"].is_number()) {
      losses.push_back(line["loss"].get<double>());
    }
  }
  return losses;
}

}  // namespace

absl::Status WriteSummary(const RunFolder& folder,
                          models::RegistrationModel& model,
                          const data::PairSource& source,
                          const Objective& objective,
                          precision::Precision precision,
                          const distributed::Context& context) {
  const c10::InferenceMode no_autograd;
  model.eval();
  MIR_ASSIGN_OR_RETURN(const data::Pair pair,
                       source.Get(/*epoch=*/0, /*index=*/0));
  MIR_ASSIGN_OR_RETURN(const data::Batch batch, data::Collate({pair}));
  const at::Tensor moving = batch.moving.to(context.device);
  const at::Tensor displacement =
      RegisterInPrecision(model, moving, batch.fixed.to(context.device),
                          precision)
          .displacement;
  const at::Tensor warped = geometry::Warp(
      moving, displacement, {.convention = objective.warp_convention()});
  MIR_ASSIGN_OR_RETURN(const std::vector<double> losses, Losses(folder));
  return data::WriteSummaryPicture(folder.summary_picture(), batch.fixed,
                                   batch.moving, warped.to(at::kCPU),
                                   displacement.to(at::kCPU), losses);
}

}  // namespace mir::training
