#include "mir/geometry/kernels/not_finite.h"

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <string>

namespace mir::geometry::kernels {
namespace {

template <typename T>
void Throw(const char* what, const at::Tensor& field, int64_t first_row) {
  const int64_t dims = field.size(1), width = field.size(-1);
  const int64_t voxels = field.numel() / (field.size(0) * dims);
  const int64_t rows = voxels / width;
  const int64_t sample = first_row / rows, row = first_row % rows;
  const T* data = field.const_data_ptr<T>();
  for (int64_t w = 0; w < width; ++w) {
    for (int64_t channel = 0; channel < dims; ++channel) {
      const T value =
          data[(sample * dims + channel) * voxels + row * width + w];
      if (std::isfinite(value)) continue;
      std::string index =
          std::to_string(sample) + ", " + std::to_string(channel) + ", ";
      if (dims == 3) index += std::to_string(row / field.size(3)) + ", ";
      index += std::to_string(row % field.size(-2)) + ", " + std::to_string(w);
      TORCH_CHECK_VALUE(false, what, "[", index, "] is ", value,
                        "; wanted finite values (in ", field.scalar_type(),
                        ")");
    }
  }
  TORCH_INTERNAL_ASSERT(false, "row ", first_row, " is finite");
}

}  // namespace

void NotFiniteRows::Add(int64_t row) {
  int64_t known = first_.load();
  while (row < known && !first_.compare_exchange_weak(known, row)) {
  }
}

void NotFiniteRows::Check(const char* what, const at::Tensor& field) const {
  if (first_ == kNone) return;
  AT_DISPATCH_FLOATING_TYPES(field.scalar_type(), "NotFiniteRows",
                             [&] { Throw<scalar_t>(what, field, first_); });
}

}  // namespace mir::geometry::kernels
