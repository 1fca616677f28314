#include "mir/models/vfa/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/replication_pad2d.h>
#include <ATen/ops/replication_pad3d.h>

#include <string>

#include "mir/geometry/match_neighbours.h"
#include "mir/geometry/vfa_sampling.h"
#include "mir/models/layers/weights.h"
#include "mir/precision/fp32_region.h"
#include "mir/precision/op_fallback.h"

namespace mir::models {
namespace {

// One voxel more on each side, the nearest one.
at::Tensor Padded(const at::Tensor& x) {
  if (x.dim() == 4) return at::replication_pad2d(x, {1, 1, 1, 1});
  return precision::WithFallback(
      precision::Op::kReplicationPad3d,
      [](const at::Tensor& volumes) {
        return at::replication_pad3d(volumes, {1, 1, 1, 1, 1, 1});
      },
      x);
}

at::Tensor Identity(const at::Tensor& grid) {
  return geometry::IdentityGrid(grid.sizes().slice(2)).to(grid.options());
}

}  // namespace

VfaDecoder::VfaDecoder(const VfaDecoderOptions& options)
    : torch::nn::Module("VfaDecoder"), options_(options) {
  beta_ = register_parameter("beta", NewWeight({1}));
  InitConstant(beta_, options.initialize);
  const auto project =
      register_module("project", std::make_shared<torch::nn::Module>());
  for (size_t level = 0; level < options.features.size(); ++level) {
    project_.push_back(AddConvolution(*project, std::to_string(level),
                                      options.block, options.features[level],
                                      options.matched[level]));
  }
}

std::vector<at::Tensor> VfaDecoder::forward(
    const std::vector<at::Tensor>& fixed, const std::vector<at::Tensor>& moving,
    const at::Tensor& embedding) const {
  std::vector<at::Tensor> grids;
  for (size_t level = fixed.size(); level-- > 0;) {
    if (!grids.empty()) grids.back() = geometry::UpsampleGrid(grids.back());
    if (level == 0 && options_.skip) {
      grids.push_back(
          geometry::SampleAtGrid(grids.back(), Identity(grids.back())));
      break;
    }
    const ConditionedConvolution& project = *project_[level];
    const at::Tensor queries = project.Convolve(fixed[level], embedding);
    const at::Tensor seen =
        grids.empty() ? moving[level]
                      : geometry::SampleAtGrid(moving[level], grids.back());
    const at::Tensor keys = project.Convolve(Padded(seen), embedding);

    const precision::Fp32Region in_float32;
    const at::Tensor offsets = geometry::MatchNeighbours(queries, keys);
    at::Tensor grid = offsets * beta_.to(offsets.scalar_type());
    if (options_.integration_steps > 0) {
      grid =
          grid / static_cast<double>(int64_t{1} << options_.integration_steps);
    }
    grid = grid + Identity(offsets);
    for (int64_t step = 0; step < options_.integration_steps; ++step) {
      grid = geometry::SampleAtGrid(grid, grid);
    }
    grids.push_back(grids.empty() ? grid
                                  : geometry::SampleAtGrid(grids.back(), grid));
  }
  return grids;
}

}  // namespace mir::models
