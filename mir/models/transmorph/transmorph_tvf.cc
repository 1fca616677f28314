#include "mir/models/transmorph/transmorph_tvf.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/sigmoid.h>

#include "mir/geometry/vec_int.h"
#include "mir/geometry/warp.h"
#include "mir/models/layers/double_resolution.h"

namespace mir::models {
namespace {

constexpr double kLeastWeight = 1e-6;
constexpr int kAutoPetSteps = 7;

at::Tensor WarpLikeMir(const at::Tensor& image, const at::Tensor& flow) {
  return geometry::Warp(image, flow,
                        {geometry::WarpConvention::kMirCompatible});
}

}  // namespace

void TransMorphTimeVarying::RegisterParts(BlockNorm norm,
                                          const char* transformer) {
  const int64_t half = config().swin.embed_dim / 2;
  const int64_t full = config().reg_head_chan;
  RegisterTrunk();
  c1_ = register_module("c1",
                        std::make_shared<Conv3dReLU>(2, half, norm, hyper()));
  reg_heads_ = register_module(
      "reg_heads", std::make_shared<ModuleList<RegistrationHead>>());
  up3s_ = register_module("up3s", std::make_shared<ModuleList<DecoderBlock>>());
  cs_ = register_module("cs", std::make_shared<ModuleList<Conv3dReLU>>());
  for (int64_t step = 0; step < config().time_steps; ++step) {
    reg_heads_->Append(std::make_shared<RegistrationHead>(full, hyper()));
    up3s_->Append(std::make_shared<DecoderBlock>(half, full, half, hyper()));
    cs_->Append(std::make_shared<Conv3dReLU>(2, half, norm, hyper()));
  }
  RegisterSpatialTransformer(transformer);
  RegisterSpatialTransformer("spatial_trans", /*scale=*/2);
  register_module("reg_head",
                  std::make_shared<RegistrationHead>(full, hyper()));
}

void TransMorphTimeVarying::RegisterSigmas() {
  const int64_t half = config().swin.embed_dim / 2;
  const auto block = [&](const char* name, int64_t inputs) {
    return register_module(
        name, std::make_shared<Conv3dReLU>(inputs, half, BlockNorm::kInstance,
                                           hyper()));
  };
  sigma_0_ = block("sigma_0", config().reg_head_chan);
  sigma_1_ = block("sigma_1", half);
  ConvolutionOptions options;
  options.in_channels = half;
  sigma_2_ = register_module("sigma_2", std::make_shared<Convolution>(options));
}

at::Tensor TransMorphTimeVarying::RegularizerWeights(
    const at::Tensor& features, const at::Tensor& embedding) const {
  const at::Tensor x =
      sigma_1_->forward(sigma_0_->forward(features, embedding), embedding);
  return at::clamp(at::sigmoid(sigma_2_->forward(x)), kLeastWeight, 1);
}

TransMorphTimeVarying::Steps TransMorphTimeVarying::RunSteps(
    const at::Tensor& moving, const at::Tensor& fixed, bool by_itself,
    const at::Tensor& embedding) const {
  const at::Tensor images = at::cat({moving, fixed}, /*dim=*/1);
  const at::Tensor decoded =
      Decode(moving, fixed,
             c1_->forward(AveragePool(images, /*kernel_size=*/3, /*padding=*/1),
                          embedding),
             embedding);
  // What each step's block would double anew.
  const at::Tensor doubled = DoubleResolution(decoded, /*align_corners=*/false);

  Steps result;
  at::Tensor warped = moving;
  for (size_t step = 0; step < cs_->size(); ++step) {
    const at::Tensor seen =
        (*cs_)[step].forward(at::cat({warped, fixed}, /*dim=*/1), embedding);
    const at::Tensor features =
        (*up3s_)[step].Convolve(doubled, seen, embedding);
    result.features = step == 0 ? features : result.features + features;
    // In float32: 16 bits cannot tell far voxels apart.
    at::Tensor flow = (*reg_heads_)[step].forward(features, embedding);
    if (flow.scalar_type() != at::kDouble) flow = flow.to(at::kFloat);
    const at::Tensor before =
        step == 0 ? flow.new_zeros(flow.sizes()) : result.flow;
    result.flow = before + WarpLikeMir(flow, by_itself ? flow : before);
    if (step + 1 < cs_->size()) warped = WarpLikeMir(moving, result.flow);
  }
  return result;
}

TransMorphTVF::TransMorphTVF(const TransMorphConfig& config)
    : TransMorphTimeVarying("TransMorphTVF", config) {
  RegisterParts(BlockNorm::kBatch, "spatial_trans_");
  if (config.SVF) RegisterVecInt("vec_int");
}

at::Tensor TransMorphTVF::Forward(const at::Tensor& moving,
                                  const at::Tensor& fixed) {
  CheckPair(moving, fixed);
  const at::Tensor flow =
      RunSteps(moving, fixed, config().composition == "addition").flow;
  return config().SVF ? Integrate(flow) : flow;
}

Registration TransMorphTVF::Register(const at::Tensor& moving,
                                     const at::Tensor& fixed) {
  const at::Tensor displacement = Forward(moving, fixed);
  return {displacement, displacement};
}

TransMorphTVFSPR::TransMorphTVFSPR(const TransMorphConfig& config)
    : TransMorphTimeVarying("TransMorphTVFSPR", config) {
  RegisterParts(BlockNorm::kInstance, "spatial_trans_half");
  if (config.SVF) RegisterVecInt("integrate");
  RegisterSigmas();
}

TransMorphTVFSPR::Output TransMorphTVFSPR::Forward(const at::Tensor& moving,
                                                   const at::Tensor& fixed) {
  CheckPair(moving, fixed);
  const Steps steps =
      RunSteps(moving, fixed, config().composition == "addition");
  Output output;
  output.weights = RegularizerWeights(steps.features);
  if (config().SVF) {
    output.displacement = Integrate(steps.flow);
    output.inverse = Integrate(-steps.flow);
  } else {
    output.displacement = steps.flow;
  }
  return output;
}

Registration TransMorphTVFSPR::Register(const at::Tensor& moving,
                                        const at::Tensor& fixed) {
  const Output output = Forward(moving, fixed);
  return {output.displacement, output.displacement, output.weights};
}

TransMorphTVFAutoPETAtlas::TransMorphTVFAutoPETAtlas(
    const TransMorphConfig& config)
    : TransMorphTimeVarying("TransMorphTVFAutoPETAtlas", config) {
  RegisterParts(BlockNorm::kInstance, "spatial_trans_half");
  RegisterVecInt("integrate", /*scale=*/2);
}

TransMorphTVFAutoPETAtlas::Output TransMorphTVFAutoPETAtlas::Displace(
    const at::Tensor& moving, const at::Tensor& fixed) const {
  CheckPair(moving, fixed);
  const at::Tensor flow =
      RunSteps(AveragePool(moving, /*kernel_size=*/2, /*padding=*/0),
               AveragePool(fixed, /*kernel_size=*/2, /*padding=*/0),
               /*by_itself=*/true)
          .flow;
  const at::Tensor velocity =
      DoubleResolution(flow, /*align_corners=*/false) * 2;
  const auto integrate = [](const at::Tensor& v) {
    return geometry::VecInt(v, kAutoPetSteps,
                            geometry::WarpConvention::kMirCompatible);
  };
  Output output;
  output.displacement = integrate(velocity);
  output.inverse = integrate(-velocity);
  return output;
}

TransMorphTVFAutoPETAtlas::Output TransMorphTVFAutoPETAtlas::Forward(
    const at::Tensor& moving, const at::Tensor& fixed) {
  Output output = Displace(moving, fixed);
  output.warped_moving = WarpLikeMir(moving, output.displacement);
  output.warped_fixed = WarpLikeMir(fixed, output.inverse);
  return output;
}

std::vector<int64_t> TransMorphTVFAutoPETAtlas::SizeMultiple() const {
  return {32, 32, 32};
}

Registration TransMorphTVFAutoPETAtlas::Register(const at::Tensor& moving,
                                                 const at::Tensor& fixed) {
  const at::Tensor displacement = Displace(moving, fixed).displacement;
  return {displacement, displacement};
}

}  // namespace mir::models
