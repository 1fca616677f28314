#ifndef MIR_MODELS_VOXELMORPH_HYPER_VXM_DENSE_H_
#define MIR_MODELS_VOXELMORPH_HYPER_VXM_DENSE_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "mir/models/layers/hyper.h"
#include "mir/models/registration_model.h"
#include "mir/models/voxelmorph/vxm_dense.h"

namespace mir::models {

// HyperMorph: a VxmDense whose weights a hypernetwork makes from one
// hyperparameter, the share of the regularizer in the loss. Once trained it
// registers with any.
//
// Hoopes, Hoffmann, Fischl, Guttag and Dalca, "HyperMorph: amortized
// hyperparameter learning for image registration", IPMI 2021. Parameters have
// the names, order, shapes and initial distributions of MIR's
// `MIR.models.HyperVxmDense`.
//
// The network runs under autocast, and as float16 or bfloat16 after `to`.
class HyperVxmDense : public RegistrationModel {
 public:
  // Throws c10::ValueError where the configuration is not as VxmDenseConfig
  // says.
  explicit HyperVxmDense(const VxmDenseConfig& config);

  // As VxmDense::Forward.
  //
  //   hyperparameters  [1, 1], or [N, 1] with equal rows; floating
  //
  // Throws c10::ValueError where a shape or size is another, or rows differ.
  VxmDense::Output Forward(const at::Tensor& moving, const at::Tensor& fixed,
                           const at::Tensor& hyperparameters);

  // With `hyperparameters()`; the regularizer acts on the displacement.
  Registration Register(const at::Tensor& moving,
                        const at::Tensor& fixed) override;

  int64_t HyperparameterCount() const override { return 1; }

  // 2 to the number of encoder levels, per axis.
  std::vector<int64_t> SizeMultiple() const override;

  // `spatial_trans.grid`, which files of models with gen_output=True hold.
  std::vector<std::string> DerivedKeys() const override;

 private:
  class Unet;

  at::Tensor Displacement(const at::Tensor& moving, const at::Tensor& fixed,
                          const at::Tensor& hyperparameters) const;

  VxmDenseConfig config_;
  std::shared_ptr<HyperEmbedding> hyper_model_;
  std::shared_ptr<Unet> unet_model_;
  std::shared_ptr<HyperConvolution> flow_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_VOXELMORPH_HYPER_VXM_DENSE_H_
