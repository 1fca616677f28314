#ifndef MIR_BASE_NEAREST_H_
#define MIR_BASE_NEAREST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace mir {

// The candidate that `name` is most likely a misspelling of: the one with the
// smallest edit distance, case ignored, the first among equals. Empty where
// none is within a third of the longer word's length (at least two edits).
std::string Nearest(absl::string_view name,
                    const std::vector<std::string>& candidates);

// "; did you mean NAME?" where one is near, else empty: the end of an error.
std::string DidYouMean(absl::string_view name,
                       const std::vector<std::string>& candidates);

}  // namespace mir

#endif  // MIR_BASE_NEAREST_H_
