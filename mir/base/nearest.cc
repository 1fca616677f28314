#include "mir/base/nearest.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace mir {
namespace {

// Levenshtein's distance, one row at a time.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string Nearest(absl::string_view name,
                    const std::vector<std::string>& candidates) {
  const std::string wanted = absl::AsciiStrToLower(name);
  std::string nearest;
  size_t smallest = std::string::npos;
  for (const std::string& candidate : candidates) {
    const size_t distance =
        EditDistance(wanted, absl::AsciiStrToLower(candidate));
    const size_t longer = std::max(wanted.size(), candidate.size());
    if (distance < smallest && distance <= std::max<size_t>(2, longer / 3) &&
        distance < longer) {
      smallest = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string DidYouMean(absl::string_view name,
                       const std::vector<std::string>& candidates) {
  const std::string nearest = Nearest(name, candidates);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace mir
