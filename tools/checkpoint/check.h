#ifndef MIR_TOOLS_CHECKPOINT_CHECK_H_
#define MIR_TOOLS_CHECKPOINT_CHECK_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/models/registration_model.h"
#include "tools/checkpoint/weights_file.h"

namespace mir::tools {

// Which model weights are for, as the command line says it.
struct ModelChoice {
  std::string model;                 // Empty: what the file says of itself.
  std::string configuration;         // Likewise; a name or a .json file.
  std::vector<std::string> changes;  // KEY=VALUE.
};

struct ChosenModel {
  std::string name;
  std::string configuration;  // "bj", or "of the file".
  std::shared_ptr<models::RegistrationModel> model;
};

// Builds the model of a choice. Errors carry exit code 2: an unknown name, or
// none where the file does not say.
absl::StatusOr<ChosenModel> BuildChosen(const ModelChoice& choice,
                                        const WeightsFile& file);

// Whether the weights fit the model strictly, without the prefixes of wrappers;
// every name and shape that does not; and, where they do not fit, the models
// and configurations of models.json which they do fit. Looks at no values.
Report Check(const WeightsFile& file, const ChosenModel& chosen);

// The same in lines, and in one: "fits voxelmorph (bj)", or that it does not.
std::string CheckText(const Report& report);
std::string CheckVerdict(const Report& report);

}  // namespace mir::tools

#endif  // MIR_TOOLS_CHECKPOINT_CHECK_H_
