#include "mir/models/transmorph/transmorph_base.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/clamp.h>
#include <c10/util/Exception.h>

#include "mir/geometry/vec_int.h"
#include "mir/models/identity_grid.h"
#include "mir/models/layers/weights.h"
#include "mir/models/swin/make_backbone.h"
#include "mir/precision/op_fallback.h"

namespace mir::models {
namespace {

constexpr double kFlowDeviation = 1e-5;
constexpr double kFarthest = 100;  // Voxels.

// Stands where MIR registers its VecInt.
class VecIntGrid : public torch::nn::Module {
 public:
  explicit VecIntGrid(const std::vector<int64_t>& image_size)
      : torch::nn::Module("VecInt") {
    register_module("transformer", std::make_shared<IdentityGrid>(image_size));
  }
};

std::vector<int64_t> Scaled(std::vector<int64_t> sizes, int64_t scale) {
  for (int64_t& size : sizes) size *= scale;
  return sizes;
}

}  // namespace

RegistrationHead::RegistrationHead(int64_t in_channels)
    : torch::nn::Module("RegistrationHead") {
  ConvolutionOptions options;
  options.in_channels = in_channels;
  options.out_channels = 3;
  convolution_ = register_module("0", std::make_shared<Convolution>(options));
  InitNormal(convolution_->weight, 0, kFlowDeviation);
  InitConstant(convolution_->bias, 0);
}

at::Tensor RegistrationHead::forward(const at::Tensor& features) const {
  return convolution_->forward(features);
}

TransMorphBase::TransMorphBase(const char* name, const TransMorphConfig& config,
                               TransMorphKind kind)
    : name_(name), config_(config) {
  const std::string fault = FaultOf(config, kind);
  TORCH_CHECK_VALUE(fault.empty(), name, ": ", fault);
}

std::vector<int64_t> TransMorphBase::SizeMultiple() const {
  return {16, 16, 16};
}

void TransMorphBase::RegisterTransformer() {
  transformer_ = register_module("transformer",
                                 MakeBackbone(config_.swin_type, config_.swin));
}

void TransMorphBase::RegisterTrunk() {
  RegisterTransformer();
  const int64_t features = config_.swin.embed_dim;
  const auto skip = [&](int64_t channels) {
    return config_.if_transskip ? channels : 0;
  };
  up0_ = register_module(
      "up0", std::make_shared<DecoderBlock>(4 * features, 2 * features,
                                            skip(2 * features)));
  up1_ = register_module("up1", std::make_shared<DecoderBlock>(
                                    2 * features, features, skip(features)));
  up2_ =
      register_module("up2", std::make_shared<DecoderBlock>(
                                 features, features / 2, skip(features / 2)));
}

void TransMorphBase::RegisterSpatialTransformer(const std::string& name,
                                                int64_t scale) {
  register_module(name, std::make_shared<IdentityGrid>(
                            Scaled(config_.swin.img_size, scale)));
  derived_keys_.push_back(name + "." + IdentityGrid::kKey);
}

void TransMorphBase::RegisterVecInt(const std::string& name, int64_t scale) {
  register_module(
      name, std::make_shared<VecIntGrid>(Scaled(config_.swin.img_size, scale)));
  derived_keys_.push_back(name + ".transformer." + IdentityGrid::kKey);
}

void TransMorphBase::CheckPair(const at::Tensor& moving,
                               const at::Tensor& fixed) const {
  TORCH_CHECK_VALUE(
      moving.dim() == 5 && moving.sizes() == fixed.sizes() &&
          moving.size(1) == 1,
      name_,
      " wants a moving and a fixed image of equal shape [N, 1, D, H, W], not ",
      moving.sizes(), " and ", fixed.sizes());
  const std::vector<int64_t> multiple = SizeMultiple();
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t size = moving.size(2 + axis);
    TORCH_CHECK_VALUE(size > 0 && size % multiple[axis] == 0, name_,
                      " wants spatial sizes that are multiples of ",
                      multiple[axis], ", not ", moving.sizes().slice(2));
  }
  TORCH_CHECK_VALUE(
      moving.is_floating_point() && moving.scalar_type() == fixed.scalar_type(),
      name_, " wants floating images of one dtype, not ", moving.scalar_type(),
      " and ", fixed.scalar_type());
  const at::ScalarType weights = parameters().front().scalar_type();
  TORCH_CHECK_VALUE(
      moving.scalar_type() == weights ||
          at::autocast::is_autocast_enabled(moving.device().type()),
      name_, " has ", weights, " weights and wants images of that dtype, not ",
      moving.scalar_type(), " (or autocast)");
}

std::vector<at::Tensor> TransMorphBase::Features(
    const at::Tensor& moving, const at::Tensor& fixed) const {
  return transformer_->Features(moving, fixed);
}

at::Tensor TransMorphBase::Decode(const at::Tensor& moving,
                                  const at::Tensor& fixed,
                                  const at::Tensor& half_skip) const {
  const std::vector<at::Tensor> features = Features(moving, fixed);
  const bool skip = config_.if_transskip;
  const at::Tensor none;
  at::Tensor x = up0_->forward(features[2], skip ? features[1] : none);
  x = up1_->forward(x, skip ? features[0] : none);
  return up2_->forward(x, skip ? half_skip : none);
}

at::Tensor TransMorphBase::Integrate(const at::Tensor& velocity) const {
  return at::clamp(
      geometry::VecInt(velocity, static_cast<int>(config_.SVF_steps),
                       geometry::WarpConvention::kMirCompatible),
      -kFarthest, kFarthest);
}

at::Tensor AveragePool(const at::Tensor& images, int64_t kernel_size,
                       int64_t padding) {
  return precision::WithFallback(
      precision::Op::kAveragePool3d,
      [&](const at::Tensor& x) {
        return at::avg_pool3d(x, kernel_size, /*stride=*/2, padding);
      },
      images);
}

}  // namespace mir::models
