#ifndef MIR_TRAINING_SOURCES_H_
#define MIR_TRAINING_SOURCES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/data/source.h"
#include "mir/training/options.h"

namespace mir::training {

// What a run trains and validates on.
struct Sources {
  std::shared_ptr<const data::PairSource> training;
  std::shared_ptr<const data::PairSource> validation;  // Null where none.
  std::vector<std::string> notes;  // What the user should know of the data.
};

// Opens the source that `options` choose: a dataset list, an atlas to deform,
// or else synthetic shapes. Errors name the file or the entry; those of an
// option carry exit code 2.
absl::StatusOr<Sources> MakeSources(const TrainOptions& options);

}  // namespace mir::training

#endif  // MIR_TRAINING_SOURCES_H_
