#include "mir/testing/fill.h"

#include <ATen/ops/empty.h>

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace mir::testing {
namespace {

constexpr uint64_t kFnvOffset = 0xcbf29ce484222325;
constexpr uint64_t kFnvPrime = 0x100000001b3;

// SplitMix64's constants, by Steele, Lea and Flood.
constexpr uint64_t kIncrement = 0x9E3779B97F4A7C15;
constexpr uint64_t kFirstMultiplier = 0xBF58476D1CE4E5B9;
constexpr uint64_t kSecondMultiplier = 0x94D049BB133111EB;
constexpr uint64_t kSeedMultiplier = 0xD1B54A32D192ED03;

// A tensor of `value(u)`, u the sequence of `name`.
template <typename Value>
at::Tensor Generate(absl::string_view name, const std::vector<int64_t>& shape,
                    uint64_t seed, const Value& value) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  float* const elements = tensor.mutable_data_ptr<float>();
  const uint64_t hash = Fnv1a64(name);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    elements[i] = static_cast<float>(value(UniformValue(hash, i, seed)));
  }
  return tensor;
}

}  // namespace

uint64_t Fnv1a64(absl::string_view text) {
  uint64_t hash = kFnvOffset;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  }
  return hash;
}

double UniformValue(uint64_t name_hash, uint64_t index, uint64_t seed) {
  uint64_t x = (name_hash + index) ^ (seed * kSeedMultiplier);
  x += kIncrement;
  x = (x ^ (x >> 30)) * kFirstMultiplier;
  x = (x ^ (x >> 27)) * kSecondMultiplier;
  x ^= x >> 31;
  return std::ldexp(static_cast<double>(x >> 40), -23) - 1;
}

at::Tensor FillValues(absl::string_view name, const std::vector<int64_t>& shape,
                      double gain, uint64_t seed) {
  double offset = 0, scale = gain * 0.1;
  bool absolute = false;
  if (shape.size() >= 2) {
    double fan_in = 1;
    for (size_t axis = 1; axis < shape.size(); ++axis) fan_in *= shape[axis];
    scale = gain * std::sqrt(1 / fan_in);
  } else if (absl::EndsWith(name, "running_var")) {
    offset = 1;
    scale = gain * 0.5;
    absolute = true;
  } else if (absl::EndsWith(name, "running_mean")) {
    // As any other.
  } else if (shape.size() == 1 && absl::EndsWith(name, ".weight")) {
    offset = 1;
  }
  return Generate(name, shape, seed, [&](double u) {
    return offset + (absolute ? std::abs(u) : u) * scale;
  });
}

at::Tensor Cotangent(absl::string_view output_name,
                     const std::vector<int64_t>& shape, uint64_t seed) {
  return Generate(absl::StrCat("cotangent/", output_name), shape, seed,
                  [](double u) { return u; });
}

}  // namespace mir::testing
