#include "mir/models/transmorph/transmorph_base.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/clamp.h>
#include <c10/util/Exception.h>

#include "mir/geometry/vec_int.h"
#include "mir/models/identity_grid.h"
#include "mir/models/swin/make_backbone.h"

namespace mir::models {
namespace {

constexpr double kFarthest = 100;  // Voxels.

// Stands where MIR registers its VecInt.
class VecIntGrid : public torch::nn::Module {
 public:
  explicit VecIntGrid(const std::vector<int64_t>& image_size)
      : torch::nn::Module("VecInt") {
    register_module("transformer", std::make_shared<IdentityGrid>(image_size));
  }
};

TransMorphConfig ConfigOf(TransMorphConfig config, TransMorphKind kind) {
  config.swin.hyper = kind == TransMorphKind::kHyper;
  return config;
}

std::vector<int64_t> Scaled(std::vector<int64_t> sizes, int64_t scale) {
  for (int64_t& size : sizes) size *= scale;
  return sizes;
}

}  // namespace

RegistrationHead::RegistrationHead(int64_t in_channels, bool hyper)
    : torch::nn::Module("RegistrationHead") {
  ConvolutionOptions options;
  options.in_channels = in_channels;
  options.out_channels = 3;
  convolution_ = AddConvolution(*this, hyper ? "conv3d" : "0", options,
                                {.hyper = hyper, .near_zero = true});
}

at::Tensor RegistrationHead::forward(const at::Tensor& features,
                                     const at::Tensor& embedding) const {
  return convolution_->Convolve(features, embedding);
}

TransMorphBase::TransMorphBase(const char* name, const TransMorphConfig& config,
                               TransMorphKind kind)
    : name_(name), config_(ConfigOf(config, kind)) {
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
  const auto block = [&](const char* name, int64_t inputs) {
    return register_module(
        name, std::make_shared<DecoderBlock>(inputs, inputs / 2,
                                             skip(inputs / 2), hyper()));
  };
  up0_ = block("up0", 4 * features);
  up1_ = block("up1", 2 * features);
  up2_ = block("up2", features);
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

at::Tensor TransMorphBase::Decode(const at::Tensor& moving,
                                  const at::Tensor& fixed,
                                  const at::Tensor& half_skip,
                                  const at::Tensor& embedding) const {
  const std::vector<at::Tensor> features =
      transformer_->Features(moving, fixed, embedding);
  const bool skip = config_.if_transskip;
  const at::Tensor none;
  at::Tensor x =
      up0_->forward(features[2], skip ? features[1] : none, embedding);
  x = up1_->forward(x, skip ? features[0] : none, embedding);
  return up2_->forward(x, skip ? half_skip : none, embedding);
}

at::Tensor TransMorphBase::Integrate(const at::Tensor& velocity) const {
  return at::clamp(
      geometry::VecInt(velocity, static_cast<int>(config_.SVF_steps),
                       geometry::WarpConvention::kMirCompatible),
      -kFarthest, kFarthest);
}

}  // namespace mir::models
