#include "mir/data/pair.h"

#include <ATen/ops/stack.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mir::data {
namespace {

std::string SizeOf(const at::Tensor& image) {
  return absl::StrJoin(image.sizes().slice(1), "x");
}

}  // namespace

absl::StatusOr<Batch> Collate(const std::vector<Pair>& pairs) {
  if (pairs.empty()) {
    return absl::InvalidArgumentError("a batch needs at least one pair");
  }
  Batch batch;
  std::vector<at::Tensor> fixed, moving, fixed_labels, moving_labels;
  for (const Pair& pair : pairs) {
    if (pair.fixed.sizes() != pairs[0].fixed.sizes() ||
        pair.moving.sizes() != pairs[0].moving.sizes()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pairs of different sizes cannot share a batch: ", pairs[0].name,
          " is ", SizeOf(pairs[0].fixed), ", ", pair.name, " is ",
          SizeOf(pair.fixed), "; use a batch size of 1, or resample them"));
    }
    batch.names.push_back(pair.name);
    fixed.push_back(pair.fixed);
    moving.push_back(pair.moving);
    if (pair.fixed_labels.defined() && pair.moving_labels.defined()) {
      fixed_labels.push_back(pair.fixed_labels);
      moving_labels.push_back(pair.moving_labels);
    }
  }
  batch.fixed = at::stack(fixed);
  batch.moving = at::stack(moving);
  if (fixed_labels.size() == pairs.size()) {
    batch.fixed_labels = at::stack(fixed_labels);
    batch.moving_labels = at::stack(moving_labels);
  }
  return batch;
}

}  // namespace mir::data
