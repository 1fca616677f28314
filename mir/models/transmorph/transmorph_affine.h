#ifndef MIR_MODELS_TRANSMORPH_TRANSMORPH_AFFINE_H_
#define MIR_MODELS_TRANSMORPH_TRANSMORPH_AFFINE_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "mir/models/registration_model.h"
#include "mir/models/swin/backbone.h"
#include "mir/models/transmorph/transmorph_config.h"

namespace mir::models {

// Finds an affine transformation between two images: the coarsest features of a
// Swin backbone and four small networks on all of them, so that it fits images
// of the configuration's `img_size` alone. Parameters have the names, order and
// shapes of MIR's `MIR.models.TransMorphAffine`.
//
// Chen, Frey, He, Segars, Li and Du, "TransMorph: Transformer for unsupervised
// medical image registration", Medical Image Analysis 82, 2022.
//
// The backbone runs under autocast, and the model as float16 or bfloat16 after
// `to`; what it gives is float32 at least. Of the backbone, forward does not
// use the norms of the finer levels.
class TransMorphAffine : public RegistrationModel {
 public:
  // Throws c10::ValueError where the configuration is not right for
  // TransMorphKind::kAffine.
  explicit TransMorphAffine(const TransMorphConfig& config);

  // What MIR's AffineTransformer takes, each [N, 3] but for `shear` [N, 6].
  struct Output {
    at::Tensor rotation;     // In radians, -pi to pi.
    at::Tensor scale;        // 0 to 5.
    at::Tensor translation;  // In normalised coordinates (2 is the volume).
    at::Tensor shear;        // In radians, -pi to pi.
  };

  //   moving, fixed  [N, 1, img_size]  floating, of equal shape and dtype: the
  //                                    parameters' dtype, or any under autocast
  //
  // Throws c10::ValueError where a shape is not so.
  Output Forward(const at::Tensor& moving, const at::Tensor& fixed);

  // The displacement of AffineMatrix(Forward) (geometry/affine.h). There is
  // nothing to regularize: weigh it with 0.
  Registration Register(const at::Tensor& moving,
                        const at::Tensor& fixed) override;

  // 16 along each axis.
  std::vector<int64_t> SizeMultiple() const override;

  const TransMorphConfig& config() const { return config_; }

 private:
  class Head;

  const TransMorphConfig config_;
  std::shared_ptr<Backbone> transformer_;
  std::shared_ptr<Head> aff_mlp_, scl_mlp_, trans_mlp_, shear_mlp_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_TRANSMORPH_TRANSMORPH_AFFINE_H_
