#include "mir/geometry/kernels/warp_cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "mir/geometry/kernels/linear_rows.h"
#include "mir/geometry/kernels/not_finite.h"
#include "mir/geometry/kernels/slabs.h"
#include "mir/geometry/kernels/strided_rows.h"

namespace mir::geometry::kernels {
namespace {

constexpr int64_t kVoxelsPerTask = 16384;

// A volume of two dimensions is one of three whose first axis has one voxel
// and no displacement.
struct Shape {
  int64_t batch;
  int64_t channels;
  std::array<int64_t, 3> size;
  int dims;

  explicit Shape(const at::Tensor& image)
      : batch(image.size(0)),
        channels(image.size(1)),
        size{image.dim() == 5 ? image.size(2) : 1, image.size(-2),
             image.size(-1)},
        dims(static_cast<int>(image.dim()) - 2) {}

  int64_t rows() const { return size[0] * size[1]; }
  int64_t voxels() const { return rows() * size[2]; }
  int64_t rows_per_task() const {
    return std::max<int64_t>(1, kVoxelsPerTask / size[2]);
  }
  // The axis that slabs are cut along, and the rows in one of its planes.
  int slab_axis() const { return 3 - dims; }
  int64_t rows_per_plane() const { return dims == 3 ? size[1] : 1; }
};

template <typename T>
T Clamp(T value, T low, T high) {
  value = value > low ? value : low;
  return value < high ? value : high;
}

// Rounds half to even: adding the number whose spacing is 1 leaves no room
// for a fraction.
template <typename T>
T Round(T value) {
  constexpr T kSpacingOne =
      T(3) * (int64_t{1} << std::numeric_limits<T>::digits) / 4;
  return (value + kSpacingOne) - kSpacingOne;
}

// What the voxels of one row read, for every kind of reading: mirrored
// positions are read as clamped ones, nearest voxels as linear interpolation
// at rounded positions.
template <typename T>
class RowReader {
 public:
  RowReader(const Shape& shape, const WarpOptions& options)
      : shape_(shape),
        options_(options),
        axes_(Axes(true)),
        prepared_(options.interpolation == Interpolation::kNearest ||
                  options.outside == Outside::kReflect),
        prepared_axes_(Axes(false)),
        row_(shape.size[2]),
        unused_row_(shape.size[2]),
        gradient_row_(shape.size[2]) {
    for (int axis = 0; axis < 3; ++axis) {
      prepared_axes_[axis].slope = axes_[axis].slope;
      if (!prepared_) continue;
      positions_[axis].resize(shape.size[2]);
      signs_[axis].resize(shape.size[2]);
    }
  }

  // Reads row `index` of sample `sample`.
  RowReach Read(const T* displacement, int64_t sample, int64_t index,
                bool slopes) {
    const T* shift = displacement + sample * shape_.dims * shape_.voxels() +
                     index * shape_.size[2];
    RowShift<T> by = {row_.zeros.data(), nullptr, nullptr};
    for (int axis = 3 - shape_.dims; axis < 3; ++axis) {
      by[axis] = shift;
      shift += shape_.voxels();
    }
    const RowStart start = {index / shape_.size[1], index % shape_.size[1], 1};
    return prepared_ ? ReadPrepared(by, start, slopes)
                     : FillRow(axes_, by, start, slopes, &row_);
  }

  const LinearRow<T>& row() const { return row_; }
  const LinearAxes<T>& axes() const { return axes_; }
  // Takes what a plane's first axis would get, which it does not have.
  T* unused_row() { return unused_row_.data(); }
  // For StridedRows of the gradient.
  T* gradient_row() { return gradient_row_.data(); }

 private:
  LinearAxes<T> Axes(bool convention) const {
    const bool mir =
        convention && options_.convention == WarpConvention::kMirCompatible;
    const bool clamp = options_.outside == Outside::kNearestEdge ||
                       options_.outside == Outside::kReflect;
    const auto& size = shape_.size;
    return {LinearAxis<T>(size[0], size[1] * size[2], mir, clamp),
            LinearAxis<T>(size[1], size[2], mir, clamp),
            LinearAxis<T>(size[2], 1, mir, clamp)};
  }

