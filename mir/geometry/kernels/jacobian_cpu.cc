#include "mir/geometry/kernels/jacobian_cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace mir::geometry::kernels {
namespace {

// How the derivative at one index of an axis is taken: the difference of two
// neighbours, times a scale.
template <typename T>
struct Stencil {
  int64_t low, high;  // Relative to the index.
  T scale;

  Stencil(int64_t index, int64_t size)
      : low(index > 0 ? -1 : 0),
        high(index < size - 1 ? 1 : 0),
        scale(high - low == 2 ? T(0.5) : T(1)) {}
};

template <typename T>
class Row {
 public:
  // `size` is (D, H, W), of a plane (1, H, W).
  Row(const std::array<int64_t, 3>& size, int dims)
      : size_(size), dims_(dims), derivatives_(dims * dims * size[2]) {}

  // The determinants of row (d, h) of a sample's displacement.
  void Compute(const T* field, int64_t d, int64_t h, T* determinant) {
    const int64_t width = size_[2];
    const int64_t voxels = size_[0] * size_[1] * width;
    for (int i = 0; i < dims_; ++i) {
      const T* row = field + i * voxels + (d * size_[1] + h) * width;
      int j = 0;
      if (dims_ == 3) {
        Across(row, Stencil<T>(d, size_[0]), size_[1] * width, Of(i, j++));
      }
      Across(row, Stencil<T>(h, size_[1]), width, Of(i, j++));
      Along(row, Of(i, j));
      T* diagonal = Of(i, i);
      for (int64_t w = 0; w < width; ++w) diagonal[w] = diagonal[w] + 1;
    }
    if (dims_ == 3) {
      const T *a = Of(0, 0), *b = Of(0, 1), *c = Of(0, 2);
      const T *e = Of(1, 0), *f = Of(1, 1), *g = Of(1, 2);
      const T *k = Of(2, 0), *l = Of(2, 1), *m = Of(2, 2);
      for (int64_t w = 0; w < width; ++w) {
        determinant[w] = a[w] * (f[w] * m[w] - g[w] * l[w]) -
                         b[w] * (e[w] * m[w] - g[w] * k[w]) +
                         c[w] * (e[w] * l[w] - f[w] * k[w]);
      }
    } else {
      const T *a = Of(0, 0), *b = Of(0, 1), *c = Of(1, 0), *d = Of(1, 1);
      for (int64_t w = 0; w < width; ++w) {
        determinant[w] = a[w] * d[w] - b[w] * c[w];
      }
    }
  }

 private:
  // The row of derivatives of component i along axis j.
  T* Of(int i, int j) {
    return derivatives_.data() + (i * dims_ + j) * size_[2];
  }

  void Across(const T* row, const Stencil<T>& stencil, int64_t stride,
              T* derivative) const {
    const T* low = row + stencil.low * stride;
    const T* high = row + stencil.high * stride;
    for (int64_t w = 0; w < size_[2]; ++w) {
      derivative[w] = (high[w] - low[w]) * stencil.scale;
    }
  }

  void Along(const T* row, T* derivative) const {
    const int64_t last = size_[2] - 1;
    for (int64_t w = 1; w < last; ++w) {
      derivative[w] = (row[w + 1] - row[w - 1]) * T(0.5);
    }
    derivative[0] = last > 0 ? row[1] - row[0] : T(0);
    if (last > 0) derivative[last] = row[last] - row[last - 1];
  }

  std::array<int64_t, 3> size_;
  int dims_;
  std::vector<T> derivatives_;
};

template <typename T>
void Forward(const at::Tensor& displacement, const at::Tensor& determinants) {
  const int dims = static_cast<int>(displacement.dim()) - 2;
  const std::array<int64_t, 3> size = {dims == 3 ? displacement.size(2) : 1,
                                       displacement.size(-2),
                                       displacement.size(-1)};
  const int64_t rows = size[0] * size[1];
  const T* field = displacement.const_data_ptr<T>();
  T* out = determinants.mutable_data_ptr<T>();
  at::parallel_for(0, displacement.size(0) * rows,
                   std::max<int64_t>(1, 32768 / size[2]),
                   [&](int64_t begin, int64_t end) {
                     Row<T> row(size, dims);
                     for (int64_t index = begin; index < end; ++index) {
                       const int64_t in_sample = index % rows;
                       row.Compute(field + index / rows * dims * rows * size[2],
                                   in_sample / size[1], in_sample % size[1],
                                   out + index * size[2]);
                     }
                   });
}

}  // namespace

at::Tensor JacobianForward(const at::Tensor& displacement) {
  std::vector<int64_t> sizes = displacement.sizes().vec();
  sizes.erase(sizes.begin() + 1);
  at::Tensor determinants = at::empty(sizes, displacement.options());
  AT_DISPATCH_FLOATING_TYPES(
      displacement.scalar_type(), "JacobianDeterminant",
      [&] { Forward<scalar_t>(displacement, determinants); });
  return determinants;
}

}  // namespace mir::geometry::kernels
