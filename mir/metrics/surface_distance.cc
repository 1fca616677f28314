#include "mir/metrics/surface_distance.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "mir/metrics/distance_transform.h"

namespace mir::metrics {
namespace {

using Index = std::array<int64_t, 3>;

// A segmentation; a plane is one slice [1, H, W] that has no surface along its
// first axis.
struct Segmentation {
  explicit Segmentation(const at::Tensor& tensor)
      : voxels(tensor.to(at::kCPU, at::kLong).contiguous()),
        labels(voxels.const_data_ptr<int64_t>()),
        first_axis(3 - static_cast<int>(voxels.dim())) {
    for (int axis = first_axis; axis < 3; ++axis) {
      size[axis] = voxels.size(axis - first_axis);
      stride[axis] = voxels.stride(axis - first_axis);
    }
  }

  at::Tensor voxels;
  const int64_t* labels;
  int first_axis;
  Index size = {1, 1, 1};
  Index stride = {0, 0, 0};
};

// The voxels from `first` to `last`, both inclusive.
struct Box {
  Index first, last;

  void Include(const Box& other) {
    for (int axis = 0; axis < 3; ++axis) {
      first[axis] = std::min(first[axis], other.first[axis]);
      last[axis] = std::max(last[axis], other.last[axis]);
    }
  }
};
using Boxes = absl::flat_hash_map<int64_t, Box>;

// Around each label. Runs along the last axis are looked up once each.
Boxes FindBoxes(const Segmentation& of) {
  Boxes boxes;
  const int64_t width = of.size[2];
  const int64_t* row = of.labels;
  for (int64_t d = 0; d < of.size[0]; ++d) {
    for (int64_t h = 0; h < of.size[1]; ++h, row += width) {
      for (int64_t begin = 0; begin < width;) {
        int64_t end = begin + 1;
        while (end < width && row[end] == row[begin]) ++end;
        const Box run = {{d, h, begin}, {d, h, end - 1}};
        boxes.try_emplace(row[begin], run).first->second.Include(run);
        begin = end;
      }
    }
  }
  return boxes;
}

bool IsSurface(const Segmentation& of, const Index& at, int64_t offset,
               int64_t label) {
  if (of.labels[offset] != label) return false;
  for (int axis = of.first_axis; axis < 3; ++axis) {
    if (at[axis] == 0 || at[axis] == of.size[axis] - 1 ||
        of.labels[offset - of.stride[axis]] != label ||
        of.labels[offset + of.stride[axis]] != label) {
      return true;
    }
  }
  return false;
}

// The surface voxels of `label` within `box`, which holds them all.
at::Tensor Surface(const Segmentation& of, const Box& box, int64_t label) {
  at::Tensor surface =
      at::zeros({box.last[0] - box.first[0] + 1, box.last[1] - box.first[1] + 1,
                 box.last[2] - box.first[2] + 1},
                at::kBool);
  bool* is_surface = surface.mutable_data_ptr<bool>();
  Index at;
  for (at[0] = box.first[0]; at[0] <= box.last[0]; ++at[0]) {
    for (at[1] = box.first[1]; at[1] <= box.last[1]; ++at[1]) {
      const int64_t row = at[0] * of.stride[0] + at[1] * of.stride[1];
      for (at[2] = box.first[2]; at[2] <= box.last[2]; ++at[2]) {
        *is_surface++ = IsSurface(of, at, row + at[2], label);
      }
    }
  }
  return surface;
}

// Of `distances` where `surface` is set.
std::vector<double> Choose(const at::Tensor& distances,
                           const at::Tensor& surface) {
  const double* values = distances.const_data_ptr<double>();
  const bool* chosen = surface.const_data_ptr<bool>();
  std::vector<double> result;
  for (int64_t i = 0; i < surface.numel(); ++i) {
    if (chosen[i]) result.push_back(values[i]);
  }
  return result;
}

double Percentile95(std::vector<double>& values) {
  const double rank = 0.95 * static_cast<double>(values.size() - 1);
  const auto lower = values.begin() + static_cast<int64_t>(rank);
  std::nth_element(values.begin(), lower, values.end());
  if (lower + 1 == values.end()) return *lower;
  const double upper = *std::min_element(lower + 1, values.end());
  return *lower + (rank - std::floor(rank)) * (upper - *lower);
}

struct Distances {
  double hd95 = std::numeric_limits<double>::quiet_NaN();
  double average = hd95;
};

Distances OfLabel(const Segmentation& a, const Segmentation& b, const Box& box,
                  int64_t label, c10::ArrayRef<double> spacing) {
  const at::Tensor a_surface = Surface(a, box, label);
  const at::Tensor b_surface = Surface(b, box, label);
  std::vector<double> from_a =
      Choose(DistanceTransform(b_surface, spacing), a_surface);
  std::vector<double> from_b =
      Choose(DistanceTransform(a_surface, spacing), b_surface);
  Distances result;
  result.average = (std::accumulate(from_a.begin(), from_a.end(), 0.0) +
                    std::accumulate(from_b.begin(), from_b.end(), 0.0)) /
                   static_cast<double>(from_a.size() + from_b.size());
  result.hd95 = std::max(Percentile95(from_a), Percentile95(from_b));
  return result;
}

void CheckArguments(const at::Tensor& a, const at::Tensor& b,
                    c10::ArrayRef<double> spacing,
                    const std::optional<std::vector<int64_t>>& labels) {
  for (const at::Tensor* tensor : {&a, &b}) {
    const char* const name = tensor == &a ? "a" : "b";
    TORCH_CHECK_VALUE(tensor->defined(), "CompareSurfaces: ", name,
                      " is undefined");
    TORCH_CHECK_VALUE(
        at::isIntegralType(tensor->scalar_type(), /*includeBool=*/true) &&
            (tensor->dim() == 2 || tensor->dim() == 3),
        "CompareSurfaces: wanted ", name,
        " [D, H, W] or [H, W] of an integer dtype, came ", tensor->sizes(),
        " of ", tensor->scalar_type());
  }
  TORCH_CHECK_VALUE(a.sizes() == b.sizes(),
                    "CompareSurfaces: wanted segmentations of one shape, came ",
                    a.sizes(), " and ", b.sizes());
  TORCH_CHECK_VALUE(
      spacing.size() == a.dim() &&
          std::all_of(spacing.begin(), spacing.end(),
                      [](double s) { return s > 0 && std::isfinite(s); }),
      "CompareSurfaces: wanted ", a.dim(),
      " positive numbers as the spacing, came ", spacing);
  absl::flat_hash_set<int64_t> seen;
  for (const int64_t label : labels.value_or(std::vector<int64_t>())) {
    TORCH_CHECK_VALUE(seen.insert(label).second, "CompareSurfaces: label ",
                      label, " is given twice; wanted each label once");
  }
}

}  // namespace

SurfaceDistances CompareSurfaces(
    const at::Tensor& a, const at::Tensor& b, c10::ArrayRef<double> spacing_mm,
    const std::optional<std::vector<int64_t>>& labels) {
  CheckArguments(a, b, spacing_mm, labels);
  const Segmentation first(a), second(b);
  std::vector<double> spacing(first.first_axis, 1.0);
  spacing.insert(spacing.end(), spacing_mm.begin(), spacing_mm.end());
  const Boxes a_boxes = FindBoxes(first), b_boxes = FindBoxes(second);

  SurfaceDistances result;
  if (labels.has_value()) {
    result.labels = *labels;
  } else {
    absl::flat_hash_set<int64_t> found;
    for (const Boxes* boxes : {&a_boxes, &b_boxes}) {
      for (const auto& [label, unused] : *boxes) {
        if (label != 0 && found.insert(label).second) {
          result.labels.push_back(label);
        }
      }
    }
    std::sort(result.labels.begin(), result.labels.end());
  }

  std::vector<Distances> measured(result.labels.size());
  at::parallel_for(
      0, static_cast<int64_t>(measured.size()), /*grain_size=*/1,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t label = result.labels[i];
          const auto in_a = a_boxes.find(label), in_b = b_boxes.find(label);
          if (in_a == a_boxes.end() && in_b == b_boxes.end()) continue;
          if (in_a == a_boxes.end() || in_b == b_boxes.end()) {
            measured[i].hd95 = std::numeric_limits<double>::infinity();
            measured[i].average = measured[i].hd95;
            continue;
          }
          Box box = in_a->second;
          box.Include(in_b->second);
          measured[i] = OfLabel(first, second, box, label, spacing);
        }
      });

  double hd95 = 0, average = 0;
  result.scored = result.missing = 0;
  for (const Distances& of_label : measured) {
    result.hd95_mm.push_back(of_label.hd95);
    result.average_mm.push_back(of_label.average);
    if (std::isfinite(of_label.hd95)) {
      ++result.scored;
      hd95 += of_label.hd95;
      average += of_label.average;
    } else if (!std::isnan(of_label.hd95)) {
      ++result.missing;
    }
  }
  // 0 / 0 is NaN.
  result.mean_hd95_mm = hd95 / static_cast<double>(result.scored);
  result.mean_average_mm = average / static_cast<double>(result.scored);
  return result;
}

}  // namespace mir::metrics