  RowReach ReadPrepared(const RowShift<T>& by, const RowStart& start,
                        bool slopes) {
    bool finite = true;
    const int64_t first[3] = {start.d, start.h, 0};
    RowShift<T> positions = {};
    for (int axis = 0; axis < 3; ++axis) {
      positions[axis] = positions_[axis].data();
      for (int64_t i = 0; i < shape_.size[2]; ++i) {
        const T shift = by[axis][i];
        finite &= std::isfinite(shift);
        const int64_t voxel = first[axis] + (axis == 2 ? i : 0);
        const T displaced = static_cast<T>(voxel) + shift;
        T position =
            displaced + (displaced * axes_[axis].scale - axes_[axis].offset);
        T sign = 1;
        if (options_.outside == Outside::kReflect) {
          position = Reflect(axes_[axis], position, &sign);
        }
        if (options_.interpolation == Interpolation::kNearest) {
          position = Round(Clamp(position, T(-1), axes_[axis].last + 1));
        }
        positions_[axis][i] = position;
        signs_[axis][i] = sign;
      }
    }
    RowReach reach =
        FillRow(prepared_axes_, positions, {0, 0, 0}, slopes, &row_);
    reach.finite = finite;
    if (slopes && options_.outside == Outside::kReflect) {
      for (int axis = 0; axis < 3; ++axis) {
        for (int64_t i = 0; i < shape_.size[2]; ++i) {
          row_.low_slope[axis][i] *= signs_[axis][i];
          row_.high_slope[axis][i] *= signs_[axis][i];
        }
      }
    }
    return reach;
  }

  // Mirrors a position into the volume; `sign` is -1 where that turns the axis.
  static T Reflect(const LinearAxis<T>& axis, T position, T* sign) {
    const T first = -axis.offset;
    const T span = axis.last + 2 * axis.offset;
    const T from_first =
        Clamp(position - first, std::numeric_limits<T>::lowest(),
              std::numeric_limits<T>::max());
    T distance = std::abs(from_first);
    *sign = from_first < 0 ? T(-1) : T(1);
    if (distance > span) {
      distance = span > 0 ? std::fmod(distance, 2 * span) : T(0);
      if (distance > span) {
        distance = 2 * span - distance;
        *sign = -*sign;
      }
    }
    return first + distance;
  }

