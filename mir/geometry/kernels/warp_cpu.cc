#include "mir/geometry/kernels/warp_cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

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

// Where the voxels of one row are read along one axis: at most two neighbours,
// `low` and `high`, both inside the volume, with their weights and the
// weights' derivatives by the displacement. A neighbour outside a volume that
// reads zero there has weight and slope 0.
template <typename T>
struct Slots {
  std::vector<int32_t> low, high;
  std::vector<T> low_weight, high_weight;
  std::vector<T> low_slope, high_slope;

  explicit Slots(int64_t width)
      : low(width),
        high(width),
        low_weight(width),
        high_weight(width),
        low_slope(width),
        high_slope(width) {}
};

// Comparisons are written so that NaN ends at `low`.
template <typename T>
T Clamp(T value, T low, T high) {
  value = value > low ? value : low;
  return value < high ? value : high;
}

// For |value| far below the mantissa's range; a call to the C library per
// voxel otherwise.
template <typename T>
int32_t Floor(T value) {
  const auto truncated = static_cast<int32_t>(value);
  return truncated - (value < static_cast<T>(truncated) ? 1 : 0);
}

// Rounds half to even: adding the number whose spacing is 1 leaves no room
// for a fraction.
template <typename T>
int32_t Round(T value) {
  constexpr T kSpacingOne =
      T(3) * (int64_t{1} << std::numeric_limits<T>::digits) / 4;
  return static_cast<int32_t>((value + kSpacingOne) - kSpacingOne);
}

// Reads positions along one axis.
template <typename T>
class Axis {
 public:
  Axis(int64_t size, const WarpOptions& options)
      : size_(static_cast<T>(size)),
        last_(static_cast<T>(size - 1)),
        // MIR's formula has no value along an axis of one voxel.
        mir_(options.convention == WarpConvention::kMirCompatible && size > 1),
        scale_(mir_ ? size_ / last_ : T(1)),
        options_(options) {}

  // Fills `slots` for a row of voxels `start`, `start + step`, ... that are
  // displaced by `shift` along this axis. Returns whether all are finite.
  bool Fill(const T* shift, int64_t width, int64_t start, int64_t step,
            Slots<T>* slots) const {
    bool finite = true;
    for (int64_t i = 0; i < width; ++i) {
      // Positions wait in `low_weight`.
      slots->low_weight[i] = static_cast<T>(start + step * i) + shift[i];
      finite &= std::abs(shift[i]) <= std::numeric_limits<T>::max();
    }
    if (mir_) {
      // In Python's order of operations, for its rounding.
      for (int64_t i = 0; i < width; ++i) {
        const T normalized = 2 * (slots->low_weight[i] / last_ - T(0.5));
        slots->low_weight[i] = ((normalized + 1) * size_ - 1) / 2;
      }
    }
    for (int64_t i = 0; i < width; ++i) slots->low_slope[i] = scale_;
    if (options_.outside == Outside::kReflect) Reflect(width, slots);
    if (options_.interpolation == Interpolation::kNearest) {
      FillNearest(width, slots);
    } else {
      FillLinear(width, slots);
    }
    return finite;
  }

 private:
  // Mirrors positions into the volume; a mirrored axis turns the slope.
  void Reflect(int64_t width, Slots<T>* slots) const {
    const T first = mir_ ? T(-0.5) : T(0);
    const T span = mir_ ? size_ : last_;
    for (int64_t i = 0; i < width; ++i) {
      const T from_first =
          Clamp(slots->low_weight[i] - first, std::numeric_limits<T>::lowest(),
                std::numeric_limits<T>::max());
      T distance = std::abs(from_first);
      T sign = from_first < 0 ? T(-1) : T(1);
      if (distance > span) {
        distance = span > 0 ? std::fmod(distance, 2 * span) : T(0);
        if (distance > span) {
          distance = 2 * span - distance;
          sign = -sign;
        }
      }
      slots->low_weight[i] = first + distance;
      slots->low_slope[i] *= sign;
    }
  }

