#ifndef MIR_TOOLS_REGISTER_TRAINED_MODEL_H_
#define MIR_TOOLS_REGISTER_TRAINED_MODEL_H_

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/data/prepare.h"
#include "mir/geometry/warp_options.h"
#include "mir/models/registration_model.h"

namespace mir::tools {

// A model with its weights, and how its training treated images.
struct TrainedModel {
  std::string name;
  std::shared_ptr<models::RegistrationModel> model;  // In eval mode.
  geometry::WarpConvention convention =
      geometry::WarpConvention::kMirCompatible;
  // How images were brought before it.
  data::PrepareOptions prepare;
};

struct TrainedModelOptions {
  std::string weights;  // A checkpoint of ours or of MIR (.pth, .pth.tar).
  // For weights that do not say what they are; empty otherwise.
  std::string model;
  std::string configuration;
  std::string intensity;
  // Of a hypernetwork; empty takes the training's own for validation.
  std::vector<double> hyperparameters;
};

// Opens a checkpoint and builds its model on `device`. What the checkpoint does
// not say comes from `options`: files of MIR say nothing, so they need `model`
// (and a configuration other than `default`), and are taken to have been
// trained with MIR's warp convention, on arrays as files store them, with
// intensities in 0..1.
//
// Errors carry exit code 12, or 2 where an option is missing or unknown.
absl::StatusOr<TrainedModel> LoadTrainedModel(
    const TrainedModelOptions& options, const c10::Device& device);

}  // namespace mir::tools

#endif  // MIR_TOOLS_REGISTER_TRAINED_MODEL_H_
