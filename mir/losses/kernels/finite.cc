#include "mir/losses/kernels/finite.h"

#include <ATen/Parallel.h>

#include <atomic>

#include "mir/base/target_clones.h"

namespace mir::losses::kernels {

namespace finite_rows {

// A value times 0 is 0 where it is finite, otherwise NaN, which stays.
template <typename T>
[[gnu::always_inline]] inline bool FiniteOf(const T* values, int64_t count) {
  T lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += values[i + lane] * 0;
  }
  T sum = 0;
  for (int lane = 0; lane < 16; ++lane) sum += lanes[lane];
  for (; i < count; ++i) sum += values[i] * 0;
  return sum == 0;
}

MIR_TARGET_CLONES bool Finite(const float* values, int64_t count) {
  return FiniteOf(values, count);
}
MIR_TARGET_CLONES bool Finite(const double* values, int64_t count) {
  return FiniteOf(values, count);
}

}  // namespace finite_rows

namespace {

template <typename T>
bool AllFiniteOf(const T* values, int64_t count) {
  std::atomic<bool> finite = true;
  at::parallel_for(0, count, 1 << 15, [&](int64_t begin, int64_t end) {
    if (!finite_rows::Finite(values + begin, end - begin)) finite = false;
  });
  return finite;
}

}  // namespace

bool AllFinite(const float* values, int64_t count) {
  return AllFiniteOf(values, count);
}
bool AllFinite(const double* values, int64_t count) {
  return AllFiniteOf(values, count);
}

}  // namespace mir::losses::kernels
