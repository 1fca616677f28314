#include "mir/geometry/kernels/jacobian_cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "mir/geometry/kernels/slabs.h"
#include "mir/geometry/kernels/strided_rows.h"

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

// A volume of two dimensions is one of three whose first axis has one voxel,
// and no component or derivative.
struct Shape {
  int dims;
  std::array<int64_t, 3> size;
  int64_t batch, rows, voxels;  // Rows and voxels of a sample.

  explicit Shape(const at::Tensor& displacement)
      : dims(static_cast<int>(displacement.dim()) - 2),
        size{dims == 3 ? displacement.size(2) : 1, displacement.size(-2),
             displacement.size(-1)},
        batch(displacement.size(0)),
        rows(size[0] * size[1]),
        voxels(rows * size[2]) {}
};

// The Jacobian of one row of voxels.
template <typename T>
class Row {
 public:
  explicit Row(const Shape& shape)
      : shape_(shape),
        entries_(shape.dims * shape.dims * shape.size[2]),
        to_entry_(shape.size[2]) {}

  // Takes row `index` of a sample's displacement.
  void Differentiate(const T* field, int64_t index) {
    for (int i = 0; i < shape_.dims; ++i) {
      const T* row = field + i * shape_.voxels + index * shape_.size[2];
      for (int j = 0; j + 1 < shape_.dims; ++j) {
        Across(row, StencilAcross(j, index), StrideAcross(j), Entry(i, j));
      }
      Along(row, Entry(i, shape_.dims - 1));
      T* diagonal = Entry(i, i);
      for (int64_t w = 0; w < width(); ++w) diagonal[w] = diagonal[w] + 1;
    }
  }

  void Determinants(T* determinant) {
    if (shape_.dims == 3) {
      const T *a = Entry(0, 0), *b = Entry(0, 1), *c = Entry(0, 2);
      const T *e = Entry(1, 0), *f = Entry(1, 1), *g = Entry(1, 2);
      const T *k = Entry(2, 0), *l = Entry(2, 1), *m = Entry(2, 2);
      for (int64_t w = 0; w < width(); ++w) {
        determinant[w] = a[w] * (f[w] * m[w] - g[w] * l[w]) -
                         b[w] * (e[w] * m[w] - g[w] * k[w]) +
                         c[w] * (e[w] * l[w] - f[w] * k[w]);
      }
    } else {
      const T *a = Entry(0, 0), *b = Entry(0, 1);
      const T *c = Entry(1, 0), *d = Entry(1, 1);
      for (int64_t w = 0; w < width(); ++w) {
        determinant[w] = a[w] * d[w] - b[w] * c[w];
      }
    }
  }

  // Adds to a sample's `field_gradient` what `gradient`, that to the row's
  // determinants, gives it: to rows at most one away along each axis.
  void AddGradient(const T* gradient, int64_t index, T* field_gradient) {
    for (int i = 0; i < shape_.dims; ++i) {
      T* row = field_gradient + i * shape_.voxels + index * shape_.size[2];
      for (int j = 0; j < shape_.dims; ++j) {
        ToEntry(gradient, i, j);
        if (j + 1 < shape_.dims) {
          AddAcross(StencilAcross(j, index), StrideAcross(j), row);
        } else {
          AddAlong(row);
        }
      }
    }
  }

 private:
  int64_t width() const { return shape_.size[2]; }

  // The row of derivatives of component i along axis j, of x + displacement.
  T* Entry(int i, int j) {
    return entries_.data() + (i * shape_.dims + j) * width();
  }

  // Of axis j, which is not the last.
  Stencil<T> StencilAcross(int j, int64_t index) const {
    const bool along_d = shape_.dims == 3 && j == 0;
    return along_d ? Stencil<T>(index / shape_.size[1], shape_.size[0])
                   : Stencil<T>(index % shape_.size[1], shape_.size[1]);
  }
  int64_t StrideAcross(int j) const {
    return shape_.dims == 3 && j == 0 ? shape_.size[1] * width() : width();
  }

  void Across(const T* row, const Stencil<T>& stencil, int64_t stride,
              T* derivative) const {
    const T* low = row + stencil.low * stride;
    const T* high = row + stencil.high * stride;
    for (int64_t w = 0; w < width(); ++w) {
      derivative[w] = (high[w] - low[w]) * stencil.scale;
    }
  }

  void Along(const T* row, T* derivative) const {
    const int64_t last = width() - 1;
    for (int64_t w = 1; w < last; ++w) {
      derivative[w] = (row[w + 1] - row[w - 1]) * T(0.5);
    }
    derivative[0] = last > 0 ? row[1] - row[0] : T(0);
    if (last > 0) derivative[last] = row[last] - row[last - 1];
  }