  const Shape& shape_;
  const WarpOptions options_;
  const LinearAxes<T> axes_;
  // Whether positions are computed here, for FillRow to take as they are.
  const bool prepared_;
  LinearAxes<T> prepared_axes_;
  LinearRow<T> row_;
  std::vector<T> unused_row_, gradient_row_;
  std::array<std::vector<T>, 3> positions_, signs_;
};

// Calls `body(reader, sample, row_index)` for every row of every sample, in
// parallel; throws where a displacement is not finite.
template <typename T, typename Body>
void ForEachRow(const at::Tensor& displacement, const Shape& shape,
                const WarpOptions& options, bool slopes, const Body& body) {
  const T* data = displacement.const_data_ptr<T>();
  NotFiniteRows not_finite;
  at::parallel_for(
      0, shape.batch * shape.rows(), shape.rows_per_task(),
      [&](int64_t begin, int64_t end) {
        RowReader<T> reader(shape, options);
        for (int64_t index = begin; index < end; ++index) {
          const int64_t sample = index / shape.rows();
          const int64_t row_index = index % shape.rows();
          if (!reader.Read(data, sample, row_index, slopes).finite) {
            return not_finite.Add(index);
          }
          body(reader, sample, row_index);
        }
      });
  not_finite.Check("Warp: displacement", displacement);
}

template <typename T>
T Constant(const WarpOptions& options) {
  return options.outside == Outside::kConstant
             ? static_cast<T>(options.constant)
             : T(0);
}

template <typename T>
void Forward(const at::Tensor& image, const at::Tensor& displacement,
             const WarpOptions& options, const at::Tensor& warped) {
  const Shape shape(image);
  const T* in = image.const_data_ptr<T>();
  T* out = warped.mutable_data_ptr<T>();
  ForEachRow<T>(
      displacement, shape, options, /*slopes=*/false,
      [&](const RowReader<T>& reader, int64_t sample, int64_t row_index) {
        for (int64_t c = 0; c < shape.channels; ++c) {
          const int64_t channel =
              (sample * shape.channels + c) * shape.voxels();
          Interpolate(in + channel, reader.axes(), reader.row(),
                      Constant<T>(options),
                      out + channel + row_index * shape.size[2]);
        }
      });
}

// `Label` is an unsigned integer as wide as the labels: bits are moved.
template <typename T, typename Label>
void ForwardLabels(const at::Tensor& labels, const at::Tensor& displacement,
                   const WarpOptions& options, const at::Tensor& warped) {
  const Shape shape(labels);
  const auto* in = static_cast<const Label*>(labels.const_data_ptr());
  auto* out = static_cast<Label*>(warped.mutable_data_ptr());
  ForEachRow<T>(
      displacement, shape, options, /*slopes=*/false,
      [&](const RowReader<T>& reader, int64_t sample, int64_t row_index) {
        const LinearRow<T>& row = reader.row();
        for (int64_t i = 0; i < shape.size[2]; ++i) {
          // Positions are whole: along each axis one neighbour, or none, is
          // read.
          int64_t source = row.index[i];
          bool inside = true;
          for (int axis = 0; axis < 3; ++axis) {
            const bool high = row.high[axis][i] == 1;
            source += high ? reader.axes()[axis].step : 0;
            inside &= high || row.low[axis][i] == 1;
          }
          for (int64_t c = 0; c < shape.channels; ++c) {
            const int64_t channel =
                (sample * shape.channels + c) * shape.voxels();
            out[channel + row_index * shape.size[2] + i] =
                inside ? in[channel + source] : Label{0};
          }
        }
      });
}

template <typename T>
void ForwardLabelsOfWidth(const at::Tensor& labels,
                          const at::Tensor& displacement,
                          const WarpOptions& options,
                          const at::Tensor& warped) {
  switch (labels.element_size()) {
    case 1:
      return ForwardLabels<T, uint8_t>(labels, displacement, options, warped);
    case 2:
      return ForwardLabels<T, uint16_t>(labels, displacement, options, warped);
    case 4:
      return ForwardLabels<T, uint32_t>(labels, displacement, options, warped);
    default:
      return ForwardLabels<T, uint64_t>(labels, displacement, options, warped);
  }
}

// The label of most weight, and of those that share it the lowest; 0 where
// none has weight.
template <typename T, typename Label>
Label Heaviest(const std::array<Label, 8>& labels,
               const std::array<T, 8>& weights) {
  Label heaviest = 0;
  T most = 0;
  for (const Label label : labels) {
    T weight = 0;
    for (int k = 0; k < 8; ++k) {
      weight += labels[k] == label ? weights[k] : T(0);
    }
    if (weight > most || (weight > 0 && weight == most && label < heaviest)) {
      heaviest = label;
      most = weight;
    }
  }
  return heaviest;
}

template <typename T, typename Label>
void ForwardLabelsLinear(const at::Tensor& labels,
                         const at::Tensor& displacement,
                         const WarpOptions& options, const at::Tensor& warped) {
  const Shape shape(labels);
  const auto* in = static_cast<const Label*>(labels.const_data_ptr());
  auto* out = static_cast<Label*>(warped.mutable_data_ptr());
  ForEachRow<T>(
      displacement, shape, options, /*slopes=*/false,
      [&](const RowReader<T>& reader, int64_t sample, int64_t row_index) {
        const LinearRow<T>& row = reader.row();
        const LinearAxes<T>& axes = reader.axes();
        // By the bits (d, h, w) for the high neighbour.
        std::array<int64_t, 8> offsets;
        for (int k = 0; k < 8; ++k) {
          offsets[k] = (k & 4 ? axes[0].step : 0) + (k & 2 ? axes[1].step : 0) +
                       (k & 1 ? axes[2].step : 0);
        }
        for (int64_t i = 0; i < shape.size[2]; ++i) {
          std::array<T, 8> weights;
          for (int k = 0; k < 8; ++k) {
            weights[k] = (k & 4 ? row.high : row.low)[0][i] *
                         (k & 2 ? row.high : row.low)[1][i] *
                         (k & 1 ? row.high : row.low)[2][i];
          }
          for (int64_t c = 0; c < shape.channels; ++c) {
            const int64_t channel =
                (sample * shape.channels + c) * shape.voxels();
            std::array<Label, 8> read;
            for (int k = 0; k < 8; ++k) {
              read[k] = in[channel + row.index[i] + offsets[k]];
            }
            out[channel + row_index * shape.size[2] + i] =
                Heaviest(read, weights);
          }
        }
      });
}

template <typename T>
void BackwardToDisplacement(const at::Tensor& gradient, const at::Tensor& image,
                            const at::Tensor& displacement,
                            const WarpOptions& options,
                            const at::Tensor& result) {
  const Shape shape(image);
  const int64_t width = shape.size[2];
  const T* in = image.const_data_ptr<T>();
  const StridedRows<T> gradient_rows(gradient);
  T* out = result.mutable_data_ptr<T>();
  ForEachRow<T>(
      displacement, shape, options, /*slopes=*/true,
      [&](RowReader<T>& reader, int64_t sample, int64_t row_index) {
        std::array<T*, 3> target = {reader.unused_row(), nullptr, nullptr};
        T* component =
            out + sample * shape.dims * shape.voxels() + row_index * width;
        for (int axis = 3 - shape.dims; axis < 3; ++axis) {
          target[axis] = component;
          component += shape.voxels();
        }
        for (int64_t c = 0; c < shape.channels; ++c) {
          const int64_t channel =
              (sample * shape.channels + c) * shape.voxels();
          DisplacementGradient(
              in + channel, reader.axes(), reader.row(),
              gradient_rows.Row(sample, c, row_index, reader.gradient_row()),
              Constant<T>(options), /*first=*/c == 0, target);
        }
      });
}

template <typename T>
Phases Cut(const at::Tensor& displacement, const Shape& shape,
           const WarpOptions& options) {
  const int64_t planes = shape.size[shape.slab_axis()];
  const int64_t rows = shape.rows_per_plane();
  const T* data = displacement.const_data_ptr<T>();
  // The planes of the image that each plane of the output reads.
  std::vector<int64_t> first(shape.batch * planes), last(first.size());
  at::parallel_for(
      0, shape.batch * planes,
      std::max<int64_t>(1, shape.rows_per_task() / rows),
      [&](int64_t begin, int64_t end) {
        RowReader<T> reader(shape, options);
        const auto& axis = reader.axes()[shape.slab_axis()];
        for (int64_t index = begin; index < end; ++index) {
          int32_t low = std::numeric_limits<int32_t>::max(), high = 0;
          for (int64_t row = 0; row < rows; ++row) {
            const RowReach reach =
                reader.Read(data, index / planes, index % planes * rows + row,
                            /*slopes=*/false);
            low = std::min(low, reach.low);
            high = std::max(high, reach.high);
          }
          first[index] = low / axis.stride;
          last[index] = high / axis.stride + (axis.step > 0 ? 1 : 0);
        }
      });
  return CutIntoSlabs(planes, first, last);
}

template <typename T>
void BackwardToImage(const at::Tensor& gradient, const at::Tensor& displacement,
                     const WarpOptions& options, const at::Tensor& result) {
  const Shape shape(gradient);
  const int64_t width = shape.size[2];
  const T* displacement_data = displacement.const_data_ptr<T>();
  const StridedRows<T> gradient_rows(gradient);
  T* out = result.mutable_data_ptr<T>();
  const auto scatter_row = [&](const RowReader<T>& reader, const T* from,
                               T* channel) {
    const LinearRow<T>& row = reader.row();
    const auto [d_step, h_step, w_step] = std::array<int32_t, 3>{
        reader.axes()[0].step, reader.axes()[1].step, reader.axes()[2].step};
    for (int64_t i = 0; i < width; ++i) {
      const T w0 = row.low[2][i] * from[i], w1 = row.high[2][i] * from[i];
      const T d0 = row.low[0][i], d1 = row.high[0][i];
      const T h0 = row.low[1][i], h1 = row.high[1][i];
      T* const line0 = channel + row.index[i];
      T* const line1 = line0 + h_step;
      T* const line2 = line0 + d_step;
      T* const line3 = line1 + d_step;
      line0[0] += d0 * h0 * w0;
      line0[w_step] += d0 * h0 * w1;
      line1[0] += d0 * h1 * w0;
      line1[w_step] += d0 * h1 * w1;
      line2[0] += d1 * h0 * w0;
      line2[w_step] += d1 * h0 * w1;
      line3[0] += d1 * h1 * w0;
      line3[w_step] += d1 * h1 * w1;
    }
  };
  const auto scatter = [&](const Slab& slab, RowReader<T>* reader) {
    const int64_t rows = shape.rows_per_plane();
    for (int64_t index = slab.begin * rows; index < slab.end * rows; ++index) {
      reader->Read(displacement_data, slab.sample, index, /*slopes=*/false);
      for (int64_t c = 0; c < shape.channels; ++c) {
        const int64_t channel =
            (slab.sample * shape.channels + c) * shape.voxels();
        scatter_row(
            *reader,
            gradient_rows.Row(slab.sample, c, index, reader->gradient_row()),
            out + channel);
      }
    }
  };
  const Phases phases = Cut<T>(displacement, shape, options);
  for (const std::vector<Slab>& slabs : phases) {
    at::parallel_for(0, static_cast<int64_t>(slabs.size()), 1,
                     [&](int64_t begin, int64_t end) {
                       RowReader<T> reader(shape, options);
                       for (int64_t i = begin; i < end; ++i) {
                         scatter(slabs[i], &reader);
                       }
                     });
  }
}

}  // namespace

at::Tensor WarpForward(const at::Tensor& image, const at::Tensor& displacement,
                       const WarpOptions& options) {
  at::Tensor warped = at::empty_like(image);
  if (image.numel() == 0) return warped;
  AT_DISPATCH_FLOATING_TYPES(image.scalar_type(), "Warp", [&] {
    Forward<scalar_t>(image, displacement, options, warped);
  });
  return warped;
}

at::Tensor WarpLabelsForward(const at::Tensor& labels,
                             const at::Tensor& displacement,
                             WarpConvention convention) {
  at::Tensor warped = at::empty_like(labels);
  if (labels.numel() == 0) return warped;
  const WarpOptions options = {convention, Interpolation::kNearest,
                               Outside::kZero};
  AT_DISPATCH_FLOATING_TYPES(displacement.scalar_type(), "WarpLabels", [&] {
    ForwardLabelsOfWidth<scalar_t>(labels, displacement, options, warped);
  });
  return warped;
}

at::Tensor WarpLabelsLinearForward(const at::Tensor& labels,
                                   const at::Tensor& displacement,
                                   WarpConvention convention) {
  at::Tensor warped = at::empty_like(labels);
  if (labels.numel() == 0) return warped;
  const WarpOptions options = {convention};
  AT_DISPATCH_FLOATING_TYPES(
      displacement.scalar_type(), "WarpLabelsLinear", [&] {
        using Coordinate = scalar_t;
        AT_DISPATCH_V2(labels.scalar_type(), "WarpLabelsLinear", AT_WRAP([&] {
                         ForwardLabelsLinear<Coordinate, scalar_t>(
                             labels, displacement, options, warped);
                       }),
                       AT_EXPAND(AT_INTEGRAL_TYPES_V2), at::kBool);
      });
  return warped;
}

at::Tensor WarpBackwardToDisplacement(const at::Tensor& gradient,
                                      const at::Tensor& image,
                                      const at::Tensor& displacement,
                                      const WarpOptions& options) {
  if (image.numel() == 0 || options.interpolation == Interpolation::kNearest) {
    return at::zeros_like(displacement);
  }
  at::Tensor result = at::empty_like(displacement);
  AT_DISPATCH_FLOATING_TYPES(image.scalar_type(), "Warp", [&] {
    BackwardToDisplacement<scalar_t>(gradient, image, displacement, options,
                                     result);
  });
  return result;
}

at::Tensor WarpBackwardToImage(const at::Tensor& gradient,
                               const at::Tensor& displacement,
                               const WarpOptions& options) {
  at::Tensor result = at::zeros(gradient.sizes(), gradient.options());
  if (gradient.numel() == 0) return result;
  AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "Warp", [&] {
    BackwardToImage<scalar_t>(gradient, displacement, options, result);
  });
  return result;
}

}  // namespace mir::geometry::kernels
