// The main of every `train_<model>`; mir_training_binary sets the name.

#include <nlohmann/json.hpp>

#include "mir/models/registry.h"
#include "mir/training/train_main.h"

int main(int argc, char** argv) {
  return mir::training::TrainMain(
      argc, argv, MIR_MODEL_NAME, [](const nlohmann::json& configuration) {
        return mir::models::BuildModel(MIR_MODEL_NAME, configuration);
      });
}
