#ifndef MIR_TRAINING_TRAIN_MAIN_H_
#define MIR_TRAINING_TRAIN_MAIN_H_

#include <string>

#include "mir/models/registration_model.h"

namespace mir::training {

// The whole of a program `train_<model>`: reads its flags, joins its peers (as
// torchrun, our runner or a scheduler say in the environment; else it is
// alone), trains, and returns the exit code that mir/launch/exit_codes.h
// documents. Errors are one line on stderr, by the rank that had them.
int TrainMain(int argc, char** argv, const std::string& model,
              const models::ModelFactory& factory);

}  // namespace mir::training

#endif  // MIR_TRAINING_TRAIN_MAIN_H_
