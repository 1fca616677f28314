#include "mir/models/voxelmorph/hyper_vxm_dense.h"

#include <ATen/ops/cat.h>
#include <c10/util/Exception.h>

#include "absl/strings/str_cat.h"
#include "mir/geometry/warp.h"
#include "mir/models/identity_grid.h"
#include "mir/models/layers/image_pair.h"
#include "mir/models/voxelmorph/unet.h"

namespace mir::models {
namespace {

constexpr int64_t kUnits = 128;
constexpr double kNegativeSlope = 0.2;

HyperConvolutionOptions Options(int64_t ndims, int64_t in_channels,
                                int64_t out_channels) {
  HyperConvolutionOptions options;
  options.convolution.ndims = ndims;
  options.convolution.in_channels = in_channels;
  options.convolution.out_channels = out_channels;
  options.units = kUnits;
  return options;
}

// A hyper-convolution and a leaky ReLU; the parameters have no prefix.
class HyperBlock : public HyperConvolution {
 public:
  HyperBlock(int64_t ndims, int64_t in_channels, int64_t out_channels,
             int64_t stride)
      : HyperConvolution([&] {
          HyperConvolutionOptions options =
              Options(ndims, in_channels, out_channels);
          options.convolution.stride = stride;
          return options;
        }()) {}

  at::Tensor forward(const std::vector<at::Tensor>& features,
                     const at::Tensor& embedding) const {
    return HyperConvolution::forward(features, embedding, kNegativeSlope);
  }
};

}  // namespace

class HyperVxmDense::Unet : public VxmUnet<HyperBlock> {
  using VxmUnet::VxmUnet;
};

HyperVxmDense::HyperVxmDense(const VxmDenseConfig& config) : config_(config) {
  const std::string fault = FaultOf(config);
  TORCH_CHECK_VALUE(fault.empty(), fault);
  hyper_model_ = register_module(
      "hyper_model",
      std::make_shared<HyperEmbedding>(/*hyperparameters=*/1, kUnits));
  unet_model_ = register_module("unet_model", std::make_shared<Unet>(config));
  const int64_t ndims = config.image_size.size();
  HyperConvolutionOptions options =
      Options(ndims, config.decoder_features.back(), ndims);
  options.near_zero = true;  // Training starts near the identity.
  flow_ = register_module("flow", std::make_shared<HyperConvolution>(options));
  if (config.warp_output) {
    register_module("spatial_trans",
                    std::make_shared<IdentityGrid>(config.image_size));
  }
}

at::Tensor HyperVxmDense::Displacement(
    const at::Tensor& moving, const at::Tensor& fixed,
    const at::Tensor& hyperparameters) const {
  CheckImagePair({.model = "HyperVxmDense",
                  .multiple = SizeMultiple(),
                  .weights = parameters().front().scalar_type()},
                 moving, fixed);
  const at::Tensor embedding =
      hyper_model_->forward(hyperparameters.to(moving.device()));
  return flow_->forward(
      unet_model_->forward(at::cat({moving, fixed}, /*dim=*/1), embedding),
      embedding);
}

VxmDense::Output HyperVxmDense::Forward(const at::Tensor& moving,
                                        const at::Tensor& fixed,
                                        const at::Tensor& hyperparameters) {
  VxmDense::Output output;
  output.displacement = Displacement(moving, fixed, hyperparameters);
  if (config_.warp_output) {
    geometry::WarpOptions options;
    options.convention = geometry::WarpConvention::kMirCompatible;
    output.warped = geometry::Warp(moving, output.displacement, options);
  }
  return output;
}

Registration HyperVxmDense::Register(const at::Tensor& moving,
                                     const at::Tensor& fixed) {
  const at::Tensor displacement =
      Displacement(moving, fixed, HyperparameterRow());
  return {.displacement = displacement,
          .regularized = displacement,
          .hyperparameters = hyperparameters()};
}

std::vector<int64_t> HyperVxmDense::SizeMultiple() const {
  return std::vector<int64_t>(config_.image_size.size(),
                              int64_t{1} << config_.encoder_features.size());
}

std::vector<std::string> HyperVxmDense::DerivedKeys() const {
  return {absl::StrCat("spatial_trans.", IdentityGrid::kKey)};
}

}  // namespace mir::models
