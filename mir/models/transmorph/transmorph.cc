#include "mir/models/transmorph/transmorph.h"

#include <ATen/ops/cat.h>

namespace mir::models {

TransMorph::TransMorph(const TransMorphConfig& config)
    : TransMorphBase("TransMorph", config, TransMorphKind::kPlain) {
  const int64_t half = config.swin.embed_dim / 2;
  const int64_t full = config.reg_head_chan;
  RegisterTrunk();
  up3_ = register_module("up3", std::make_shared<DecoderBlock>(
                                    half, full, config.if_convskip ? full : 0));
  // In the state_dict without if_convskip, too.
  c1_ = register_module("c1", std::make_shared<Conv3dReLU>(2, half));
  c2_ = register_module("c2", std::make_shared<Conv3dReLU>(2, full));
  reg_head_ =
      register_module("reg_head", std::make_shared<RegistrationHead>(full));
  RegisterSpatialTransformer("spatial_trans");
  if (config.SVF) RegisterVecInt("vec_int");
}

at::Tensor TransMorph::Forward(const at::Tensor& moving,
                               const at::Tensor& fixed) {
  CheckPair(moving, fixed);
  at::Tensor half, full;
  if (config().if_convskip) {
    const at::Tensor images = at::cat({moving, fixed}, /*dim=*/1);
    if (config().if_transskip) {
      half =
          c1_->forward(AveragePool(images, /*kernel_size=*/3, /*padding=*/1));
    }
    full = c2_->forward(images);
  }
  const at::Tensor flow =
      reg_head_->forward(up3_->forward(Decode(moving, fixed, half), full));
  return config().SVF ? Integrate(flow) : flow;
}

Registration TransMorph::Register(const at::Tensor& moving,
                                  const at::Tensor& fixed) {
  const at::Tensor displacement = Forward(moving, fixed);
  return {displacement, displacement};
}

}  // namespace mir::models
