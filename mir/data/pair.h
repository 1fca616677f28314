#ifndef MIR_DATA_PAIR_H_
#define MIR_DATA_PAIR_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace mir::data {

// Two images to register, on one grid: `moving` is to be warped onto `fixed`.
//
//   fixed, moving                 [1, D, H, W]  float32 (2-D: [1, H, W])
//   fixed_labels, moving_labels   as the images, int32; both undefined where
//                                 the data have none
struct Pair {
  std::string name;  // For messages: file names, or what made it.
  at::Tensor fixed;
  at::Tensor moving;
  at::Tensor fixed_labels;
  at::Tensor moving_labels;
};

// Pairs of one size, stacked: [N, 1, D, H, W] (2-D: [N, 1, H, W]).
struct Batch {
  std::vector<std::string> names;
  at::Tensor fixed;
  at::Tensor moving;
  at::Tensor fixed_labels;
  at::Tensor moving_labels;
};

// Stacks `pairs` in their order. Labels are undefined in the batch if they are
// in any of its pairs.
//
// INVALID_ARGUMENT if there is no pair, or if sizes differ: the message names
// both pairs and their sizes.
absl::StatusOr<Batch> Collate(const std::vector<Pair>& pairs);

}  // namespace mir::data

#endif  // MIR_DATA_PAIR_H_
