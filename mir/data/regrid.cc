#include "mir/data/regrid.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/geometry/resample.h"

namespace mir::data {
namespace {

// Full width at half maximum of a Gaussian, in standard deviations.
constexpr double kWidthOfGaussian = 2.3548;

// How a volume's axes become those of its RAS grid: result axis k is axis
// `from[k]`, reversed where `reversed[k]`.
struct Reordering {
  std::array<int, 3> from;
  std::array<bool, 3> reversed;
};

Reordering ToRas(const Grid& grid) {
  Reordering reordering = {};
  const std::string letters = Orientation(grid);
  for (int axis = 0; axis < 3; ++axis) {
    for (int k = 0; k < 3; ++k) {
      if (letters[axis] == "RAS"[k] || letters[axis] == "LPI"[k]) {
        reordering.from[k] = axis;
        reordering.reversed[k] = letters[axis] == "LPI"[k];
      }
    }
  }
  return reordering;
}

at::Tensor Reordered(const at::Tensor& voxels, const Reordering& reordering) {
  std::vector<int64_t> reversed;
  for (int k = 0; k < 3; ++k) {
    if (reordering.reversed[k]) reversed.push_back(k);
  }
  return voxels
      .permute({reordering.from[0], reordering.from[1], reordering.from[2]})
      .flip(reversed)
      .contiguous();
}

// Convolves along one axis with a Gaussian; the border repeats.
at::Tensor BlurredAlong(const at::Tensor& image, int64_t axis, double sigma) {
  const int64_t radius = static_cast<int64_t>(std::ceil(3 * sigma));
  std::vector<float> weights;
  double sum = 0;
  for (int64_t x = -radius; x <= radius; ++x) {
    sum += std::exp(-0.5 * x * x / (sigma * sigma));
  }
  for (int64_t x = -radius; x <= radius; ++x) {
    weights.push_back(
        static_cast<float>(std::exp(-0.5 * x * x / (sigma * sigma)) / sum));
  }
  const int64_t size = image.size(axis);
  const int64_t inner = image.stride(axis);
  const int64_t outer = image.numel() / (size * inner);
  at::Tensor result = at::empty(image.sizes(), at::kFloat);
  const float* const from = image.const_data_ptr<float>();
  float* const to = result.mutable_data_ptr<float>();
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t x = 0; x < size; ++x) {
      float* const row = to + (o * size + x) * inner;
      std::fill(row, row + inner, 0.f);
      for (int64_t k = -radius; k <= radius; ++k) {
        const int64_t y = std::clamp<int64_t>(x + k, 0, size - 1);
        const float* const source = from + (o * size + y) * inner;
        const float weight = weights[k + radius];
        for (int64_t i = 0; i < inner; ++i) row[i] += weight * source[i];
      }
    }
  }
  return result;
}

// Removes what a grid whose neighbours lie `step` voxels apart cannot show.
at::Tensor Blurred(at::Tensor image, const std::array<double, 3>& step) {
  image = image.to(at::kFloat).contiguous();
  for (int axis = 0; axis < 3; ++axis) {
    if (step[axis] < 1.1 || image.size(axis) < 2) continue;
    const double sigma =
        std::sqrt(step[axis] * step[axis] - 1) / kWidthOfGaussian;
    image = BlurredAlong(image, axis, sigma);
  }
  return image;
}

void CheckShape(const at::Tensor& displacement, const Grid& grid) {
  const std::vector<int64_t> wanted = {3, grid.size[0], grid.size[1],
                                       grid.size[2]};
  TORCH_CHECK_VALUE(
      displacement.sizes() == wanted && displacement.is_floating_point(),
      "wanted a floating displacement ", at::IntArrayRef(wanted),
      " as its grid has, got ", displacement.sizes());
}

// Reads `from` linearly at position (d, h, w), `fill` beyond half a voxel.
template <typename Voxel>
class Reader {
 public:
  Reader(const at::Tensor& voxels, double fill)
      : data_(voxels.const_data_ptr<Voxel>()),
        size_{voxels.size(0), voxels.size(1), voxels.size(2)},
        fill_(static_cast<Voxel>(fill)) {}

