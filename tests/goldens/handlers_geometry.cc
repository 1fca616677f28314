#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/replication_pad3d.h>

#include "mir/geometry/fit_velocity.h"
#include "mir/geometry/match_neighbours.h"
#include "mir/geometry/spatial_transformer.h"
#include "mir/geometry/vec_int.h"
#include "mir/geometry/vfa_sampling.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

using ::mir::geometry::Interpolation;
using ::mir::geometry::Outside;
using ::mir::geometry::WarpConvention;
using ::mir::geometry::WarpOptions;

Handler Transform(Interpolation interpolation, Outside outside) {
  return [=](GoldenRun& run) {
    const geometry::SpatialTransformer transform(
        WarpOptions{WarpConvention::kMirCompatible, interpolation, outside});
    run.Out("warped", transform(run.In("src"), run.In("flow")));
  };
}

Handler Integrate(int steps) {
  return [=](GoldenRun& run) {
    run.Out("flow", geometry::VecInt(run.In("vec"), steps,
                                     WarpConvention::kMirCompatible));
  };
}

// MIR's arguments for every fit.
geometry::FitVelocityOptions FitOptions() {
  geometry::FitVelocityOptions options;
  options.steps = 5;
  options.iterations = 10;
  options.smallest_change = 0;
  options.convention = WarpConvention::kMirCompatible;
  return options;
}

void FitSvfMse(GoldenRun& run) {
  run.Out("out", geometry::FitVelocity(run.In("warp"), FitOptions()).velocity);
}

void FitSvfL1(GoldenRun& run) {
  geometry::FitVelocityOptions options = FitOptions();
  options.objective = geometry::FitObjective::kMeanAbsolute;
  run.Out("out", geometry::FitVelocity(run.In("warp"), options).displacement);
}

geometry::FitVelocityFastOptions FastOptions(int coarse, int fine) {
  geometry::FitVelocityFastOptions options;
  options.coarse_iterations = coarse;
  options.fine_iterations = fine;
  options.smallest_change = 0;
  options.convention = WarpConvention::kMirCompatible;
  return options;
}

void FitSvfFast(GoldenRun& run) {
  run.Out("out", geometry::FitVelocityFast(run.In("warp"), FastOptions(8, 4)));
}

void FitSvfFastFullSize(GoldenRun& run) {
  geometry::FitVelocityFastOptions options = FastOptions(6, 0);
  options.downsampling = 1;
  run.Out("out",
          geometry::VecInt(geometry::FitVelocityFast(run.In("warp"), options),
                           options.steps, options.convention));
}

void InvertWarp(GoldenRun& run) {
  run.Out("out", geometry::InvertViaVelocity(run.In("warp"), FitOptions()));
}

void EnsembleAverage(GoldenRun& run) {
  geometry::FitVelocityOptions options = FitOptions();
  options.smallest_change = 1e-5;
  run.Out("flow", geometry::EnsembleAverage(
                      {{run.In("svf"), /*is_velocity=*/true, 0.45},
                       {run.In("disp1"), /*is_velocity=*/false, 0.35},
                       {run.In("disp2"), /*is_velocity=*/false, 0.2}},
                      options)
                      .squeeze(0));
}

at::Tensor IdentityLike(const at::Tensor& field, bool normalized = false,
                        int64_t padding = 0) {
  return geometry::IdentityGrid(field.sizes().slice(2), normalized, padding);
}

void VfaIdentityGrids(GoldenRun& run) {
  const at::Tensor flow = run.In("flow");
  run.Out("voxel", IdentityLike(flow));
  run.Out("normed", IdentityLike(flow, /*normalized=*/true));
  run.Out("padded", IdentityLike(flow, /*normalized=*/false, /*padding=*/1));
}

Handler OnGrid(at::Tensor (*function)(const at::Tensor& grid)) {
  return [=](GoldenRun& run) {
    const at::Tensor flow = run.In("flow");
    run.Out("out", function(flow + IdentityLike(flow)));
  };
}

void VfaGridSampler(GoldenRun& run) {
  const at::Tensor flow = run.In("flow");
  run.Out("out",
          geometry::SampleAtGrid(run.In("source"), flow + IdentityLike(flow)));
}

void VfaAttention(GoldenRun& run) {
  const at::Tensor moving =
      at::replication_pad3d(run.In("m"), {1, 1, 1, 1, 1, 1});
  run.Out("R", geometry::NeighbourOffsets(3));
  run.Out("candidates", geometry::Neighbourhoods(moving));
  run.Out("out", geometry::MatchNeighbours(run.In("f"), moving));
}

}  // namespace

HandlerTable GeometryHandlers() {
  const Handler linear = Transform(Interpolation::kLinear, Outside::kZero);
  const Handler nearest = Transform(Interpolation::kNearest, Outside::kZero);
  return {
      {"geo_ensemble_average", EnsembleAverage},
      {"geo_fit_svf_fast", FitSvfFast},
      {"geo_fit_svf_fast_nods", FitSvfFastFullSize},
      {"geo_fit_svf_l1_disp", FitSvfL1},
      {"geo_fit_svf_mse", FitSvfMse},
      {"geo_invert_warp", InvertWarp},
      {"geo_stn_2d", linear},
      {"geo_stn_bilinear", linear},
      {"geo_stn_bilinear_b2c2", linear},
      {"geo_stn_border",
       Transform(Interpolation::kLinear, Outside::kNearestEdge)},
      {"geo_stn_labels_nearest", nearest},
      {"geo_stn_nearest", nearest},
      {"geo_stn_reflection",
       Transform(Interpolation::kLinear, Outside::kReflect)},
      {"geo_stn_utils", linear},
      {"geo_vecint_0", Integrate(0)},
      {"geo_vecint_5", Integrate(5)},
      {"geo_vecint_7", Integrate(7)},
      {"geo_vfa_attention", VfaAttention},
      {"geo_vfa_grid_sampler", VfaGridSampler},
      {"geo_vfa_grid_to_flow",
       [](GoldenRun& run) {
         run.Out("out", geometry::GridToDisplacement(run.In("flow")));
       }},
      {"geo_vfa_grid_upsample", OnGrid([](const at::Tensor& grid) {
         return geometry::UpsampleGrid(grid);
       })},
      {"geo_vfa_identity_grids", VfaIdentityGrids},
      {"geo_vfa_normalize_grid", OnGrid(geometry::NormalizeGrid)},
  };
}

}  // namespace mir::goldens
