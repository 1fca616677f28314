#include "mir/training/validation.h"

#include <ATen/ops/isfinite.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/data/pair.h"
#include "mir/distributed/collectives.h"
#include "mir/distributed/sampler.h"
#include "mir/geometry/warp.h"
#include "mir/launch/exit_codes.h"
#include "mir/metrics/dice.h"
#include "mir/metrics/folding.h"
#include "mir/training/any_size.h"

namespace mir::training {
namespace {

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();

// What is measured of one case, in the order in which ranks exchange it.
enum Column { kLoss, kFolded, kDice, kDiceBefore, kLeftOut, kColumns };

// The mean over cases of a column, absent ones left out.
absl::optional<double> MeanOf(const std::vector<double>& table, Column column) {
  double sum = 0;
  int64_t count = 0;
  for (size_t row = 0; row + kColumns <= table.size(); row += kColumns) {
    if (std::isnan(table[row + column])) continue;
    sum += table[row + column];
    ++count;
  }
  if (count == 0) return absl::nullopt;
  return sum / count;
}

}  // namespace

absl::StatusOr<ValidationResult> Validate(models::RegistrationModel& model,
                                          const data::PairSource& source,
                                          const Objective& objective,
                                          precision::Precision precision,
                                          const distributed::Context& context,
                                          const std::function<bool()>& go_on) {
  const c10::InferenceMode no_autograd;
  const bool was_training = model.is_training();
  model.eval();
  std::vector<double> mine;
  for (const int64_t index : distributed::ShareOf(
           source.size(), context.world.rank, context.world.size)) {
    double row[kColumns];
    std::fill_n(row, kColumns, kAbsent);
    row[kLeftOut] = 0;
    if (!go_on()) {
      row[kLeftOut] = 1;
      mine.insert(mine.end(), row, row + kColumns);
      continue;
    }
    absl::StatusOr<data::Pair> pair = source.Get(/*epoch=*/0, index);
    if (!pair.ok()) return WithExitCode(pair.status(), launch::kData);
    MIR_ASSIGN_OR_RETURN(const data::Batch batch, data::Collate({*pair}));
    const at::Tensor moving = batch.moving.to(context.device);
    const at::Tensor fixed = batch.fixed.to(context.device);

    const models::Registration found =
        RegisterInPrecision(model, moving, fixed, precision);
    const bool finite = at::isfinite(found.displacement).all().item<bool>() &&
                        (!found.weights.defined() ||
                         at::isfinite(found.weights).all().item<bool>());
    if (finite) {
      row[kLoss] = objective(found, moving, fixed).total.item<double>();
      row[kFolded] = metrics::FoldedShare(found.displacement);
    }
    if (finite && batch.fixed_labels.defined()) {
      const at::Tensor moved_labels =
          geometry::WarpLabels(batch.moving_labels.to(context.device),
                               found.displacement, objective.warp_convention());
      row[kDice] =
          metrics::Dice(moved_labels.to(at::kCPU), batch.fixed_labels).mean;
      row[kDiceBefore] =
          metrics::Dice(batch.moving_labels, batch.fixed_labels).mean;
    }
    mine.insert(mine.end(), row, row + kColumns);
  }
  model.train(was_training);

  MIR_ASSIGN_OR_RETURN(
      const std::vector<double> table,
      distributed::GatherShares(context, source.size(), kColumns, mine));
  ValidationResult result;
  result.cases = source.size();
  for (size_t row = 0; row + kColumns <= table.size(); row += kColumns) {
    if (table[row + kLeftOut] != 0) {
      result.interrupted = true;
    } else if (std::isnan(table[row + kFolded])) {
      ++result.failed;
    }
  }
  result.loss = MeanOf(table, kLoss).value_or(kAbsent);
  result.folded = MeanOf(table, kFolded).value_or(kAbsent);
  result.dice = MeanOf(table, kDice);
  result.dice_before = MeanOf(table, kDiceBefore);
  return result;
}

}  // namespace mir::training