  Voxel Nearest(const std::array<double, 3>& position) const {
    int64_t at = 0;
    for (int axis = 0; axis < 3; ++axis) {
      if (Outside(position[axis], axis)) return fill_;
      at = at * size_[axis] +
           std::clamp<int64_t>(std::lround(position[axis]), 0, size_[axis] - 1);
    }
    return data_[at];
  }

  Voxel Linear(const std::array<double, 3>& position) const {
    std::array<int64_t, 3> low, high;
    std::array<double, 3> share;
    for (int axis = 0; axis < 3; ++axis) {
      if (Outside(position[axis], axis)) return fill_;
      const double inside = std::clamp(position[axis], 0.0, size_[axis] - 1.0);
      low[axis] = static_cast<int64_t>(inside);
      high[axis] = std::min(low[axis] + 1, size_[axis] - 1);
      share[axis] = inside - low[axis];
    }
    double value = 0;
    for (int corner = 0; corner < 8; ++corner) {
      int64_t at = 0;
      double weight = 1;
      for (int axis = 0; axis < 3; ++axis) {
        const bool upper = corner >> axis & 1;
        at = at * size_[axis] + (upper ? high : low)[axis];
        weight *= upper ? share[axis] : 1 - share[axis];
      }
      if (weight > 0) value += weight * data_[at];
    }
    return static_cast<Voxel>(value);
  }

 private:
  // NaN counts as outside.
  bool Outside(double position, int axis) const {
    return !(position >= -0.5 && position <= size_[axis] - 0.5);
  }

  const Voxel* data_;
  const std::array<int64_t, 3> size_;
  const Voxel fill_;
};

}  // namespace

Grid RasGrid(const Grid& grid) {
  const Reordering reordering = ToRas(grid);
  Grid result;
  for (int k = 0; k < 3; ++k) {
    const int axis = reordering.from[k];
    result.size[k] = grid.size[axis];
    const double sign = reordering.reversed[k] ? -1 : 1;
    for (int row = 0; row < 3; ++row) {
      result.to_world[row][k] = sign * grid.to_world[row][axis];
    }
  }
  std::array<double, 3> first = {0, 0, 0};  // Of the result, in `grid`.
  for (int k = 0; k < 3; ++k) {
    if (reordering.reversed[k]) {
      first[reordering.from[k]] = grid.size[reordering.from[k]] - 1.0;
    }
  }
  const auto position = Apply(grid.to_world, first);
  for (int row = 0; row < 3; ++row) result.to_world[row][3] = position[row];
  return result;
}

absl::StatusOr<Grid> IsotropicRasGrid(const Grid& grid, double spacing_mm) {
  if (!(spacing_mm > 0) || !std::isfinite(spacing_mm)) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted a spacing above 0 mm, got ", spacing_mm));
  }
  std::array<double, 3> low, high;
  low.fill(std::numeric_limits<double>::infinity());
  high.fill(-std::numeric_limits<double>::infinity());
  for (int corner = 0; corner < 8; ++corner) {
    std::array<double, 3> voxel;  // The outer corners of the outermost voxels.
    for (int axis = 0; axis < 3; ++axis) {
      voxel[axis] = (corner >> axis & 1) * grid.size[axis] - 0.5;
    }
    const auto world = Apply(grid.to_world, voxel);
    for (int axis = 0; axis < 3; ++axis) {
      low[axis] = std::min(low[axis], world[axis]);
      high[axis] = std::max(high[axis], world[axis]);
    }
  }
  Grid result;
  double voxels = 1;
  for (int axis = 0; axis < 3; ++axis) {
    // A hundredth of a voxel may stick out: headers are rounded.
    const double size =
        std::max(1.0, std::ceil((high[axis] - low[axis]) / spacing_mm - 0.01));
    voxels *= size;
    if (!(voxels < 0x1p31)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a spacing of ", spacing_mm, " mm would make too many voxels of ",
          Describe(grid), "; choose a larger one"));
    }
    result.size[axis] = static_cast<int64_t>(size);
    result.to_world[axis][axis] = spacing_mm;
    result.to_world[axis][3] =
        (low[axis] + high[axis]) / 2 - (size - 1) / 2 * spacing_mm;
  }
  return result;
}

