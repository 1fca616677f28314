#include "tools/command/volume_size.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace mir::tools {

absl::StatusOr<std::vector<int64_t>> ParseVolumeSize(
    absl::string_view option, absl::string_view text, int64_t least,
    int64_t most, absl::string_view example) {
  std::vector<int64_t> sizes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    sizes.emplace_back();
    if (!absl::SimpleAtoi(part, &sizes.back()) || sizes.back() < least ||
        sizes.back() > most) {
      sizes.clear();
      break;
    }
  }
  if (sizes.size() == 3) return sizes;
  return absl::InvalidArgumentError(absl::StrCat(
      option, " wants three sizes such as ", example, ", not '", text, "'"));
}

}  // namespace mir::tools
