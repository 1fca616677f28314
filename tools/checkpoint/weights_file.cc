#include "tools/checkpoint/weights_file.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "mir/base/exit_status.h"
#include "mir/checkpoint/archive.h"
#include "mir/launch/exit_codes.h"

namespace mir::tools {

absl::Status AtFile(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return WithExitCode(
      absl::StrContains(status.message(), path)
          ? status
          : absl::Status(status.code(),
                         absl::StrCat(path, ": ", status.message())),
      launch::kCheckpoint);
}

absl::StatusOr<WeightsFile> OpenWeights(const std::string& path,
                                        const checkpoint::ReadOptions& options,
                                        bool strip_prefix) {
  absl::StatusOr<checkpoint::Value> content =
      checkpoint::ReadCheckpoint(path, options);
  if (!content.ok()) return AtFile(path, content.status());
  absl::StatusOr<checkpoint::StateDict> state =
      checkpoint::FindStateDict(*content);
  if (state.ok() && strip_prefix) {
    state = checkpoint::StripModulePrefix(*state);
  }
  if (!state.ok()) return AtFile(path, state.status());
  std::string key = checkpoint::WeightsKey(*content);
  return WeightsFile{path, *std::move(content), *std::move(state),
                     std::move(key)};
}

std::string ShortText(const checkpoint::Value& value) {
  using Kind = checkpoint::Value::Kind;
  constexpr size_t kShown = 60;
  switch (value.kind()) {
    case Kind::kBool:
      return *value.boolean() ? "True" : "False";
    case Kind::kInt:
      return absl::StrCat(*value.integer());
    case Kind::kFloat:
      return absl::StrCat(*value.number());
    case Kind::kString:
      return absl::StrCat(
          "'", absl::Utf8SafeCHexEscape(value.string()->substr(0, kShown)),
          value.string()->size() > kShown ? "...'" : "'");
    default:
      return absl::Utf8SafeCHexEscape(value.Describe());
  }
}

std::string SizeText(uint64_t nbytes) {
  if (nbytes < 1000) return absl::StrCat(nbytes, " B");
  double size = static_cast<double>(nbytes);
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; size >= 999.5 && unit + 1 < std::size(units); ++unit) size /= 1000;
  return absl::StrFormat("%.*f %s", size < 9.95 ? 1 : 0, size, units[unit]);
}

std::string ShapeText(const at::Tensor& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]");
}

}  // namespace mir::tools