  void FillNearest(int64_t width, Slots<T>* slots) const {
    const bool zero = options_.outside == Outside::kZero;
    const T first = zero ? T(-1) : T(0);
    const T last = zero ? size_ : last_;
    const auto last_index = static_cast<int32_t>(last_);
    for (int64_t i = 0; i < width; ++i) {
      const int32_t index = Round(Clamp(slots->low_weight[i], first, last));
      const int32_t inside = std::min(std::max(index, 0), last_index);
      slots->low[i] = slots->high[i] = inside;
      slots->low_weight[i] = index == inside ? T(1) : T(0);
      slots->high_weight[i] = 0;
    }
  }

  void FillLinear(int64_t width, Slots<T>* slots) const {
    const bool zero = options_.outside == Outside::kZero;
    const T first = zero ? T(-1) : T(0);
    const T last = zero ? size_ : last_;
    const auto last_index = static_cast<int32_t>(last_);
    for (int64_t i = 0; i < width; ++i) {
      const T raw = slots->low_weight[i];
      // A clamped sample does not move with its displacement.
      const bool moves = zero ? raw >= first : raw > first && raw < last;
      const T slope = moves ? slots->low_slope[i] : T(0);
      const T position = Clamp(raw, first, last);
      const int32_t low = Floor(position);
      const T fraction = position - static_cast<T>(low);
      const int32_t low_inside = std::min(std::max(low, 0), last_index);
      const int32_t high_inside = std::min(low + 1, last_index);
      const T low_counts = !zero || low == low_inside ? T(1) : T(0);
      const T high_counts = !zero || low + 1 == high_inside ? T(1) : T(0);
      slots->low[i] = low_inside;
      slots->high[i] = high_inside;
      slots->low_weight[i] = low_counts * (1 - fraction);
      slots->high_weight[i] = high_counts * fraction;
      slots->low_slope[i] = -low_counts * slope;
      slots->high_slope[i] = high_counts * slope;
    }
  }

  T size_;
  T last_;
  bool mir_;
  T scale_;
  WarpOptions options_;
};

// The three axes' slots of one row.
template <typename T>
class Row {
 public:
  Row(const Shape& shape, const WarpOptions& options)
      : d(shape.size[2]),
        h(shape.size[2]),
        w(shape.size[2]),
        shape_(shape),
        d_axis_(shape.size[0], options),
        h_axis_(shape.size[1], options),
        w_axis_(shape.size[2], options) {
    std::fill(d.low_weight.begin(), d.low_weight.end(), T(1));
  }

  // Fills all slots for row `row` of sample `sample`. Returns whether the
  // row's displacements are finite.
  bool Fill(const T* displacement, int64_t sample, int64_t row) {
    const int64_t width = shape_.size[2];
    const T* shift =
        displacement + sample * shape_.dims * shape_.voxels() + row * width;
    bool finite = true;
    if (shape_.dims == 3) {
      finite &= d_axis_.Fill(shift, width, row / shape_.size[1], 0, &d);
      shift += shape_.voxels();
    }
    finite &= h_axis_.Fill(shift, width, row % shape_.size[1], 0, &h);
    shift += shape_.voxels();
    finite &= w_axis_.Fill(shift, width, 0, 1, &w);
    return finite;
  }

  Slots<T> d, h, w;

 private:
  const Shape& shape_;
  Axis<T> d_axis_, h_axis_, w_axis_;
};

// The offsets of a voxel's corners in a channel, and their weights.
template <typename T>
struct Corners {
  std::array<int64_t, 4> low;   // Of the low neighbour along w, by (d, h).
  std::array<int64_t, 4> high;  // Of the high one.
  T d0, d1, h0, h1, w0, w1;

  Corners(const Shape& shape, const Row<T>& row, int64_t i) {
    const int64_t width = shape.size[2];
    const int64_t plane = shape.size[1] * width;
    const int64_t d_low = row.d.low[i] * plane, d_high = row.d.high[i] * plane;
    const int64_t h_low = row.h.low[i] * width, h_high = row.h.high[i] * width;
    const int64_t lines[4] = {d_low + h_low, d_low + h_high, d_high + h_low,
                              d_high + h_high};
    for (int line = 0; line < 4; ++line) {
      low[line] = lines[line] + row.w.low[i];
      high[line] = lines[line] + row.w.high[i];
    }
    d0 = row.d.low_weight[i];
    d1 = row.d.high_weight[i];
    h0 = row.h.low_weight[i];
    h1 = row.h.high_weight[i];
    w0 = row.w.low_weight[i];
    w1 = row.w.high_weight[i];
  }
};

