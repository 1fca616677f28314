#include "mir/precision/precision.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/nearest.h"

namespace mir::precision {
namespace {

constexpr Precision kPrecisions[] = {Precision::kFloat32, Precision::kFloat16,
                                     Precision::kBFloat16};

}  // namespace

absl::string_view PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kFloat32:
      return "fp32";
    case Precision::kFloat16:
      return "fp16";
    case Precision::kBFloat16:
      return "bf16";
  }
  return "unknown";
}

absl::StatusOr<Precision> ParsePrecision(absl::string_view name) {
  std::vector<std::string> names;
  for (const Precision precision : kPrecisions) {
    if (name == PrecisionName(precision)) return precision;
    names.emplace_back(PrecisionName(precision));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown precision \"", name, "\": wanted ",
                   absl::StrJoin(names, ", "), DidYouMean(name, names)));
}

}  // namespace mir::precision
