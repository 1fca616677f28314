#ifndef MIR_TOOLS_COMMAND_VOLUME_SIZE_H_
#define MIR_TOOLS_COMMAND_VOLUME_SIZE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace mir::tools {

// The three sizes of "160,192,224", each from `least` to `most`.
// INVALID_ARGUMENT names `option`, with `example` for what it wants.
absl::StatusOr<std::vector<int64_t>> ParseVolumeSize(absl::string_view option,
                                                     absl::string_view text,
                                                     int64_t least,
                                                     int64_t most,
                                                     absl::string_view example);

}  // namespace mir::tools

#endif  // MIR_TOOLS_COMMAND_VOLUME_SIZE_H_
