#include "mir/geometry/kernels/slabs.h"

#include <algorithm>

namespace mir::geometry::kernels {
namespace {

constexpr int64_t kThinnest = 4;

}  // namespace

Phases CutIntoSlabs(int64_t planes, const std::vector<int64_t>& first,
                    const std::vector<int64_t>& last) {
  Phases phases;
  const auto samples = static_cast<int64_t>(first.size()) / planes;
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int64_t* low = first.data() + sample * planes;
    const int64_t* high = last.data() + sample * planes;
    // Slabs of a list overlap if a plane writes below what an earlier one did.
    const auto disjoint = [&](int64_t thickness) {
      std::array<int64_t, 2> reached = {-1, -1};
      for (int64_t begin = 0; begin < planes; begin += thickness) {
        const int64_t end = std::min(begin + thickness, planes);
        int64_t& before = reached[begin / thickness % 2];
        if (*std::min_element(low + begin, low + end) <= before) return false;
        before = *std::max_element(high + begin, high + end);
      }
      return true;
    };
    int64_t thickness = kThinnest;
    while (thickness < planes && !disjoint(thickness)) thickness *= 2;
    for (int64_t begin = 0; begin < planes; begin += thickness) {
      phases[begin / thickness % 2].push_back(
          {sample, begin, std::min(begin + thickness, planes)});
    }
  }
  return phases;
}

}  // namespace mir::geometry::kernels
