#include "mir/data/random.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace mir::data {
namespace {

constexpr uint64_t kStep = 0x9E3779B97F4A7C15;

uint64_t Mix(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
  return bits ^ (bits >> 31);
}

std::array<float, 4> CubicWeights(double t) {
  const double s = 1 - t;
  return {static_cast<float>(s * s * s / 6),
          static_cast<float>((3 * t * t * t - 6 * t * t + 4) / 6),
          static_cast<float>((3 * s * s * s - 6 * s * s + 4) / 6),
          static_cast<float>(t * t * t / 6)};
}

// The mean over t of the weights' squares: what interpolation leaves of the
// variance of independent coefficients, per axis.
constexpr double kVarianceKept = 151.0 / 315.0;

// Evaluates the spline along one axis: [outer, knots, inner] coefficients to
// [outer, size, inner].
std::vector<float> Interpolate(const std::vector<float>& knots, int64_t outer,
                               int64_t knot_count, int64_t inner, int64_t size,
                               double knot_spacing, float* result) {
  std::vector<float> own;
  if (result == nullptr) {
    own.resize(outer * size * inner);
    result = own.data();
  }
  for (int64_t x = 0; x < size; ++x) {
    const double position = x / knot_spacing;
    const int64_t first = static_cast<int64_t>(position);
    const auto [a, b, c, d] = CubicWeights(position - first);
    for (int64_t o = 0; o < outer; ++o) {
      const float* from = &knots[(o * knot_count + first) * inner];
      float* to = result + (o * size + x) * inner;
      for (int64_t i = 0; i < inner; ++i) {
        to[i] = a * from[i] + b * from[i + inner] + c * from[i + 2 * inner] +
                d * from[i + 3 * inner];
      }
    }
  }
  return own;
}

}  // namespace

RandomStream::RandomStream(std::initializer_list<uint64_t> key) : state_(0) {
  for (const uint64_t part : key) state_ = Mix(state_ + kStep + Mix(part));
}

uint64_t RandomStream::Next() { return Mix(state_ += kStep); }

double RandomStream::Uniform(double low, double high) {
  return low + (high - low) * static_cast<double>(Next() >> 11) * 0x1p-53;
}

int64_t RandomStream::Below(int64_t count) {
  return std::min(count - 1, static_cast<int64_t>(Uniform(0, count)));
}

float RandomStream::Normal() {
  const uint64_t bits = Next();
  const int64_t sum = static_cast<int64_t>(bits & 0xFFFF) +
                      static_cast<int64_t>((bits >> 16) & 0xFFFF) +
                      static_cast<int64_t>((bits >> 32) & 0xFFFF) +
                      static_cast<int64_t>(bits >> 48) - 2 * 0xFFFF;
  constexpr float kScale = 1.7320508f / 0xFFFF;  // The sum's variance is 1/3.
  return static_cast<float>(sum) * kScale;
}

at::Tensor SmoothRandomField(at::IntArrayRef size, double knot_spacing,
                             RandomStream& random) {
  TORCH_CHECK_VALUE(size.size() >= 1 && size.size() <= 3 &&
                        *std::min_element(size.begin(), size.end()) >= 1,
                    "wanted a size of one to three axes, each 1 or more; got ",
                    size);
  TORCH_CHECK_VALUE(knot_spacing >= 1,
                    "wanted a knot spacing of at least a voxel, got ",
                    knot_spacing);
  std::array<int64_t, 3> sizes = {1, 1, 1};
  std::copy_backward(size.begin(), size.end(), sizes.end());
  std::array<int64_t, 3> knots;
  double variance = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const bool flat = axis < 3 - static_cast<int>(size.size());
    knots[axis] =
        flat ? 1 : static_cast<int64_t>((sizes[axis] - 1) / knot_spacing) + 4;
    if (!flat) variance *= kVarianceKept;
  }

  std::vector<float> field(knots[0] * knots[1] * knots[2]);
  const float scale = static_cast<float>(1 / std::sqrt(variance));
  for (float& coefficient : field) coefficient = scale * random.Normal();

  // The last axis first: the long loops then run over adjacent voxels.
  at::Tensor result = at::empty(size, at::kFloat);
  int64_t outer = knots[0] * knots[1], inner = 1;
  for (int axis = 2; axis >= 3 - static_cast<int>(size.size()); --axis) {
    const bool last = axis == 3 - static_cast<int>(size.size());
    field =
        Interpolate(field, outer, knots[axis], inner, sizes[axis], knot_spacing,
                    last ? result.mutable_data_ptr<float>() : nullptr);
    inner *= sizes[axis];
    if (axis > 0) outer /= knots[axis - 1];
  }
  return result;
}

}  // namespace mir::data
