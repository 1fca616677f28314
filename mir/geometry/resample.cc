#include "mir/geometry/resample.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace mir::geometry {
namespace {

using Affine = std::array<std::array<double, 4>, 4>;
using Size = std::array<int64_t, 3>;

// The neighbours of a position along one axis, and the weight of the second.
struct Neighbours {
  int64_t low, high;
  double high_weight;
  int64_t nearest;
};

// Returns false where the position is outside.
bool Find(double position, int64_t size, Neighbours* found) {
  // Far outside first, so that what follows fits its types.
  if (!(position > -1 && position < static_cast<double>(size))) return false;
  constexpr double kSteps = 1 << 20;
  position = std::nearbyint(position * kSteps) / kSteps;
  // Half-open, as the nearest voxel of -0.5 is 0, and that of size - 0.5 none.
  if (position < -0.5 || position >= static_cast<double>(size) - 0.5) {
    return false;
  }
  found->nearest = static_cast<int64_t>(position + 0.5);
  position = std::min(std::max(position, 0.0), static_cast<double>(size - 1));
  found->low = static_cast<int64_t>(position);
  found->high = std::min(found->low + 1, size - 1);
  found->high_weight = position - static_cast<double>(found->low);
  return true;
}

template <typename T>
void Resample(const at::Tensor& volume, const Affine& affine,
              Interpolation interpolation, T fill, const at::Tensor& result) {
  const T* in = volume.const_data_ptr<T>();
  T* out = result.mutable_data_ptr<T>();
  const Size from = {volume.size(0), volume.size(1), volume.size(2)};
  const Size to = {result.size(0), result.size(1), result.size(2)};
  const auto value = [&](int64_t d, int64_t h, int64_t w) {
    return in[(d * from[1] + h) * from[2] + w];
  };
  // 0 * infinity must not reach a voxel that a neighbour has no part in.
  const auto mix = [](double low, double high, double high_weight) {
    return high_weight == 0 ? low
                            : (1 - high_weight) * low + high_weight * high;
  };
  const auto line = [&](int64_t d, int64_t h, const Neighbours& w) {
    return mix(static_cast<double>(value(d, h, w.low)),
               static_cast<double>(value(d, h, w.high)), w.high_weight);
  };
  const auto plane = [&](int64_t d, const Neighbours& h, const Neighbours& w) {
    return mix(line(d, h.low, w), line(d, h.high, w), h.high_weight);
  };
  at::parallel_for(
      0, to[0] * to[1], std::max<int64_t>(1, 8192 / to[2]),
      [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const auto d = static_cast<double>(row / to[1]);
          const auto h = static_cast<double>(row % to[1]);
          for (int64_t w = 0; w < to[2]; ++w) {
            std::array<Neighbours, 3> along;
            bool inside = true;
            for (int axis = 0; axis < 3 && inside; ++axis) {
              const auto& m = affine[axis];
              const double position =
                  m[0] * d + m[1] * h + m[2] * static_cast<double>(w) + m[3];
              inside = Find(position, from[axis], &along[axis]);
            }
            T& target = out[row * to[2] + w];
            if (!inside) {
              target = fill;
            } else if (interpolation == Interpolation::kNearest) {
              target =
                  value(along[0].nearest, along[1].nearest, along[2].nearest);
            } else {
              target =
                  static_cast<T>(mix(plane(along[0].low, along[1], along[2]),
                                     plane(along[0].high, along[1], along[2]),
                                     along[0].high_weight));
            }
          }
        }
      });
}

// `fill` as a T.
template <typename T>
T CheckFill(double fill) {
  if constexpr (std::is_integral_v<T>) {
    // The type's largest value may round up as a double: powers of two do not.
    const double limit = std::ldexp(1.0, std::numeric_limits<T>::digits);
    TORCH_CHECK_VALUE(
        fill == std::floor(fill) && fill < limit &&
            fill >= static_cast<double>(std::numeric_limits<T>::lowest()),
        "ResampleTo: wanted a fill that ", c10::CppTypeToScalarType<T>::value,
        " holds, came ", fill);
  }
  return static_cast<T>(fill);
}

void CheckArguments(const at::Tensor& volume, const Affine& affine,
                    at::IntArrayRef sizes, Interpolation interpolation) {
  TORCH_CHECK_VALUE(volume.defined(), "ResampleTo: volume is undefined");
  TORCH_CHECK_VALUE(volume.dim() == 3 && volume.numel() > 0,
                    "ResampleTo: wanted volume [D, H, W] with voxels, came ",
                    volume.sizes());
  TORCH_CHECK_VALUE(volume.is_cpu(),
                    "ResampleTo: wanted a volume on the CPU, came ",
                    volume.device());
  const at::ScalarType dtype = volume.scalar_type();
  TORCH_CHECK_VALUE(
      dtype == at::kByte || dtype == at::kChar || dtype == at::kShort ||
          dtype == at::kInt || dtype == at::kLong || dtype == at::kHalf ||
          dtype == at::kBFloat16 || dtype == at::kFloat || dtype == at::kDouble,
      "ResampleTo: wanted a volume of integer or floating dtype, came ", dtype);
  TORCH_CHECK_VALUE(
      interpolation == Interpolation::kNearest || at::isFloatingType(dtype),
      "ResampleTo: wanted a volume of floating dtype for "
      "kLinear, came ",
      dtype, "; resample labels with kNearest");
  bool positive = true;
  for (const int64_t size : sizes) positive &= size >= 1;
  TORCH_CHECK_VALUE(sizes.size() == 3 && positive,
                    "ResampleTo: wanted 3 sizes of at least 1, came ", sizes);
  bool finite = true;
  for (const auto& row : affine) {
    for (const double entry : row) finite &= std::isfinite(entry);
  }
  TORCH_CHECK_VALUE(finite,
                    "ResampleTo: wanted a finite result_to_volume, came an "
                    "entry that is NaN or infinite");
  TORCH_CHECK_VALUE(affine[3] == (std::array<double, 4>{0, 0, 0, 1}),
                    "ResampleTo: wanted 0, 0, 0, 1 as the last row of "
                    "result_to_volume, came ",
                    at::ArrayRef<double>(affine[3]));
}

}  // namespace

at::Tensor ResampleTo(const at::Tensor& volume, const Affine& result_to_volume,
                      at::IntArrayRef sizes, Interpolation interpolation,
                      double fill) {
  CheckArguments(volume, result_to_volume, sizes, interpolation);
  const at::Tensor source = volume.detach().contiguous();
  const at::Tensor result = at::empty(sizes, source.options());
  AT_DISPATCH_ALL_TYPES_AND2(
      at::kHalf, at::kBFloat16, source.scalar_type(), "ResampleTo", [&] {
        Resample<scalar_t>(source, result_to_volume, interpolation,
                           CheckFill<scalar_t>(fill), result);
      });
  return result;
}

}  // namespace mir::geometry
