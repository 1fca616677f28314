#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <string>

#include "mir/geometry/affine.h"
#include "mir/geometry/crop_or_pad.h"
#include "mir/geometry/grid_image.h"
#include "mir/geometry/patch_starts.h"
#include "mir/geometry/zoom.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

using ::mir::geometry::Interpolation;
using ::mir::geometry::Outside;
using ::mir::geometry::SplineOrder;

Handler AffineTransform(Interpolation interpolation) {
  return [=](GoldenRun& run) {
    const auto result = geometry::AffineTransformer(interpolation)(
        run.In("src"), run.In("affine"), run.In("scale"), run.In("translate"),
        run.In("shear"));
    run.Out("warped", result.warped);
    run.Out("mat", result.matrix);
    run.Out("inv_mat", result.inverse);
  };
}

void ApplyAffine(GoldenRun& run) {
  run.Out("warped", geometry::ApplyAffine(run.In("src"), run.In("mat")));
}

void AugmentAffine(GoldenRun& run) {
  const auto row = [&](const std::string& name) {
    return run.Arg(name).unsqueeze(0);
  };
  const at::Tensor matrix =
      geometry::AugmentationMatrix(row("angle"), row("scale"), row("trans"));
  run.Out("im",
          geometry::ApplyAffine(run.In("im"), matrix, Interpolation::kLinear,
                                Outside::kNearestEdge));
  run.Out("label", geometry::ApplyAffine(run.In("label"), matrix,
                                         Interpolation::kNearest,
                                         Outside::kNearestEdge));
}

// MIR's matrices are homogeneous.
void AugmentationMatrix(GoldenRun& run) {
  const auto row = [&](const std::string& name) {
    return run.In(name).unsqueeze(0);
  };
  const at::Tensor matrix =
      geometry::AugmentationMatrix(row("angle"), row("scale"), row("trans"));
  const at::Tensor last =
      at::tensor({0, 0, 0, 1}).to(matrix.scalar_type()).view({1, 1, 4});
  run.Out("matrix", at::cat({matrix, last}, /*dim=*/1));
}

Handler Resample(SplineOrder order) {
  return [=](GoldenRun& run) {
    const at::Tensor volume = run.In("x")[0][0];
    run.Out("out", geometry::Zoom(
                       volume,
                       geometry::SizesForSpacing(
                           volume.sizes(), {1.0, 1.2, 0.8}, {1.5, 1.0, 1.0}),
                       order));
  };
}

void CentreCropPad(GoldenRun& run) {
  run.Out("out", geometry::CropOrPad(run.In("x"), {5, 15, 14}));
  run.Out("half", geometry::CropOrPad(run.In("x"), {5, 15, 14}, 0.5));
}

void CropOrPad(GoldenRun& run) {
  run.Out("out", geometry::CropOrPad(run.In("x")[0][0], {5, 15, 14}, 0.25));
}

void PadImage(GoldenRun& run) {
  run.Out("out", geometry::PadAtEnd(run.In("x"), {11, 13, 15}));
}

void GridImage(GoldenRun& run) {
  for (int64_t axis = 0; axis < 3; ++axis) {
    run.Out("dim" + std::to_string(axis),
            geometry::GridImage({8, 10, 12}, 4, axis));
  }
}

void PatchStarts(GoldenRun& run) {
  run.Out("s0", at::tensor(geometry::PatchStarts(16, 8, 4)));
  run.Out("s1", at::tensor(geometry::PatchStarts(15, 8, 4)));
  run.Out("s2", at::tensor(geometry::PatchStarts(8, 8, 4)));
  run.Out("s3", at::tensor(geometry::PatchStarts(30, 12, 5)));
}

}  // namespace

HandlerTable ResamplingHandlers() {
  return {
      {"aug_affine", AugmentAffine},
      {"aug_affine_matrix", AugmentationMatrix},
      {"geo_affine_bilinear", AffineTransform(Interpolation::kLinear)},
      {"geo_affine_nearest", AffineTransform(Interpolation::kNearest)},
      {"geo_apply_affine", ApplyAffine},
      {"util_center_crop_pad", CentreCropPad},
      {"util_crop_or_pad", CropOrPad},
      {"util_grid_image", GridImage},
      {"util_pad_image", PadImage},
      {"util_patch_starts", PatchStarts},
      {"util_resample_order0", Resample(SplineOrder::kNearest)},
      {"util_resample_order1", Resample(SplineOrder::kLinear)},
      {"util_resample_order3", Resample(SplineOrder::kCubic)},
  };
}

}  // namespace mir::goldens