// A smaller value than `index` wins, whichever thread comes first.
void KeepSmallest(int64_t index, std::atomic<int64_t>* smallest) {
  int64_t known = smallest->load();
  while (index < known && !smallest->compare_exchange_weak(known, index)) {
  }
}

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

template <typename T>
[[noreturn]] void ThrowNotFinite(const at::Tensor& displacement,
                                 const Shape& shape, int64_t first_row) {
  const int64_t sample = first_row / shape.rows();
  const int64_t row = first_row % shape.rows();
  const T* data = displacement.const_data_ptr<T>();
  for (int64_t w = 0; w < shape.size[2]; ++w) {
    for (int64_t channel = 0; channel < shape.dims; ++channel) {
      const T value = data[(sample * shape.dims + channel) * shape.voxels() +
                           row * shape.size[2] + w];
      if (std::isfinite(value)) continue;
      std::string index =
          std::to_string(sample) + ", " + std::to_string(channel) + ", ";
      if (shape.dims == 3) index += std::to_string(row / shape.size[1]) + ", ";
      index += std::to_string(row % shape.size[1]) + ", " + std::to_string(w);
      TORCH_CHECK_VALUE(false, "Warp: displacement[", index, "] is ", value,
                        "; wanted finite displacements (in ",
                        displacement.scalar_type(), ")");
    }
  }
  TORCH_INTERNAL_ASSERT(false, "row ", first_row, " is finite");
}

// Calls `body(row, sample, row_index)` for every row of every sample, in
// parallel, with the row's slots filled; throws where one is not finite.
template <typename T, typename Body>
void ForEachRow(const at::Tensor& displacement, const Shape& shape,
                const WarpOptions& options, const Body& body) {
  const T* data = displacement.const_data_ptr<T>();
  std::atomic<int64_t> not_finite{kNone};
  at::parallel_for(0, shape.batch * shape.rows(), shape.rows_per_task(),
                   [&](int64_t begin, int64_t end) {
                     Row<T> row(shape, options);
                     for (int64_t index = begin; index < end; ++index) {
                       const int64_t sample = index / shape.rows();
                       const int64_t row_index = index % shape.rows();
                       if (!row.Fill(data, sample, row_index)) {
                         KeepSmallest(index, &not_finite);
                         return;
                       }
                       body(row, sample, row_index);
                     }
                   });
  if (not_finite != kNone) ThrowNotFinite<T>(displacement, shape, not_finite);
}

