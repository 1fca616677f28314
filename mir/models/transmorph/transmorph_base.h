#ifndef MIR_MODELS_TRANSMORPH_TRANSMORPH_BASE_H_
#define MIR_MODELS_TRANSMORPH_TRANSMORPH_BASE_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "mir/models/layers/conditioned.h"
#include "mir/models/layers/decoder_block.h"
#include "mir/models/registration_model.h"
#include "mir/models/swin/backbone.h"
#include "mir/models/transmorph/transmorph_config.h"

namespace mir::models {

// A convolution that turns features into a displacement or velocity, near zero
// at first: MIR's RegistrationHead (keys under `0`; of a hypernetwork under
// `conv3d`).
class RegistrationHead : public torch::nn::Module {
 public:
  explicit RegistrationHead(int64_t in_channels, bool hyper = false);

  // [N, in_channels, D, H, W] to [N, 3, D, H, W]; `embedding` as for
  // Conv3dReLU.
  at::Tensor forward(const at::Tensor& features,
                     const at::Tensor& embedding = {}) const;

 private:
  std::shared_ptr<ConditionedConvolution> convolution_;
};

// What the TransMorph models share: the backbone, and the decoder up to half
// the images' resolution. Derived classes say the order of their parts by
// registering them after `RegisterTrunk`.
class TransMorphBase : public RegistrationModel {
 public:
  // 16 along each axis: patches of 4, halved twice.
  std::vector<int64_t> SizeMultiple() const override;

  // The sampling grids.
  std::vector<std::string> DerivedKeys() const override {
    return derived_keys_;
  }

  const TransMorphConfig& config() const { return config_; }

 protected:
  // Throws c10::ValueError where the configuration is not right for `kind`.
  TransMorphBase(const char* name, const TransMorphConfig& config,
                 TransMorphKind kind);

  // Registers `transformer`, `up0`, `up1` and `up2`.
  void RegisterTrunk();
  // Registers `transformer` alone.
  void RegisterTransformer();
  // Registers MIR's SpatialTransformer and VecInt: a grid and no memory.
  // `scale` times the configuration's image size.
  void RegisterSpatialTransformer(const std::string& name, int64_t scale = 1);
  void RegisterVecInt(const std::string& name, int64_t scale = 1);

  // Throws c10::ValueError unless the images are floating [N, 1, D, H, W] of
  // equal shape and dtype (the weights', or any under autocast), with sizes
  // that are multiples of `SizeMultiple`.
  void CheckPair(const at::Tensor& moving, const at::Tensor& fixed) const;

  // Whether a hypernetwork makes the weights.
  bool hyper() const { return config_.swin.hyper; }

  //   half_skip  [N, embed_dim / 2, D / 2, H / 2, W / 2], or undefined for none
  //   embedding  of a HyperEmbedding; not looked at without one
  //   returns    [N, embed_dim / 2, D / 2, H / 2, W / 2]
  at::Tensor Decode(const at::Tensor& moving, const at::Tensor& fixed,
                    const at::Tensor& half_skip,
                    const at::Tensor& embedding = {}) const;

  // Integrates a velocity and clamps it to 100 voxels, as MIR.
  at::Tensor Integrate(const at::Tensor& velocity) const;

 private:
  const char* const name_;
  const TransMorphConfig config_;
  std::vector<std::string> derived_keys_;
  std::shared_ptr<Backbone> transformer_;
  std::shared_ptr<DecoderBlock> up0_, up1_, up2_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_TRANSMORPH_TRANSMORPH_BASE_H_
