#ifndef MIR_MODELS_REGISTRATION_MODEL_H_
#define MIR_MODELS_REGISTRATION_MODEL_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace mir::models {

// What a model finds for a pair of images.
struct Registration {
  // [N, nd, ...] in voxels at the images' resolution, channel k along spatial
  // axis k: fixed(x) is near moving(x + displacement(x)). nd is 2 or 3. Under
  // autocast its dtype may be the 16-bit one.
  at::Tensor displacement;
  // The field that a regularizer acts on: the displacement itself, or the
  // velocity that it was integrated from. [N, nd, ...], of any resolution.
  at::Tensor regularized;
  // Of a model with spatially varying regularization: how strongly each voxel
  // is regularized, [N, 1, ...] from 0 to 1, of the displacement's resolution.
  // Undefined for others.
  at::Tensor weights = {};
  // Of a hypernetwork: what it was found with, each from 0 to 1. The last is
  // the regularizer's share of the loss; a first of two scales the prior of the
  // weights.
  std::vector<double> hyperparameters = {};
};

// A network that registers a moving image onto a fixed one: what training and
// inference need to know of a model. Parameters, buffers and submodules have
// the names of MIR's (Python) classes, so that state_dicts fit both ways.
//
// A model is built on the CPU in float32; `to` moves it to another device or
// dtype. Calls may not overlap.
class RegistrationModel : public torch::nn::Module {
 public:
  // Registers `moving` onto `fixed`.
  //
  //   moving, fixed  [N, C, ...]  floating, of equal shape; each spatial size a
  //                               multiple of `SizeMultiple()`
  //
  // Differentiable in the images and the parameters. Under autocast the
  // network runs in 16 bits; warps and integration stay in float32.
  //
  // Throws c10::ValueError where a shape is not as above.
  virtual Registration Register(const at::Tensor& moving,
                                const at::Tensor& fixed) = 0;

  // One entry per spatial axis: what the sizes must be multiples of.
  virtual std::vector<int64_t> SizeMultiple() const = 0;

  // State_dict keys that files of MIR hold and this model computes instead:
  // the sampling grids, functions of the image size alone. A loader drops
  // them, whatever their shape; they are not written.
  virtual std::vector<std::string> DerivedKeys() const { return {}; }

  // How many hyperparameters a hypernetwork takes; 0 for other models.
  virtual int64_t HyperparameterCount() const { return 0; }

  // Those that `Register` uses; 0.3 each until they are set, MIR's value for
  // validation.
  std::vector<double> hyperparameters() const {
    return hyperparameters_.empty()
               ? std::vector<double>(HyperparameterCount(), 0.3)
               : hyperparameters_;
  }

  // Throws c10::ValueError unless there are as many as the model takes, from 0
  // to 1.
  void SetHyperparameters(std::vector<double> values);

 protected:
  // `hyperparameters()` as hypernetworks take them: [1, n] float32.
  at::Tensor HyperparameterRow() const;

 private:
  std::vector<double> hyperparameters_;
};

// Builds a model of one family from its configuration. Each call makes an own
// model (replicas are built anew, never cloned). INVALID_ARGUMENT where the
// configuration is not one of the family's.
using ModelFactory =
    std::function<absl::StatusOr<std::shared_ptr<RegistrationModel>>(
        const nlohmann::json& config)>;

}  // namespace mir::models

#endif  // MIR_MODELS_REGISTRATION_MODEL_H_
