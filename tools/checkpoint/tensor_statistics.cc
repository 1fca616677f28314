#include "tools/checkpoint/tensor_statistics.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

namespace mir::tools {
namespace {

constexpr int64_t kAtOnce = 1 << 20;

// Calls `body` with pieces of tensors of one shape, which together are all of
// them.
void ForPieces(
    const std::vector<at::Tensor>& tensors,
    const std::function<void(const std::vector<at::Tensor>&)>& body) {
  const at::Tensor& first = tensors[0];
  if (first.numel() <= kAtOnce) {
    body(tensors);
    return;
  }
  // Along the longest axis: views need no copy.
  int64_t axis = 0;
  for (int64_t i = 1; i < first.dim(); ++i) {
    if (first.size(i) > first.size(axis)) axis = i;
  }
  const int64_t length = first.size(axis);
  const int64_t others = first.numel() / length;
  const int64_t piece = std::max<int64_t>(1, kAtOnce / others);
  for (int64_t begin = 0; begin < length; begin += piece) {
    std::vector<at::Tensor> pieces;
    pieces.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      pieces.push_back(
          tensor.narrow(axis, begin, std::min(piece, length - begin)));
    }
    ForPieces(pieces, body);
  }
}

// In a type that ATen computes in, and that holds all values (but of uint64,
// which lose digits above 2^53).
at::Tensor Computable(const at::Tensor& tensor) {
  if (tensor.is_complex()) return tensor.to(at::kComplexDouble);
  if (c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) &&
      tensor.scalar_type() != at::kUInt64) {
    return tensor.to(at::kLong);
  }
  return tensor.to(at::kDouble);
}

// One element for each that the tensor repeats, as an expanded one does.
at::Tensor WithoutRepeats(at::Tensor tensor) {
  for (int64_t axis = 0; axis < tensor.dim(); ++axis) {
    if (tensor.stride(axis) == 0 && tensor.size(axis) > 1) {
      tensor = tensor.narrow(axis, 0, 1);
    }
  }
  return tensor;
}

}  // namespace

TensorStatistics StatisticsOf(const at::Tensor& tensor) {
  TensorStatistics statistics;
  if (tensor.numel() == 0) return statistics;
  const at::Tensor once = WithoutRepeats(tensor);
  ForPieces({once}, [&](const std::vector<at::Tensor>& pieces) {
    const at::Tensor values = Computable(pieces[0]);
    if (!values.is_floating_point() && !values.is_complex()) {
      const auto [low, high] = at::aminmax(values);
      const int64_t minimum = low.item<int64_t>();
      const int64_t maximum = high.item<int64_t>();
      if (statistics.minimum.is_null() ||
          minimum < statistics.minimum.get<int64_t>()) {
        statistics.minimum = minimum;
      }
      if (statistics.maximum.is_null() ||
          maximum > statistics.maximum.get<int64_t>()) {
        statistics.maximum = maximum;
      }
      return;
    }
    const at::Tensor finite = at::isfinite(values);
    const int64_t count = finite.sum().item<int64_t>();
    statistics.nonfinite += values.numel() - count;
    if (values.is_complex() || count == 0) return;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double minimum =
        at::where(finite, values, at::full_like(values, kInfinity))
            .min()
            .item<double>();
    const double maximum =
        at::where(finite, values, at::full_like(values, -kInfinity))
            .max()
            .item<double>();
    if (statistics.minimum.is_null() ||
        minimum < statistics.minimum.get<double>()) {
      statistics.minimum = minimum;
    }
    if (statistics.maximum.is_null() ||
        maximum > statistics.maximum.get<double>()) {
      statistics.maximum = maximum;
    }
  });
  statistics.nonfinite *= tensor.numel() / once.numel();
  return statistics;
}

TensorDifference DifferenceOf(const at::Tensor& a, const at::Tensor& b) {
  TensorDifference difference;
  difference.bit_equal = a.scalar_type() == b.scalar_type();
  if (a.numel() == 0) return difference;
  ForPieces({a, b}, [&](const std::vector<at::Tensor>& pieces) {
    const at::Tensor bytes_a = pieces[0].contiguous();
    const at::Tensor bytes_b = pieces[1].contiguous();
    if (a.scalar_type() == b.scalar_type() &&
        std::memcmp(bytes_a.const_data_ptr(), bytes_b.const_data_ptr(),
                    bytes_a.nbytes()) == 0) {
      return;
    }
    difference.bit_equal = false;
    at::Tensor one = Computable(bytes_a);
    at::Tensor other = Computable(bytes_b);
    if (one.scalar_type() != other.scalar_type()) {
      const at::ScalarType common = one.is_complex() || other.is_complex()
                                        ? at::kComplexDouble
                                        : at::kDouble;
      one = one.to(common);
      other = other.to(common);
    }
    const at::Tensor same = at::logical_or(
        at::eq(one, other), at::logical_and(at::isnan(one), at::isnan(other)));
    difference.different += one.numel() - same.sum().item<int64_t>();
    at::Tensor distance = at::abs(one.sub(other)).to(at::kDouble);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    distance = at::where(at::isnan(distance),
                         at::full_like(distance, kInfinity), distance);
    distance = at::where(same, at::full_like(distance, 0.0), distance);
    difference.largest =
        std::max(difference.largest, distance.max().item<double>());
  });
  return difference;
}

}  // namespace mir::tools
