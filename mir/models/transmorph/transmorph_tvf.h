#ifndef MIR_MODELS_TRANSMORPH_TRANSMORPH_TVF_H_
#define MIR_MODELS_TRANSMORPH_TRANSMORPH_TVF_H_

#include <ATen/core/Tensor.h>

#include <memory>

#include "mir/models/layers/convolution.h"
#include "mir/models/layers/module_list.h"
#include "mir/models/transmorph/transmorph_base.h"

// TransMorph with a time-varying velocity field: after each of `time_steps`
// steps the moving image is warped by what was found so far, and the next step
// sees it. The images have half the resolution of the scans (MIR's `img_size`
// is half of theirs) but for TransMorphTVFAutoPETAtlas, which halves them
// itself.
//
// Chen et al., "Unsupervised learning of diffeomorphic image registration via
// TransMorph", WBIR 2022, and MIR's classes of these names, whose parameters
// have these names, order and shapes. Some of them forward does not use:
// `reg_head`, a remnant.
//
// Under autocast the networks run in 16 bits; warps, sums of flows and
// integration are float32.
namespace mir::models {

// What they have in common, and their hypernetworks
// (hyper_transmorph.h).
class TransMorphTimeVarying : public TransMorphBase {
 protected:
  TransMorphTimeVarying(const char* name, const TransMorphConfig& config,
                        TransMorphKind kind = TransMorphKind::kTimeVarying)
      : TransMorphBase(name, config, kind) {}

  struct Steps {
    at::Tensor flow;      // [N, 3, D, H, W] float32 in voxels
    at::Tensor features;  // [N, reg_head_chan, D, H, W]: the sum over steps
  };

  // Registers the trunk, `c1`, `reg_heads`, `up3s` and `cs`, where `norm` is
  // that of c1 and cs; the grids, that of the images' size under the name
  // `transformer` and `spatial_trans` of twice it; and the unused `reg_head`.
  void RegisterParts(BlockNorm norm, const char* transformer);
  // Registers `sigma_0`, `sigma_1` and `sigma_2`, which give the weights of the
  // regularizer.
  void RegisterSigmas();

  // `by_itself`: as composition "addition". `embedding`: of a HyperEmbedding;
  // not looked at without one.
  Steps RunSteps(const at::Tensor& moving, const at::Tensor& fixed,
                 bool by_itself, const at::Tensor& embedding = {}) const;

  // From the steps' features to [N, 1, D, H, W], 1e-6 to 1.
  at::Tensor RegularizerWeights(const at::Tensor& features,
                                const at::Tensor& embedding = {}) const;

 private:
  std::shared_ptr<Conv3dReLU> c1_;
  std::shared_ptr<ModuleList<RegistrationHead>> reg_heads_;
  std::shared_ptr<ModuleList<DecoderBlock>> up3s_;
  std::shared_ptr<ModuleList<Conv3dReLU>> cs_;
  std::shared_ptr<Conv3dReLU> sigma_0_, sigma_1_;
  std::shared_ptr<Convolution> sigma_2_;
};

// Batch normalisation in the branches that see the images: mind the batch size,
// and see RankStatistics.
class TransMorphTVF : public TransMorphTimeVarying {
 public:
  // Throws c10::ValueError where the configuration is not right.
  explicit TransMorphTVF(const TransMorphConfig& config);

  //   moving, fixed  [N, 1, D, H, W]  floating, of equal shape and dtype: the
  //                                   parameters' dtype, or any under autocast
  //   returns        [N, 3, D, H, W]  displacement in voxels, float32; with
  //                                   `SVF` integrated and at most 100
  at::Tensor Forward(const at::Tensor& moving, const at::Tensor& fixed);

  Registration Register(const at::Tensor& moving,
                        const at::Tensor& fixed) override;
};

// With a spatially varying weight of the regularizer.
class TransMorphTVFSPR : public TransMorphTimeVarying {
 public:
  // Throws c10::ValueError where the configuration is not right.
  explicit TransMorphTVFSPR(const TransMorphConfig& config);

  struct Output {
    at::Tensor displacement;  // [N, 3, D, H, W] in voxels
    // The other way, integrated from the negative velocity; undefined without
    // `SVF`.
    at::Tensor inverse;
    at::Tensor weights;  // [N, 1, D, H, W] of the regularizer, 1e-6 to 1
  };

  // As TransMorphTVF::Forward.
  Output Forward(const at::Tensor& moving, const at::Tensor& fixed);

  // The weights are those of Forward.
  Registration Register(const at::Tensor& moving,
                        const at::Tensor& fixed) override;
};

// Finds the flow at half the images' resolution and integrates it at theirs;
// `img_size` is half of the images'. Always adds and integrates (`composition`,
// `SVF` and `SVF_steps` are not used: MIR fixes them), with a plain Swin.
class TransMorphTVFAutoPETAtlas : public TransMorphTimeVarying {
 public:
  // Throws c10::ValueError where the configuration is not right.
  explicit TransMorphTVFAutoPETAtlas(const TransMorphConfig& config);

  struct Output {
    at::Tensor displacement, inverse;  // [N, 3, D, H, W] in voxels, float32
    // [N, 1, D, H, W]: the images warped by them, in MIR's convention.
    at::Tensor warped_moving, warped_fixed;
  };

  // As TransMorphTVF::Forward.
  Output Forward(const at::Tensor& moving, const at::Tensor& fixed);

  // 32 along each axis.
  std::vector<int64_t> SizeMultiple() const override;

  Registration Register(const at::Tensor& moving,
                        const at::Tensor& fixed) override;

 private:
  // Without the warped images.
  Output Displace(const at::Tensor& moving, const at::Tensor& fixed) const;
};

}  // namespace mir::models

#endif  // MIR_MODELS_TRANSMORPH_TRANSMORPH_TVF_H_
