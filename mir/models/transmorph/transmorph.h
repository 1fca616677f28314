#ifndef MIR_MODELS_TRANSMORPH_TRANSMORPH_H_
#define MIR_MODELS_TRANSMORPH_TRANSMORPH_H_

#include <ATen/core/Tensor.h>

#include <memory>

#include "mir/models/transmorph/transmorph_base.h"

namespace mir::models {

// TransMorph: a Swin transformer sees both images, and a convolutional decoder
// gives the displacement.
//
// Chen, Frey, He, Segars, Li and Du, "TransMorph: Transformer for unsupervised
// medical image registration", Medical Image Analysis 82, 2022. Parameters have
// the names, order and shapes of MIR's `MIR.models.TransMorph`.
//
// The network runs under autocast, and as float16 or bfloat16 after `to`;
// integration is in float32.
class TransMorph : public TransMorphBase {
 public:
  // Throws c10::ValueError where the configuration is not right.
  explicit TransMorph(const TransMorphConfig& config);

  //   moving, fixed  [N, 1, D, H, W]  floating, of equal shape and dtype: the
  //                                   parameters' dtype, or any under autocast
  //   returns        [N, 3, D, H, W]  displacement in voxels; with `SVF`
  //                                   integrated, float32, and at most 100
  //
  // Throws c10::ValueError where a shape or size is not so.
  at::Tensor Forward(const at::Tensor& moving, const at::Tensor& fixed);

  // As Forward; the regularizer acts on the displacement, as in MIR.
  Registration Register(const at::Tensor& moving,
                        const at::Tensor& fixed) override;

 private:
  std::shared_ptr<DecoderBlock> up3_;
  std::shared_ptr<Conv3dReLU> c1_, c2_;
  std::shared_ptr<RegistrationHead> reg_head_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_TRANSMORPH_TRANSMORPH_H_
