#ifndef MIR_DATA_INTENSITY_H_
#define MIR_DATA_INTENSITY_H_

#include <ATen/core/ATen_fwd.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace mir::data {

// How an image's values are brought to the range that a network wants. Recorded
// in checkpoints as text, and applied to each image by itself.
struct Intensity {
  enum class Kind { kNone, kMinMax, kPercentile, kWindow, kScale };

  Kind kind = Kind::kMinMax;
  double low = 0;     // A percentile in [0, 100], or a value.
  double high = 0;    // Likewise, above `low`.
  double factor = 1;  // Of kScale.

  // The text that ParseIntensity reads back as the same.
  std::string ToString() const;
};

// Parses
//   "minmax"            the least value becomes 0, the largest 1
//   "percentile:LO,HI"  those percentiles (0 to 100) become 0 and 1
//   "window:LO,HI"      those values become 0 and 1 (CT: window:-1000,500)
//   "scale:F"           values are multiplied by F
//   "none"              values stay
// INVALID_ARGUMENT says what was wanted.
absl::StatusOr<Intensity> ParseIntensity(absl::string_view text);

// Maps the values of `image` (floating, any shape, finite), as float32. The
// first three kinds are clamped to [0, 1]; where the least and the largest (or
// the percentiles) are equal, all becomes 0. Percentiles lie between values as
// numpy's do.
//
// Throws c10::ValueError for an image that is empty or not floating.
at::Tensor ApplyIntensity(const at::Tensor& image, const Intensity& intensity);

}  // namespace mir::data

#endif  // MIR_DATA_INTENSITY_H_
