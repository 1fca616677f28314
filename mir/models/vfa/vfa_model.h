#ifndef MIR_MODELS_VFA_VFA_MODEL_H_
#define MIR_MODELS_VFA_VFA_MODEL_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/models/registration_model.h"

namespace mir::models {

class HyperEmbedding;
class SpatialWeights;
class VfaDecoder;
class VfaEncoder;

// The shape of a Vfa; the default is MIR's "default" configuration.
struct VfaConfig {
  // Spatial sizes, (D, H, W) or (H, W). The network takes others too: this
  // decides 2-D or 3-D, and the shape of the listed identity grids.
  std::vector<int64_t> image_size = {160, 192, 224};
  int64_t in_channels = 1;
  int64_t downsamples = 4;        // Levels below full resolution, 1 to 8.
  int64_t start_channels = 8;     // Features at full resolution.
  int64_t matching_channels = 8;  // What is compared at full resolution.
  int64_t max_channels = 64;      // Both double per level up to this.
  double initialize = 0.1;  // The first `beta`: voxels per unit of offset.
  bool skip = false;        // No matching at full resolution.
  int64_t integration_steps = 0;  // Of each level's grid with itself, 0 to 16.

  bool integrate =
      false;  // The field is a velocity (MIR's SVF), not for hyper.
  int64_t velocity_steps = 7;  // Squarings of its integration, 1 to 16.
  bool warp_output = false;    // `Forward` warps both images; wants integrate.

  // Which of MIR's classes it is.
  bool spatial_weights =
      false;           // ...SPR: weights of the regularizer, 3-D only.
  bool hyper = false;  // Hyper...
};

// Reads a configuration with MIR's keys `img_size`, `in_channels`,
// `downsamples`, `start_channels`, `matching_channels`, `max_channels`,
// `initialize`, `skip`, `int_steps`, `affine` (0), and, for networks without
// hyperparameters, `SVF`, `SVF_steps` and `return_full`. Keys left out have the
// default's values.
//
// INVALID_ARGUMENT where a value is not as VfaConfig says; it names the key.
absl::StatusOr<VfaConfig> VfaConfigFromJson(const nlohmann::json& config,
                                            bool spatial_weights, bool hyper);

// Vector field attention: compares the features of each voxel with those of its
// 27 neighbours in the other image, from coarse to fine, and composes the
// offsets.
//
// Liu, Chen, Wei, Carass and Prince, "Vector field attention for deformable
// image registration", Journal of Medical Imaging 11(6), 2024. With
// `spatial_weights` it also gives how strongly each voxel is to be regularized:
// Chen, Wei, Liu et al., "Unsupervised learning of spatially varying
// regularization for diffeomorphic image registration", Medical Image Analysis,
// 2025. With `hyper` a network of hyperparameters makes the weights of its
// convolutions (HyperEmbedding): one hyperparameter, or two with spatial
// weights. Parameters have the names, order, shapes and initial distributions
// of MIR's `VFA`, `VFASPR`, `HyperVFA` and `HyperVFASPR`.
//
// The network runs under autocast, and as float16 or bfloat16 after `to`; its
// grids and fields are float32 at least. With `skip` the finest decoder,
// upsampling and projection are parameters that nothing uses.
class Vfa : public RegistrationModel {
 public:
  // Throws c10::ValueError where the configuration is not as VfaConfig says.
  explicit Vfa(const VfaConfig& config);
  ~Vfa() override;

  struct Output {
    at::Tensor displacement;  // [N, nd, ...] in voxels, float32.
    at::Tensor inverse;       // Of fixed onto moving; with warp_output.
    // `moving` and `fixed` at x + displacement(x) and inverse(x), in MIR's warp
    // convention; with warp_output.
    at::Tensor warped_moving, warped_fixed;
    at::Tensor weights;  // [N, 1, ...] from 1e-6 to 1; with spatial_weights.
    // The displacement after each level, coarsest first, before any integration
    // as a velocity; each but the last at the next level's resolution.
    std::vector<at::Tensor> levels;
  };

  //   moving, fixed    [N, in_channels, ...]  floating, of equal shape: the
  //                                           parameters' dtype, or any under
  //                                           autocast
  //   hyperparameters  [1, n] or [N, n] with equal rows; n as
  //                    HyperparameterCount(), undefined where that is 0
  //
  // Throws c10::ValueError where a shape or size is another, or rows differ.
  Output Forward(const at::Tensor& moving, const at::Tensor& fixed,
                 const at::Tensor& hyperparameters = {});

  // With `hyperparameters()`; the regularizer acts on the displacement.
  Registration Register(const at::Tensor& moving,
                        const at::Tensor& fixed) override;

  int64_t HyperparameterCount() const override;

  // 2 to the number of downsamples, per axis; images have at least twice that.
  std::vector<int64_t> SizeMultiple() const override;

  // The grids of MIR's SpatialTransformers.
  std::vector<std::string> DerivedKeys() const override;

 private:
  const VfaConfig config_;
  std::shared_ptr<VfaEncoder> encoder_;
  std::shared_ptr<VfaDecoder> decoder_;
  std::shared_ptr<SpatialWeights> spatial_weights_;
  std::shared_ptr<HyperEmbedding> hyper_model_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_VFA_VFA_MODEL_H_
