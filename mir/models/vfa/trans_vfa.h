#ifndef MIR_MODELS_VFA_TRANS_VFA_H_
#define MIR_MODELS_VFA_TRANS_VFA_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/models/registration_model.h"
#include "mir/models/swin/swin_config.h"

namespace mir::models {

class VfaDecoder;

// The shape of a TransVfa; the default is made of MIR's
// get_3DTransMorph3Lvl_config and get_VFA_default_config.
struct TransVfaConfig {
  // Three levels with patches of 4. `in_chans` is not used: a plain Swin sees
  // one image at a time, a deformable one both.
  SwinConfig swin;
  // "swin", or a deformable backbone: "dswin", "dswinv2".
  std::string swin_type = "swin";
  int64_t start_channels = 8;     // Half of the features at full resolution.
  int64_t matching_channels = 8;  // What is compared at full resolution.
  int64_t max_channels = 64;      // Both double per level up to this.
  double initialize = 0.1;  // The first `beta`: voxels per unit of offset.
  bool skip = false;        // No matching at full resolution.
  int64_t integration_steps = 0;  // Of each level's grid with itself, 0 to 16.
};

// Reads a configuration with the keys of SwinConfig but `in_chans`, and
// `swin_type`, `start_channels`, `matching_channels`, `max_channels`,
// `initialize`, `skip` and `int_steps`. Keys left out have the default's
// values.
//
// INVALID_ARGUMENT where a value is not as TransVfaConfig says; it names the
// key.
absl::StatusOr<TransVfaConfig> TransVfaConfigFromJson(
    const nlohmann::json& config);

// Vector field attention (vfa_model.h) on the features of a Swin transformer,
// which convolutions bring to five resolutions: parameters have the names,
// order, shapes and initial distributions of MIR's `TransVFA`.
//
// Liu, Chen, Wei, Carass and Prince, "Vector field attention for deformable
// image registration", Journal of Medical Imaging 11(6), 2024; Chen, Frey, He,
// Segars, Li and Du, "TransMorph: Transformer for unsupervised medical image
// registration", Medical Image Analysis 82, 2022.
//
// The network runs under autocast, and as float16 or bfloat16 after `to`; its
// grids and fields are float32 at least. With `skip` the finest projection is a
// parameter that nothing uses.
class TransVfa : public RegistrationModel {
 public:
  // Throws c10::ValueError where the configuration is not as TransVfaConfig
  // says.
  explicit TransVfa(const TransVfaConfig& config);
  ~TransVfa() override;

  //   moving, fixed  [N, 1, D, H, W]  floating, of equal shape: the parameters'
  //                                   dtype, or any under autocast; sizes are
  //                                   multiples of 16, and at least 32
  //   returns        [N, 3, D, H, W]  displacement in voxels, float32
  //
  // Throws c10::ValueError where a shape or size is another.
  at::Tensor Forward(const at::Tensor& moving, const at::Tensor& fixed);

  // As Forward; the regularizer acts on the displacement.
  Registration Register(const at::Tensor& moving,
                        const at::Tensor& fixed) override;

  // 16 along each axis.
  std::vector<int64_t> SizeMultiple() const override;

 private:
  class Encoder;

  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<VfaDecoder> decoder_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_VFA_TRANS_VFA_H_
