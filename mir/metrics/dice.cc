#include "mir/metrics/dice.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace mir::metrics {
namespace {

struct Counts {
  int64_t a = 0, b = 0, both = 0;
};
using CountsByLabel = absl::flat_hash_map<int64_t, Counts>;

// Neighbouring voxels mostly have the same labels, so runs are counted, and
// looked up once each.
template <typename T>
CountsByLabel Count(const at::Tensor& a, const at::Tensor& b) {
  const T* a_data = a.const_data_ptr<T>();
  const T* b_data = b.const_data_ptr<T>();
  const int64_t voxels = a.numel();
  CountsByLabel counts;
  for (int64_t begin = 0; begin < voxels;) {
    const T a_label = a_data[begin];
    const T b_label = b_data[begin];
    int64_t end = begin + 1;
    while (end < voxels && a_data[end] == a_label && b_data[end] == b_label) {
      ++end;
    }
    const int64_t length = end - begin;
    counts[a_label].a += length;
    counts[b_label].b += length;
    if (a_label == b_label) counts[a_label].both += length;
    begin = end;
  }
  return counts;
}

void CheckSegmentation(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "Dice: ", name, " is undefined");
  TORCH_CHECK_VALUE(
      at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true),
      "Dice: wanted ", name, " of an integer dtype, came ",
      tensor.scalar_type());
}

}  // namespace

DiceScores Dice(const at::Tensor& a, const at::Tensor& b,
                const std::optional<std::vector<int64_t>>& labels) {
  CheckSegmentation("a", a);
  CheckSegmentation("b", b);
  TORCH_CHECK_VALUE(a.sizes() == b.sizes(),
                    "Dice: wanted segmentations of one shape, came ", a.sizes(),
                    " and ", b.sizes());
  if (labels.has_value()) {
    absl::flat_hash_set<int64_t> seen;
    for (const int64_t label : *labels) {
      TORCH_CHECK_VALUE(seen.insert(label).second, "Dice: label ", label,
                        " is given twice; wanted each label once");
    }
  }

  const at::ScalarType dtype =
      a.scalar_type() == at::kInt && b.scalar_type() == at::kInt ? at::kInt
                                                                 : at::kLong;
  const at::Tensor a_labels = a.to(at::kCPU, dtype).contiguous();
  const at::Tensor b_labels = b.to(at::kCPU, dtype).contiguous();
  const CountsByLabel counts = dtype == at::kInt
                                   ? Count<int32_t>(a_labels, b_labels)
                                   : Count<int64_t>(a_labels, b_labels);

  DiceScores scores;
  if (labels.has_value()) {
    scores.labels = *labels;
  } else {
    for (const auto& [label, unused] : counts) {
      if (label != 0) scores.labels.push_back(label);
    }
    std::sort(scores.labels.begin(), scores.labels.end());
  }
  double sum = 0;
  scores.scored = 0;
  for (const int64_t label : scores.labels) {
    const auto found = counts.find(label);
    if (found == counts.end()) {
      scores.dice.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    const Counts& of_label = found->second;
    scores.dice.push_back(2 * static_cast<double>(of_label.both) /
                          static_cast<double>(of_label.a + of_label.b));
    sum += scores.dice.back();
    ++scores.scored;
  }
  scores.mean = scores.scored > 0 ? sum / static_cast<double>(scores.scored)
                                  : std::numeric_limits<double>::quiet_NaN();
  return scores;
}

}  // namespace mir::metrics
