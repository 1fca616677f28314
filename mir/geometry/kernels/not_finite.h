#ifndef MIR_GEOMETRY_KERNELS_NOT_FINITE_H_
#define MIR_GEOMETRY_KERNELS_NOT_FINITE_H_

#include <ATen/core/ATen_fwd.h>

#include <atomic>
#include <cstdint>
#include <limits>

namespace mir::geometry::kernels {

// Collects, from any thread, the rows of a field that hold NaN or infinity.
// Rows count through samples and then through the spatial axes but w.
class NotFiniteRows {
 public:
  void Add(int64_t row);

  // Throws c10::ValueError with the index of the first value of the first row
  // that was added, if any. `field` is contiguous, [N, dims, spatial axes...];
  // the message begins with "<what>[index] is".
  void Check(const char* what, const at::Tensor& field) const;

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> first_{kNone};
};

}  // namespace mir::geometry::kernels

#endif  // MIR_GEOMETRY_KERNELS_NOT_FINITE_H_
