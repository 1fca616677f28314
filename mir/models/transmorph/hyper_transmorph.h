#ifndef MIR_MODELS_TRANSMORPH_HYPER_TRANSMORPH_H_
#define MIR_MODELS_TRANSMORPH_HYPER_TRANSMORPH_H_

#include <ATen/core/Tensor.h>

#include <memory>

#include "mir/models/layers/hyper.h"
#include "mir/models/transmorph/transmorph_tvf.h"

// The time-varying TransMorphs (transmorph_tvf.h) whose weights a hypernetwork
// makes from one hyperparameter, the share of the regularizer in the loss. Once
// trained they register with any.
//
// Hoopes, Hoffmann, Fischl, Guttag and Dalca, "HyperMorph: amortized
// hyperparameter learning for image registration", IPMI 2021, and MIR's classes
// of these names, whose parameters have these names, order, shapes and initial
// distributions. Of these forward does not use `reg_head`, and the biases of
// convolutions and projections that have none otherwise.
//
// Under autocast the networks run in 16 bits; warps, sums of flows and
// integration are float32.
namespace mir::models {

// What the two have in common: `hyper_model`, and what it is given.
class HyperTransMorph : public TransMorphTimeVarying {
 public:
  int64_t HyperparameterCount() const override { return 1; }

 protected:
  HyperTransMorph(const char* name, const TransMorphConfig& config)
      : TransMorphTimeVarying(name, config, TransMorphKind::kHyper) {}

  // Registers `hyper_model`.
  void RegisterHyperModel();

  struct Conditioned {
    Steps steps;
    at::Tensor embedding;
  };

  // Checks its arguments, which are as for Forward.
  Conditioned RunConditioned(const at::Tensor& moving, const at::Tensor& fixed,
                             const at::Tensor& hyperparameters) const;

 private:
  std::shared_ptr<HyperEmbedding> hyper_model_;
};

class HyperTransMorphTVF : public HyperTransMorph {
 public:
  // Throws c10::ValueError where the configuration is not right.
  explicit HyperTransMorphTVF(const TransMorphConfig& config);

  struct Output {
    at::Tensor displacement;  // [N, 3, D, H, W] in voxels, float32
    // The other way, integrated from the negative velocity; undefined without
    // `SVF`.
    at::Tensor inverse;
  };

  //   moving, fixed    [N, 1, D, H, W]  floating, of equal shape and dtype: the
  //                                     parameters' dtype, or any under
  //                                     autocast
  //   hyperparameters  [1, 1], or [N, 1] with equal rows; floating
  //
  // Throws c10::ValueError where a shape or size is another, or rows differ.
  Output Forward(const at::Tensor& moving, const at::Tensor& fixed,
                 const at::Tensor& hyperparameters);

  // With `hyperparameters()`; the regularizer acts on the displacement.
  Registration Register(const at::Tensor& moving,
                        const at::Tensor& fixed) override;
};

// With a spatially varying weight of the regularizer. MIR's forward gives the
// layers of the weights no hyperparameters, and fails; here they have them.
class HyperTransMorphTVFSPR : public HyperTransMorph {
 public:
  // Throws c10::ValueError where the configuration is not right.
  explicit HyperTransMorphTVFSPR(const TransMorphConfig& config);

  // As HyperTransMorphTVF::Forward.
  TransMorphTVFSPR::Output Forward(const at::Tensor& moving,
                                   const at::Tensor& fixed,
                                   const at::Tensor& hyperparameters);

  // As HyperTransMorphTVF; the weights are those of Forward.
  Registration Register(const at::Tensor& moving,
                        const at::Tensor& fixed) override;
};

}  // namespace mir::models

#endif  // MIR_MODELS_TRANSMORPH_HYPER_TRANSMORPH_H_
