#include "tools/register/measure.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "mir/data/grid.h"
#include "mir/metrics/dice.h"
#include "mir/metrics/folding.h"
#include "mir/metrics/surface_distance.h"

namespace mir::tools {
namespace {

nlohmann::json NumberOrNull(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nullptr;
}

nlohmann::json ByLabel(const std::vector<int64_t>& labels,
                       const std::vector<double>& values) {
  nlohmann::json by_label = nlohmann::json::object();
  for (size_t i = 0; i < labels.size(); ++i) {
    by_label[absl::StrCat(labels[i])] = NumberOrNull(values[i]);
  }
  return by_label;
}

}  // namespace

nlohmann::json Measure(const VolumePair& pair, const RegisteredVolumes& found) {
  const at::Tensor displacement = found.displacement.unsqueeze(/*dim=*/0);
  const at::IntArrayRef sizes = found.displacement.sizes().slice(1);
  const bool large_enough = *std::min_element(sizes.begin(), sizes.end()) >= 5;
  nlohmann::json measured = {
      {"fixed", pair.fixed.name},
      {"moving", pair.moving.name},
      {"folded", metrics::FoldedShare(displacement)},
      {"sd_log_jacobian",
       large_enough ? nlohmann::json(metrics::SdLogJacobian(displacement))
                    : nullptr}};
  if (!pair.fixed_labels.voxels.defined() || !found.warped_labels.defined()) {
    return measured;
  }
  const std::array<double, 3> spacing_mm = data::SpacingMm(pair.fixed.grid);
  for (const bool before : {true, false}) {
    const at::Tensor& labels =
        before ? found.moving_labels : found.warped_labels;
    const std::string suffix = before ? "_before" : "";
    const metrics::DiceScores overlap =
        metrics::Dice(labels, pair.fixed_labels.voxels);
    measured["dice" + suffix] = NumberOrNull(overlap.mean);
    measured["dice" + suffix + "_by_label"] =
        ByLabel(overlap.labels, overlap.dice);
    const metrics::SurfaceDistances apart =
        metrics::CompareSurfaces(labels, pair.fixed_labels.voxels, spacing_mm);
    measured["hd95_mm" + suffix] = NumberOrNull(apart.mean_hd95_mm);
    measured["hd95_mm" + suffix + "_by_label"] =
        ByLabel(apart.labels, apart.hd95_mm);
    if (!before) measured["missing_labels"] = apart.missing;
  }
  return measured;
}

nlohmann::json Summarize(const std::vector<nlohmann::json>& pairs) {
  nlohmann::json summary = {{"pairs", pairs}};
  for (const char* name : {"folded", "sd_log_jacobian", "dice", "dice_before",
                           "hd95_mm", "hd95_mm_before"}) {
    double sum = 0;
    int64_t count = 0;
    for (const nlohmann::json& pair : pairs) {
      if (!pair.contains(name)) continue;
      sum += pair[name].is_number() ? pair[name].get<double>() : std::nan("");
      ++count;
    }
    if (count > 0) {
      summary[name] = NumberOrNull(sum / static_cast<double>(count));
    }
  }
  return summary;
}

}  // namespace mir::tools
