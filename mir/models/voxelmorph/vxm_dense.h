#ifndef MIR_MODELS_VOXELMORPH_VXM_DENSE_H_
#define MIR_MODELS_VOXELMORPH_VXM_DENSE_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/models/layers/convolution.h"
#include "mir/models/registration_model.h"

namespace mir::models {

// The shape of a VxmDense network. The defaults are MIR's `default`
// (VoxelMorph-2).
struct VxmDenseConfig {
  // Spatial sizes, (D, H, W) or (H, W): their number makes the network 3-D or
  // 2-D. The network runs on any size that `SizeMultiple` divides; these only
  // give the shape of the identity grid that MIR's state_dict has.
  std::vector<int64_t> image_size = {160, 192, 224};
  // Channels of the convolutions with stride 2, from full resolution down:
  // one to 16.
  std::vector<int64_t> encoder_features = {16, 32, 32, 32};
  // Channels of the convolutions on the way up: one per encoder entry, each
  // before a doubling of the resolution, then at least one at full resolution.
  std::vector<int64_t> decoder_features = {32, 32, 32, 32, 32, 16, 16};
  // Whether `Forward` warps the moving image too (MIR's gen_output).
  bool warp_output = false;
};

// What is wrong with `config`; empty where it is right.
std::string FaultOf(const VxmDenseConfig& config);

// Reads a configuration with MIR's keys: `img_size`, `nb_unet_features` (a pair
// of lists; null for ((8, 32, 32, 32), (32, 32, 32, 32, 32, 8, 8)); or one
// number, with `nb_unet_levels` and `unet_feat_mult`), `use_probs`, and
// `gen_output`. Keys left out have the default's values.
//
// INVALID_ARGUMENT where a value is not as above, or `use_probs` is true (MIR
// does not implement it either).
absl::StatusOr<VxmDenseConfig> VxmDenseConfigFromJson(
    const nlohmann::json& config);

// VoxelMorph: a U-Net gives the displacement between two images in one pass.
//
// Balakrishnan, Zhao, Sabuncu, Guttag and Dalca, "VoxelMorph: a learning
// framework for deformable medical image registration", IEEE TMI 38(8), 2019.
// Parameters have the names, order, shapes and initial distributions of MIR's
// `MIR.models.VxmDense`, which follows github.com/voxelmorph/voxelmorph.
//
// The network runs under autocast, and as float16 or bfloat16 after `to`.
class VxmDense : public RegistrationModel {
 public:
  // Throws c10::ValueError where the configuration is not as VxmDenseConfig
  // says.
  explicit VxmDense(const VxmDenseConfig& config);

  struct Output {
    at::Tensor displacement;  // [N, nd, ...] in voxels
    // [N, 1, ...]: `moving` at x + displacement(x), in MIR's warp convention
    // (WarpConvention::kMirCompatible). Undefined unless `warp_output`.
    at::Tensor warped;
  };

  //   moving, fixed  [N, 1, ...]  floating, of equal shape and dtype: the
  //                               parameters' dtype, or any under autocast
  //
  // Throws c10::ValueError where a shape or size is not so.
  Output Forward(const at::Tensor& moving, const at::Tensor& fixed);

  // As Forward; the regularizer acts on the displacement.
  Registration Register(const at::Tensor& moving,
                        const at::Tensor& fixed) override;

  // 2 to the number of encoder levels, per axis.
  std::vector<int64_t> SizeMultiple() const override;

  // `transformer.grid`, which files of models with gen_output=True hold.
  std::vector<std::string> DerivedKeys() const override;

  const VxmDenseConfig& config() const { return config_; }

 private:
  class Unet;

  at::Tensor Displacement(const at::Tensor& moving,
                          const at::Tensor& fixed) const;

  VxmDenseConfig config_;
  std::shared_ptr<Unet> unet_model_;
  std::shared_ptr<Convolution> flow_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_VOXELMORPH_VXM_DENSE_H_
