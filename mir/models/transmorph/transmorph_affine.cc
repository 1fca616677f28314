#include "mir/models/transmorph/transmorph_affine.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/leaky_relu.h>
#include <c10/util/Exception.h>

#include <string>

#include "mir/geometry/affine.h"
#include "mir/models/layers/decoder_block.h"
#include "mir/models/layers/image_pair.h"
#include "mir/models/layers/instance_norm.h"
#include "mir/models/layers/linear.h"
#include "mir/models/layers/weights.h"
#include "mir/models/swin/make_backbone.h"
#include "mir/precision/fp32_region.h"

namespace mir::models {
namespace {

constexpr int64_t kHidden = 100;
constexpr int64_t kShrink = 16;  // From the images to the coarsest features.
constexpr double kScale = 0.1;   // Of what a head gives.
constexpr double kPi = 3.14159265358979323846;

}  // namespace

// Two linear layers (keys `0` and `2`) with a leaky ReLU between.
class TransMorphAffine::Head : public torch::nn::Module {
 public:
  // Deviations of the second layer's first values.
  Head(int64_t inputs, int64_t outputs, double weight_deviation,
       double bias_deviation)
      : torch::nn::Module("Sequential") {
    first_ = register_module("0", std::make_shared<Linear>(inputs, kHidden));
    second_ = register_module("2", std::make_shared<Linear>(kHidden, outputs));
    InitNormal(second_->weight, 0, weight_deviation);
    InitNormal(second_->bias, 0, bias_deviation);
  }

  at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor input = x.to(first_->weight.scalar_type());
    return second_->forward(at::leaky_relu(first_->forward(input))) * kScale;
  }

 private:
  std::shared_ptr<Linear> first_, second_;
};

TransMorphAffine::TransMorphAffine(const TransMorphConfig& config)
    : config_(config) {
  const std::string fault = FaultOf(config, TransMorphKind::kAffine);
  TORCH_CHECK_VALUE(fault.empty(), "TransMorphAffine: ", fault);
  transformer_ = register_module("transformer",
                                 MakeBackbone(config.swin_type, config.swin));
  int64_t inputs = 4 * config.swin.embed_dim;
  for (const int64_t size : config.swin.img_size) inputs *= size / kShrink;
  const auto head = [&](const char* name, int64_t outputs,
                        double weight_deviation, double bias_deviation) {
    return register_module(
        name, std::make_shared<Head>(inputs, outputs, weight_deviation,
                                     bias_deviation));
  };
  aff_mlp_ = head("aff_mlp", 3, 1e-3, 1e-3);
  scl_mlp_ = head("scl_mlp", 3, 1e-2, 1e-2);
  trans_mlp_ = head("trans_mlp", 3, 1e-2, 1e-4);
  shear_mlp_ = head("shear_mlp", 6, 1e-2, 1e-4);
}

TransMorphAffine::Output TransMorphAffine::Forward(const at::Tensor& moving,
                                                   const at::Tensor& fixed) {
  const at::IntArrayRef wanted = config_.swin.img_size;
  CheckImagePair({.model = "TransMorphAffine",
                  .multiple = SizeMultiple(),
                  .weights = parameters().front().scalar_type()},
                 moving, fixed);
  TORCH_CHECK_VALUE(moving.sizes().slice(2) == wanted,
                    "TransMorphAffine wants images of the sizes ", wanted,
                    " that it was built for (img_size), not ",
                    moving.sizes().slice(2));
  const at::Tensor coarsest =
      transformer_->Features(moving, fixed, /*embedding=*/{}).back();
  // A few angles and lengths move every voxel: no autocast from here.
  const precision::Fp32Region region;
  const at::Tensor features =
      InstanceNorm(precision::ToComputeType(coarsest), /*weight=*/{},
                   /*bias=*/{}, /*negative_slope=*/1)
          .flatten(1);
  Output output;
  output.rotation = at::clamp(aff_mlp_->forward(features), -1, 1) * kPi;
  output.scale = at::clamp(scl_mlp_->forward(features) + 1, 0, 5);
  output.translation = trans_mlp_->forward(features);
  output.shear = at::clamp(shear_mlp_->forward(features), -1, 1) * kPi;
  return output;
}

Registration TransMorphAffine::Register(const at::Tensor& moving,
                                        const at::Tensor& fixed) {
  const Output output = Forward(moving, fixed);
  const at::IntArrayRef sizes = moving.sizes().slice(2);
  const at::Tensor displacement = geometry::AffineToDisplacement(
      geometry::ToVoxelAffine(
          geometry::AffineMatrix(output.rotation, output.scale,
                                 output.translation, output.shear),
          sizes),
      sizes);
  return {.displacement = displacement, .regularized = displacement};
}

std::vector<int64_t> TransMorphAffine::SizeMultiple() const {
  return {kShrink, kShrink, kShrink};
}

}  // namespace mir::models
