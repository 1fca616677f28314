#ifndef MIR_GEOMETRY_KERNELS_STRIDED_ROWS_H_
#define MIR_GEOMETRY_KERNELS_STRIDED_ROWS_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace mir::geometry::kernels {

// Rows along w of a tensor [N, C, D, H, W] or [N, C, H, W] of any strides, such
// as the gradient of a sum, which is one number expanded: without a contiguous
// copy of all of it. The tensor must outlive this.
template <typename T>
class StridedRows {
 public:
  explicit StridedRows(const at::Tensor& tensor)
      : data_(tensor.const_data_ptr<T>()),
        width_(tensor.size(-1)),
        height_(tensor.size(-2)),
        strides_{tensor.stride(0), tensor.stride(1),
                 tensor.dim() == 5 ? tensor.stride(2) : 0, tensor.stride(-2),
                 tensor.stride(-1)} {}

  // Row `index` of a channel of a sample, counted through the spatial axes but
  // w. It lies in `buffer`, a row's memory, where the tensor has gaps.
  const T* Row(int64_t sample, int64_t channel, int64_t index,
               T* buffer) const {
    const T* const row = data_ + sample * strides_[0] + channel * strides_[1] +
                         index / height_ * strides_[2] +
                         index % height_ * strides_[3];
    if (strides_[4] == 1) return row;
    for (int64_t w = 0; w < width_; ++w) buffer[w] = row[w * strides_[4]];
    return buffer;
  }

 private:
  const T* data_;
  int64_t width_, height_;
  std::array<int64_t, 5> strides_;
};

}  // namespace mir::geometry::kernels

#endif  // MIR_GEOMETRY_KERNELS_STRIDED_ROWS_H_
