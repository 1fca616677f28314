#ifndef MIR_TOOLS_CHECKPOINT_WEIGHTS_FILE_H_
#define MIR_TOOLS_CHECKPOINT_WEIGHTS_FILE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mir/checkpoint/read_options.h"
#include "mir/checkpoint/state_dict.h"
#include "mir/checkpoint/value.h"

namespace mir::tools {

// What a command found out, in the order in which --json prints it.
using Report = nlohmann::ordered_json;

// A checkpoint and the weights in it.
struct WeightsFile {
  std::string path;
  checkpoint::Value content;
  checkpoint::StateDict state;
  std::string key;  // Where in the file the weights stand; empty: at the top.
};

// Reads a file of torch.save, of ours or of safetensors. With `strip_prefix`
// the names come without `module.` and `_orig_mod.`. Errors name the file and
// carry exit code 12.
absl::StatusOr<WeightsFile> OpenWeights(const std::string& path,
                                        const checkpoint::ReadOptions& options,
                                        bool strip_prefix);

// `status` with the file named in front, and the exit code of checkpoints.
absl::Status AtFile(const std::string& path, const absl::Status& status);

// A value in a few words: "'bf16'", "3", "a dict of 4".
std::string ShortText(const checkpoint::Value& value);

// "1.2 MB".
std::string SizeText(uint64_t nbytes);

// "[2, 3]".
std::string ShapeText(const at::Tensor& tensor);

}  // namespace mir::tools

#endif  // MIR_TOOLS_CHECKPOINT_WEIGHTS_FILE_H_