template <typename T>
void Forward(const at::Tensor& image, const at::Tensor& displacement,
             const WarpOptions& options, const at::Tensor& warped) {
  const Shape shape(image);
  const T* in = image.const_data_ptr<T>();
  T* out = warped.mutable_data_ptr<T>();
  ForEachRow<T>(
      displacement, shape, options,
      [&](const Row<T>& row, int64_t sample, int64_t row_index) {
        const int64_t width = shape.size[2];
        for (int64_t i = 0; i < width; ++i) {
          const Corners<T> corners(shape, row, i);
          const bool on_voxel = corners.d0 * corners.h0 * corners.w0 == 1;
          int64_t channel = sample * shape.channels * shape.voxels();
          for (int64_t c = 0; c < shape.channels;
               ++c, channel += shape.voxels()) {
            const T* source = in + channel;
            T value;
            if (on_voxel) {  // Keeps every bit, of -0.0 too.
              value = source[corners.low[0]];
            } else {
              T line[4];
              for (int k = 0; k < 4; ++k) {
                line[k] = corners.w0 * source[corners.low[k]] +
                          corners.w1 * source[corners.high[k]];
              }
              value =
                  corners.d0 * (corners.h0 * line[0] + corners.h1 * line[1]) +
                  corners.d1 * (corners.h0 * line[2] + corners.h1 * line[3]);
            }
            out[channel + row_index * width + i] = value;
          }
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
  ForEachRow<T>(displacement, shape, options,
                [&](const Row<T>& row, int64_t sample, int64_t row_index) {
                  const int64_t width = shape.size[2];
                  for (int64_t i = 0; i < width; ++i) {
                    const int64_t source =
                        (row.d.low[i] * shape.size[1] + row.h.low[i]) * width +
                        row.w.low[i];
                    const bool inside = row.d.low_weight[i] *
                                            row.h.low_weight[i] *
                                            row.w.low_weight[i] !=
                                        0;
                    int64_t channel = sample * shape.channels * shape.voxels();
                    for (int64_t c = 0; c < shape.channels;
                         ++c, channel += shape.voxels()) {
                      out[channel + row_index * width + i] =
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

template <typename T>
void BackwardToDisplacement(const at::Tensor& gradient, const at::Tensor& image,
                            const at::Tensor& displacement,
                            const WarpOptions& options,
                            const at::Tensor& result) {
  const Shape shape(image);
  const T* in = image.const_data_ptr<T>();
  const T* gradient_data = gradient.const_data_ptr<T>();
  T* out = result.mutable_data_ptr<T>();
  ForEachRow<T>(
      displacement, shape, options,
      [&](const Row<T>& row, int64_t sample, int64_t row_index) {
        const int64_t width = shape.size[2];
        T* target =
            out + sample * shape.dims * shape.voxels() + row_index * width;
        for (int64_t i = 0; i < width; ++i) {
          const Corners<T> corners(shape, row, i);
          // Sums over channels of the gradient times the image at the two
          // neighbours along one axis, interpolated along the others.
          T d_low = 0, d_high = 0, h_low = 0, h_high = 0, w_low = 0, w_high = 0;
          int64_t channel = sample * shape.channels * shape.voxels();
          for (int64_t c = 0; c < shape.channels;
               ++c, channel += shape.voxels()) {
            const T g = gradient_data[channel + row_index * width + i];
            const T* source = in + channel;
            T low[4], high[4], line[4];
            for (int k = 0; k < 4; ++k) {
              low[k] = source[corners.low[k]];
              high[k] = source[corners.high[k]];
              line[k] = corners.w0 * low[k] + corners.w1 * high[k];
            }
            d_low += g * (corners.h0 * line[0] + corners.h1 * line[1]);
            d_high += g * (corners.h0 * line[2] + corners.h1 * line[3]);
            h_low += g * (corners.d0 * line[0] + corners.d1 * line[2]);
            h_high += g * (corners.d0 * line[1] + corners.d1 * line[3]);
            w_low +=
                g * (corners.d0 * (corners.h0 * low[0] + corners.h1 * low[1]) +
                     corners.d1 * (corners.h0 * low[2] + corners.h1 * low[3]));
            w_high +=
                g *
                (corners.d0 * (corners.h0 * high[0] + corners.h1 * high[1]) +
                 corners.d1 * (corners.h0 * high[2] + corners.h1 * high[3]));
          }
          T* component = target + i;
          if (shape.dims == 3) {
            *component =
                row.d.low_slope[i] * d_low + row.d.high_slope[i] * d_high;
            component += shape.voxels();
          }
          *component =
              row.h.low_slope[i] * h_low + row.h.high_slope[i] * h_high;
          component += shape.voxels();
          *component =
              row.w.low_slope[i] * w_low + row.w.high_slope[i] * w_high;
        }
      });
}

// Output planes [begin, end) of one sample.
struct Slab {
  int64_t sample, begin, end;
};

// Two lists of slabs: those of one list write to disjoint planes of the image,
// so a list can be worked on in parallel, and every voxel of the image gets
// its terms in an order that does not depend on the threads.
using Phases = std::array<std::vector<Slab>, 2>;

template <typename T>
Phases CutIntoSlabs(const at::Tensor& displacement, const Shape& shape,
                    const WarpOptions& options) {
  const int axis = shape.slab_axis();
  const int64_t planes = shape.size[axis];
  const int64_t rows = shape.rows_per_plane();
  const int64_t width = shape.size[2];
  const T* data = displacement.const_data_ptr<T>();

  // The planes of the image that each plane of the output reads.
  std::vector<int64_t> first(shape.batch * planes), last(first.size());
  at::parallel_for(
      0, shape.batch * planes,
      std::max<int64_t>(1, shape.rows_per_task() / rows),
      [&](int64_t begin, int64_t end) {
        const Axis<T> reader(planes, options);
        Slots<T> slots(width);
        for (int64_t index = begin; index < end; ++index) {
          const int64_t sample = index / planes;
          const int64_t plane = index % planes;
          // The slab axis is the displacement's first channel.
          const T* shift = data + sample * shape.dims * shape.voxels() +
                           plane * rows * width;
          int32_t low = std::numeric_limits<int32_t>::max(), high = 0;
          for (int64_t row = 0; row < rows; ++row, shift += width) {
            reader.Fill(shift, width, plane, 0, &slots);
            low = std::min(
                low, *std::min_element(slots.low.begin(), slots.low.end()));
            high = std::max(
                high, *std::max_element(slots.high.begin(), slots.high.end()));
          }
          first[index] = low;
          last[index] = high;
        }
      });

  Phases phases;
  for (int64_t sample = 0; sample < shape.batch; ++sample) {
    const int64_t* low = first.data() + sample * planes;
    const int64_t* high = last.data() + sample * planes;
    // Slabs of a list overlap if a plane reads below what an earlier one did.
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
    int64_t thickness = 4;
    while (thickness < planes && !disjoint(thickness)) thickness *= 2;
    for (int64_t begin = 0; begin < planes; begin += thickness) {
      phases[begin / thickness % 2].push_back(
          {sample, begin, std::min(begin + thickness, planes)});
    }
  }
  return phases;
}

template <typename T>
void BackwardToImage(const at::Tensor& gradient, const at::Tensor& displacement,
                     const WarpOptions& options, const at::Tensor& result) {
  const Shape shape(gradient);
  const int64_t width = shape.size[2];
  const T* displacement_data = displacement.const_data_ptr<T>();
  const T* gradient_data = gradient.const_data_ptr<T>();
  T* out = result.mutable_data_ptr<T>();
  const auto scatter = [&](const Slab& slab, Row<T>* row) {
    const int64_t rows = shape.rows_per_plane();
    for (int64_t index = slab.begin * rows; index < slab.end * rows; ++index) {
      row->Fill(displacement_data, slab.sample, index);
      for (int64_t i = 0; i < width; ++i) {
        const Corners<T> corners(shape, *row, i);
        const T weights[4] = {corners.d0 * corners.h0, corners.d0 * corners.h1,
                              corners.d1 * corners.h0, corners.d1 * corners.h1};
        int64_t channel = slab.sample * shape.channels * shape.voxels();
        for (int64_t c = 0; c < shape.channels;
             ++c, channel += shape.voxels()) {
          const T g = gradient_data[channel + index * width + i];
          T* target = out + channel;
          for (int k = 0; k < 4; ++k) {
            target[corners.low[k]] += weights[k] * corners.w0 * g;
            target[corners.high[k]] += weights[k] * corners.w1 * g;
          }
        }
      }
    }
  };
  const Phases phases = CutIntoSlabs<T>(displacement, shape, options);
  for (const std::vector<Slab>& slabs : phases) {
    at::parallel_for(0, static_cast<int64_t>(slabs.size()), 1,
                     [&](int64_t begin, int64_t end) {
                       Row<T> row(shape, options);
                       for (int64_t i = begin; i < end; ++i) {
                         scatter(slabs[i], &row);
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
  at::Tensor result = at::zeros_like(gradient);
  if (gradient.numel() == 0) return result;
  AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "Warp", [&] {
    BackwardToImage<scalar_t>(gradient, displacement, options, result);
  });
  return result;
}

}  // namespace mir::geometry::kernels