Volume OntoGrid(const Volume& volume, const Grid& grid, double fill) {
  if (SameGrid(volume.grid, grid)) return volume;
  Volume result;
  result.grid = grid;
  result.name = volume.name;
  if (SameGrid(RasGrid(volume.grid), grid)) {
    result.voxels = Reordered(volume.voxels, ToRas(volume.grid));
    return result;
  }
  const Affine map = Multiply(Inverse(volume.grid.to_world), grid.to_world);
  if (volume.voxels.is_floating_point()) {
    std::array<double, 3> step;
    for (int axis = 0; axis < 3; ++axis) {
      step[axis] = std::hypot(map[axis][0], map[axis][1], map[axis][2]);
    }
    result.voxels =
        geometry::ResampleTo(Blurred(volume.voxels, step), map, grid.size,
                             geometry::Interpolation::kLinear, fill);
  } else {
    result.voxels = geometry::ResampleTo(
        volume.voxels, map, grid.size, geometry::Interpolation::kNearest, fill);
  }
  return result;
}

at::Tensor DisplacementOnGrid(const at::Tensor& displacement, const Grid& from,
                              const Grid& to) {
  CheckShape(displacement, from);
  const at::Tensor values =
      displacement.detach().to(at::kCPU, at::kFloat).contiguous();
  if (SameGrid(from, to)) return values;
  const Affine map = Multiply(Inverse(from.to_world), to.to_world);
  const Affine turn = Multiply(Inverse(to.to_world), from.to_world);
  std::array<at::Tensor, 3> resampled;
  for (int channel = 0; channel < 3; ++channel) {
    resampled[channel] = geometry::ResampleTo(values[channel], map, to.size);
  }
  at::Tensor result =
      at::empty({3, to.size[0], to.size[1], to.size[2]}, at::kFloat);
  for (int row = 0; row < 3; ++row) {
    at::Tensor component = result.select(0, row);
    component.copy_(resampled[0]).mul_(turn[row][0]);
    component.add_(resampled[1], turn[row][1]);
    component.add_(resampled[2], turn[row][2]);
  }
  return result;
}

Volume WarpOntoGrid(const Volume& moving, const at::Tensor& displacement,
                    const Grid& fixed, double fill) {
  CheckShape(displacement, fixed);
  const at::Tensor shift =
      displacement.detach().to(at::kCPU, at::kFloat).contiguous();
  const Affine map = Multiply(Inverse(moving.grid.to_world), fixed.to_world);
  const bool linear = moving.voxels.is_floating_point();
  const at::Tensor source =
      moving.voxels.to(linear ? at::kFloat : at::kInt).contiguous();
  Volume result;
  result.grid = fixed;
  result.name = moving.name;
  result.voxels = at::empty(fixed.size, source.options());

  const int64_t count = result.voxels.numel();
  const float* const u = shift.const_data_ptr<float>();
  const auto visit = [&](auto* voxels, const auto& read) {
    int64_t at = 0;
    for (int64_t d = 0; d < fixed.size[0]; ++d) {
      for (int64_t h = 0; h < fixed.size[1]; ++h) {
        for (int64_t w = 0; w < fixed.size[2]; ++w, ++at) {
          voxels[at] =
              read(Apply(map, {d + static_cast<double>(u[at]),
                               h + static_cast<double>(u[count + at]),
                               w + static_cast<double>(u[2 * count + at])}));
        }
      }
    }
  };
  if (linear) {
    const Reader<float> reader(source, fill);
    visit(result.voxels.mutable_data_ptr<float>(),
          [&](const auto& position) { return reader.Linear(position); });
  } else {
    const Reader<int32_t> reader(source, fill);
    visit(result.voxels.mutable_data_ptr<int32_t>(),
          [&](const auto& position) { return reader.Nearest(position); });
  }
  return result;
}

}  // namespace mir::data
