#include "mir/data/synthetic_source.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/catch_torch.h"
#include "mir/data/random.h"
#include "mir/data/random_deformation.h"
#include "mir/geometry/warp.h"

namespace mir::data {
namespace {

constexpr uint64_t kTrainingStream = 1;
constexpr uint64_t kValidationStream = 2;

double MeanSize(at::IntArrayRef size) {
  return std::accumulate(size.begin(), size.end(), 0.0) / size.size();
}

// Regions 1 to `labels` in an ellipsoid with a wavy surface; [size...] int32.
at::Tensor RandomRegions(at::IntArrayRef size, int64_t labels,
                         RandomStream& random) {
  const double scale = MeanSize(size);
  at::Tensor regions = at::zeros(size, at::kInt);
  at::Tensor best = SmoothRandomField(size, scale / 5, random);
  int32_t* const region = regions.mutable_data_ptr<int32_t>();
  float* const highest = best.mutable_data_ptr<float>();
  std::fill(region, region + regions.numel(), 1);
  for (int64_t label = 2; label <= labels; ++label) {
    const at::Tensor field = SmoothRandomField(size, scale / 5, random);
    const float* const value = field.const_data_ptr<float>();
    for (int64_t voxel = 0; voxel < field.numel(); ++voxel) {
      if (value[voxel] > highest[voxel]) {
        highest[voxel] = value[voxel];
        region[voxel] = static_cast<int32_t>(label);
      }
    }
  }

  // Squared distance from the centre in radii, per axis.
  std::array<std::vector<float>, 3> distance;
  for (int axis = 0; axis < 3; ++axis) {
    const int from = axis + static_cast<int>(size.size()) - 3;
    const int64_t along = from < 0 ? 1 : size[from];
    const double centre = (along - 1) / 2.0 + along * random.Uniform(-.03, .03);
    const double radius = along * random.Uniform(.36, .43);
    for (int64_t x = 0; x < along; ++x) {
      const double in_radii = along == 1 ? 0 : (x - centre) / radius;
      distance[axis].push_back(static_cast<float>(in_radii * in_radii));
    }
  }
  const at::Tensor waves = SmoothRandomField(size, scale / 4, random);
  const float* wave = waves.const_data_ptr<float>();
  int32_t* voxel = region;
  for (const float d : distance[0]) {
    for (const float h : distance[1]) {
      for (const float w : distance[2]) {
        if (d + h + w + 0.08f * *wave++ > 1) *voxel = 0;
        ++voxel;
      }
    }
  }
  return regions;
}

// Averages neighbours with weights 1, 2, 1 along each axis, as voxels of a
// scanner do across a border.
void Soften(at::Tensor& image) {
  for (int64_t axis = 0; axis < image.dim(); ++axis) {
    const int64_t size = image.size(axis);
    if (size < 2) continue;
    const int64_t inner = image.stride(axis);
    const int64_t outer = image.numel() / (size * inner);
    std::vector<float> before(inner), now(inner);
    float* const data = image.mutable_data_ptr<float>();
    for (int64_t o = 0; o < outer; ++o) {
      float* row = data + o * size * inner;
      std::copy(row, row + inner, before.begin());
      for (int64_t x = 0; x < size; ++x, row += inner) {
        const float* const after = x + 1 < size ? row + inner : row;
        std::copy(row, row + inner, now.begin());
        for (int64_t i = 0; i < inner; ++i) {
          row[i] = 0.25f * before[i] + 0.5f * now[i] + 0.25f * after[i];
        }
        before.swap(now);
      }
    }
  }
}

// Grey values that differ between regions, and a texture that moves with them.
at::Tensor Paint(const at::Tensor& regions, int64_t labels,
                 RandomStream& random) {
  std::vector<float> grey(labels + 1, 0.f);
  for (int64_t label = 1; label <= labels; ++label) {
    grey[label] = static_cast<float>(
        0.25 + 0.65 * (label - 1 + random.Uniform(.2, .8)) / labels);
  }
  for (int64_t label = labels; label > 1; --label) {
    std::swap(grey[label], grey[1 + random.Below(label)]);
  }
  at::Tensor image = SmoothRandomField(
      regions.sizes(), std::max(2.0, MeanSize(regions.sizes()) / 16), random);
  float* const value = image.mutable_data_ptr<float>();
  const int32_t* const region = regions.const_data_ptr<int32_t>();
  for (int64_t voxel = 0; voxel < image.numel(); ++voxel) {
    value[voxel] =
        region[voxel] == 0 ? 0.f : grey[region[voxel]] + 0.04f * value[voxel];
  }
  Soften(image);
  return image;
}

void AddNoise(at::Tensor& image, RandomStream& random) {
  float* const value = image.mutable_data_ptr<float>();
  for (int64_t voxel = 0; voxel < image.numel(); ++voxel) {
    value[voxel] =
        std::clamp(value[voxel] + 0.015f * random.Normal(), 0.f, 1.f);
  }
}

Pair MakePair(const SyntheticOptions& options, RandomStream& random) {
  const at::Tensor regions =
      RandomRegions(options.size, options.labels, random);
  at::Tensor fixed = Paint(regions, options.labels, random);

  const double scale = MeanSize(options.size);
  DeformationOptions deformation;
  deformation.amplitude_voxels = options.deformation * scale;
  deformation.smoothness_voxels = scale / 3;
  const at::Tensor displacement =
      RandomDiffeomorphism(options.size, deformation, random);
  const auto batched = [](const at::Tensor& volume) {
    return volume.unsqueeze(0).unsqueeze(0);
  };
  at::Tensor moving =
      geometry::Warp(batched(fixed), displacement).squeeze(0).contiguous();
  AddNoise(fixed, random);
  AddNoise(moving, random);

  Pair pair;
  pair.fixed = fixed.unsqueeze(0);
  pair.moving = moving;
  pair.fixed_labels = regions.unsqueeze(0);
  pair.moving_labels =
      geometry::WarpLabels(batched(regions), displacement).squeeze(0);
  return pair;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SyntheticSource>> SyntheticSource::Make(
    const SyntheticOptions& options) {
  const auto wanted = [](absl::string_view what, const auto& got) {
    return absl::InvalidArgumentError(
        absl::StrCat("synthetic data: wanted ", what, ", got ", got));
  };
  const std::vector<int64_t>& size = options.size;
  if (size.size() < 2 || size.size() > 3 ||
      *std::min_element(size.begin(), size.end()) < 8 ||
      *std::max_element(size.begin(), size.end()) > 1024) {
    return wanted("a size of two or three axes, each 8 to 1024",
                  absl::StrJoin(size, "x"));
  }
  if (options.count < 1) return wanted("at least 1 pair", options.count);
  if (options.labels < 1 || options.labels > 255) {
    return wanted("1 to 255 labels", options.labels);
  }
  if (!(options.deformation >= 0 && options.deformation <= 0.2)) {
    return wanted("a deformation of 0 to 0.2 of the size", options.deformation);
  }
  return std::unique_ptr<SyntheticSource>(new SyntheticSource(options));
}

absl::StatusOr<Pair> SyntheticSource::Get(int64_t epoch, int64_t index) const {
  if (epoch < 0 || index < 0 || index >= options_.count) {
    return absl::OutOfRangeError(absl::StrCat("synthetic data: no pair ", index,
                                              " in epoch ", epoch,
                                              "; there are ", options_.count));
  }
  const c10::NoGradGuard no_grad;
  RandomStream random(
      {options_.seed, options_.validation ? kValidationStream : kTrainingStream,
       options_.validation ? 0 : static_cast<uint64_t>(epoch),
       static_cast<uint64_t>(index)});
  Pair pair;
  const absl::Status status = CatchTorch([&] {
    pair = MakePair(options_, random);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  pair.name = options_.validation
                  ? absl::StrCat("synthetic validation pair ", index)
                  : absl::StrCat("synthetic pair ", index, " of epoch ", epoch);
  return pair;
}

}  // namespace mir::data