  // Sets to_entry_ to the gradient to entry (i, j): the determinant's, times
  // the cofactor.
  void ToEntry(const T* gradient, int i, int j) {
    T* to_entry = to_entry_.data();
    if (shape_.dims == 2) {
      const T* opposite = Entry(1 - i, 1 - j);
      const T sign = i == j ? T(1) : T(-1);
      for (int64_t w = 0; w < width(); ++w) {
        to_entry[w] = gradient[w] * (sign * opposite[w]);
      }
      return;
    }
    // In turn, such that the sign is always +.
    const int i1 = (i + 1) % 3, i2 = (i + 2) % 3;
    const int j1 = (j + 1) % 3, j2 = (j + 2) % 3;
    const T *a = Entry(i1, j1), *b = Entry(i1, j2);
    const T *c = Entry(i2, j1), *d = Entry(i2, j2);
    for (int64_t w = 0; w < width(); ++w) {
      to_entry[w] = gradient[w] * (a[w] * d[w] - b[w] * c[w]);
    }
  }

  void AddAcross(const Stencil<T>& stencil, int64_t stride, T* row) const {
    if (stencil.low == stencil.high) return;  // One voxel: no derivative.
    T* low = row + stencil.low * stride;
    T* high = row + stencil.high * stride;
    for (int64_t w = 0; w < width(); ++w) {
      const T part = to_entry_[w] * stencil.scale;
      high[w] += part;
      low[w] -= part;
    }
  }

  void AddAlong(T* row) const {
    const int64_t last = width() - 1;
    if (last == 0) return;
    for (int64_t w = 1; w < last; ++w) row[w + 1] += to_entry_[w] * T(0.5);
    for (int64_t w = 1; w < last; ++w) row[w - 1] -= to_entry_[w] * T(0.5);
    row[1] += to_entry_[0];
    row[0] -= to_entry_[0];
    row[last] += to_entry_[last];
    row[last - 1] -= to_entry_[last];
  }

  const Shape& shape_;
  std::vector<T> entries_;
  std::vector<T> to_entry_;
};

template <typename T>
void Forward(const at::Tensor& displacement, const at::Tensor& determinants) {
  const Shape shape(displacement);
  const T* field = displacement.const_data_ptr<T>();
  T* out = determinants.mutable_data_ptr<T>();
  at::parallel_for(0, shape.batch * shape.rows,
                   std::max<int64_t>(1, 32768 / shape.size[2]),
                   [&](int64_t begin, int64_t end) {
                     Row<T> row(shape);
                     for (int64_t index = begin; index < end; ++index) {
                       row.Differentiate(field + index / shape.rows *
                                                     shape.dims * shape.voxels,
                                         index % shape.rows);
                       row.Determinants(out + index * shape.size[2]);
                     }
                   });
}

template <typename T>
void Backward(const at::Tensor& gradient, const at::Tensor& displacement,
              const at::Tensor& result) {
  const Shape shape(displacement);
  const T* field = displacement.const_data_ptr<T>();
  const at::Tensor with_channel = gradient.unsqueeze(1);
  const StridedRows<T> from(with_channel);
  T* out = result.mutable_data_ptr<T>();
  const int64_t planes = shape.size[3 - shape.dims];
  const int64_t rows_per_plane = shape.rows / planes;
  std::vector<int64_t> first, last;  // What each plane writes to.
  for (int64_t plane = 0; plane < shape.batch * planes; ++plane) {
    first.push_back(std::max<int64_t>(plane % planes - 1, 0));
    last.push_back(std::min(plane % planes + 1, planes - 1));
  }
  const auto work = [&](const Slab& slab, Row<T>* row, T* buffer) {
    const int64_t sample = slab.sample * shape.dims * shape.voxels;
    for (int64_t index = slab.begin * rows_per_plane;
         index < slab.end * rows_per_plane; ++index) {
      row->Differentiate(field + sample, index);
      row->AddGradient(from.Row(slab.sample, /*channel=*/0, index, buffer),
                       index, out + sample);
    }
  };
  for (const std::vector<Slab>& slabs : CutIntoSlabs(planes, first, last)) {
    at::parallel_for(0, static_cast<int64_t>(slabs.size()), 1,
                     [&](int64_t begin, int64_t end) {
                       Row<T> row(shape);
                       std::vector<T> buffer(shape.size[2]);
                       for (int64_t i = begin; i < end; ++i) {
                         work(slabs[i], &row, buffer.data());
                       }
                     });
  }
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

at::Tensor JacobianBackward(const at::Tensor& gradient,
                            const at::Tensor& displacement) {
  at::Tensor result = at::zeros_like(displacement);
  AT_DISPATCH_FLOATING_TYPES(
      displacement.scalar_type(), "JacobianDeterminant",
      [&] { Backward<scalar_t>(gradient, displacement, result); });
  return result;
}

}  // namespace mir::geometry::kernels
