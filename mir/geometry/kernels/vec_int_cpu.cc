#include "mir/geometry/kernels/vec_int_cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "mir/geometry/kernels/linear_rows.h"
#include "mir/geometry/kernels/not_finite.h"
#include "mir/geometry/kernels/self_compose_rows.h"
#include "mir/geometry/kernels/slabs.h"
#include "mir/geometry/kernels/strided_rows.h"

namespace mir::geometry::kernels {
namespace {

constexpr int64_t kVoxelsPerTask = 8192;

// Integrates fields of one shape. Fields are flat tensors of four numbers per
// voxel; a plane is a volume whose first axis has one voxel.
template <typename T>
class Integrator {
 public:
  Integrator(const at::Tensor& velocity, int steps, WarpConvention convention)
      : velocity_(velocity),
        dims_(static_cast<int>(velocity.dim()) - 2),
        batch_(velocity.size(0)),
        size_{dims_ == 3 ? velocity.size(2) : 1, velocity.size(-2),
              velocity.size(-1)},
        rows_(size_[0] * size_[1]),
        voxels_(rows_ * size_[2]),
        steps_(steps),
        scale_(static_cast<T>(std::ldexp(1.0, -steps))),
        axes_{Axis(0, convention), Axis(1, convention), Axis(2, convention)} {}

  at::Tensor Forward(bool keep_fields, VecIntSteps* kept) const {
    at::Tensor displacement = at::empty_like(velocity_);
    at::Tensor reach;
    if (kept != nullptr) {
      reach = at::empty({steps_, batch_ * rows_, 2}, at::kInt);
      kept->reach = reach;
    }
    const auto reach_of = [&](int step) {
      return reach.defined() ? reach[step].mutable_data_ptr<int32_t>()
                             : nullptr;
    };
    // Field k, after k steps, lies at k - 1 if it is kept, and the first where
    // the last one will; otherwise two places serve in turn. One tensor, since
    // pieces that come and go leave gaps in the heap.
    const bool keep = keep_fields && kept != nullptr;
    const int places = std::max(keep ? steps_ - 1 : 1, std::min(steps_, 2));
    const at::Tensor fields = NewFields(places);
    const auto place = [&](int step) {
      return keep ? fields[(step + places - 1) % places] : fields[step % 2];
    };
    at::Tensor field = place(0);
    ScaleVelocity(field);
    for (int step = 0; step + 1 < steps_; ++step) {
      const at::Tensor next = place(step + 1);
      Compose(field, step == 0, reach_of(step), Whole(next));
      field = next;
    }
    if (keep) kept->fields = fields;
    T* const out = displacement.mutable_data_ptr<T>();
    Compose(field, steps_ == 1, reach_of(steps_ - 1), [&](int64_t row) {
      return Target{nullptr, Components(out, row)};
    });
    return displacement;
  }

  at::Tensor Backward(const at::Tensor& gradient,
                      const VecIntSteps& kept) const {
    const bool recompute = !kept.fields.defined();
    const at::Tensor work = NewFields(recompute ? 4 : 3);
    at::Tensor to_field = work[0], spare = work[1];
    Interleave(gradient, T(1), to_field);
    for (int step = steps_ - 1; step >= 0; --step) {
      at::Tensor field;
      if (step == 0) {
        field = work[2];
        ScaleVelocity(field);
      } else if (recompute) {
        field = FieldAfter(step, {work[2], work[3]});
      } else {
        field = kept.fields[step - 1];
      }
      ComposeBackward(field, kept.reach[step].const_data_ptr<int32_t>(),
                      to_field, spare);
      std::swap(to_field, spare);
    }
    at::Tensor result = at::empty_like(velocity_);
    T* const out = result.mutable_data_ptr<T>();
    const T* const in = to_field.const_data_ptr<T>();
    ForEachRow([&](int64_t row) {
      SeparateRow(in + 4 * row * size_[2], size_[2], scale_,
                  Components(out, row).data());
    });
    return result;
  }

 private:
  // Where a composed row goes: to a field, or to separate components.
  struct Target {
    T* field;
    std::array<T*, 3> components;
  };

  LinearAxis<T> Axis(int axis, WarpConvention convention) const {
    const int64_t stride = axis == 0   ? size_[1] * size_[2]
                           : axis == 1 ? size_[2]
                                       : 1;
    return LinearAxis<T>(size_[axis], stride,
                         convention == WarpConvention::kMirCompatible,
                         /*clamp=*/false);
  }

  at::Tensor NewFields(int64_t number) const {
    return at::empty({number, batch_ * voxels_, 4}, velocity_.options());
  }

  int64_t rows_per_task() const {
    return std::max<int64_t>(1, kVoxelsPerTask / size_[2]);
  }

  template <typename Body>
  void ForEachRow(const Body& body) const {
    at::parallel_for(0, batch_ * rows_, rows_per_task(),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t row = begin; row < end; ++row) body(row);
                     });
  }

  // Row `row` (of all samples) of each component of a tensor like the
  // velocity's; null for the first of a plane.
  std::array<T*, 3> Components(T* data, int64_t row) const {
    T* at = data + row / rows_ * dims_ * voxels_ + row % rows_ * size_[2];
    std::array<T*, 3> result = {};
    for (int axis = 3 - dims_; axis < 3; ++axis, at += voxels_) {
      result[axis] = at;
    }
    return result;
  }

  auto Whole(const at::Tensor& field) const {
    return [this, data = field.mutable_data_ptr<T>()](int64_t row) {
      return Target{data + 4 * row * size_[2], {}};
    };
  }

  void Interleave(const at::Tensor& components, T scale,
                  const at::Tensor& field) const {
    const StridedRows<T> in(components);
    T* const out = field.mutable_data_ptr<T>();
    ForEachRow([&](int64_t row) {
      std::vector<T> buffer(3 * size_[2]);
      std::array<const T*, 3> component = {};
      for (int axis = 3 - dims_; axis < 3; ++axis) {
        component[axis] = in.Row(row / rows_, axis - (3 - dims_), row % rows_,
                                 buffer.data() + axis * size_[2]);
      }
      InterleaveRow(component.data(), size_[2], scale,
                    out + 4 * row * size_[2]);
    });
  }

  void ScaleVelocity(const at::Tensor& field) const {
    Interleave(velocity_, scale_, field);
  }

  // A thread's memory for one row.
  struct Scratch {
    explicit Scratch(int64_t width)
        : linear(width), components(3 * width), voxels(4 * width) {}

    LinearRow<T> linear;
    std::vector<T> components;
    std::vector<T> voxels;
  };

  // Sets `scratch->linear` to what row `row` of `field` reads.
  RowReach Read(const T* field, int64_t row, bool slopes,
                Scratch* scratch) const {
    const int64_t width = size_[2];
    T* const d = scratch->components.data();
    T* const components[3] = {d, d + width, d + 2 * width};
    SeparateRow(field + 4 * row * width, width, T(1), components);
    const int64_t in_sample = row % rows_;
    return FillRow(axes_, {components[0], components[1], components[2]},
                   {in_sample / size_[1], in_sample % size_[1], 1}, slopes,
                   &scratch->linear);
  }

  // Composes `field` with itself. Fills `reach` unless it is null. Throws
  // where the velocity is not finite if `check`.
  template <typename TargetOf>
  void Compose(const at::Tensor& field, bool check, int32_t* reach,
               const TargetOf& target_of) const {
    const T* const in = field.const_data_ptr<T>();
    NotFiniteRows not_finite;
    at::parallel_for(
        0, batch_ * rows_, rows_per_task(), [&](int64_t begin, int64_t end) {
          Scratch scratch(size_[2]);
          for (int64_t row = begin; row < end; ++row) {
            const RowReach read = Read(in, row, /*slopes=*/false, &scratch);
            if (check && !read.finite) return not_finite.Add(row);
            if (reach != nullptr) {
              reach[2 * row] = read.low;
              reach[2 * row + 1] = read.high;
            }
            const Target target = target_of(row);
            T* const out =
                target.field != nullptr ? target.field : scratch.voxels.data();
            SelfComposeRow(in + 4 * (row / rows_) * voxels_,
                           row % rows_ * size_[2], axes_, scratch.linear, out);
            if (target.field == nullptr) {
              SeparateRow(out, size_[2], T(1), target.components.data());
            }
          }
        });
    not_finite.Check("VecInt: velocity", velocity_);
  }

  // The field after `step` steps, in one of two places.
  at::Tensor FieldAfter(int step,
                        const std::array<at::Tensor, 2>& place) const {
    ScaleVelocity(place[0]);
    for (int done = 0; done < step; ++done) {
      Compose(place[done % 2], /*check=*/false, nullptr,
              Whole(place[(done + 1) % 2]));
    }
    return place[step % 2];
  }

  // The planes that each plane writes to, counted within its sample: those it
  // reads, and itself.
  struct PlanesWritten {
    std::vector<int64_t> first, last;
  };

  // Sets `to_field` to the gradient to `field`, given that to its composition.
  void ComposeBackward(const at::Tensor& field, const int32_t* reach,
                       const at::Tensor& gradient,
                       const at::Tensor& to_field) const {
    const T* const in = field.const_data_ptr<T>();
    const T* const from = gradient.const_data_ptr<T>();
    T* const out = to_field.mutable_data_ptr<T>();
    const int64_t planes = size_[plane_axis()];
    const int64_t rows_per_plane = rows_ / planes;
    const int64_t plane_size = 4 * rows_per_plane * size_[2];
    const PlanesWritten written = FindPlanesWritten(reach);
    // A plane begins as the gradient, while that is in the cache. No two slabs
    // of a list write to one plane, so that each asks only for its own.
    std::vector<char> begun(batch_ * planes);
    for (const std::vector<Slab>& slabs :
         CutIntoSlabs(planes, written.first, written.last)) {
      at::parallel_for(
          0, static_cast<int64_t>(slabs.size()), 1,
          [&](int64_t begin, int64_t end) {
            Scratch scratch(size_[2]);
            for (int64_t i = begin; i < end; ++i) {
              const Slab& slab = slabs[i];
              const int64_t plane_0 = slab.sample * planes;
              const int64_t sample = plane_0 * plane_size;
              const int64_t* const first = written.first.data() + plane_0;
              int64_t next =
                  *std::min_element(first + slab.begin, first + slab.end);
              for (int64_t plane = slab.begin; plane < slab.end; ++plane) {
                for (; next <= written.last[plane_0 + plane]; ++next) {
                  if (std::exchange(begun[plane_0 + next], 1) != 0) continue;
                  std::copy_n(from + sample + next * plane_size, plane_size,
                              out + sample + next * plane_size);
                }
                for (int64_t row = plane * rows_per_plane;
                     row < (plane + 1) * rows_per_plane; ++row) {
                  Read(in, slab.sample * rows_ + row, /*slopes=*/true,
                       &scratch);
                  AddSelfComposeGradient(in + sample, row * size_[2], axes_,
                                         scratch.linear,
                                         from + sample + 4 * row * size_[2],
                                         scratch.voxels.data(), out + sample);
                }
              }
            }
          });
    }
  }

  int plane_axis() const { return 3 - dims_; }

  PlanesWritten FindPlanesWritten(const int32_t* reach) const {
    const LinearAxis<T>& axis = axes_[plane_axis()];
    const int64_t planes = size_[plane_axis()];
    const int64_t rows_per_plane = rows_ / planes;
    PlanesWritten written;
    for (int64_t plane = 0; plane < batch_ * planes; ++plane) {
      int32_t low = std::numeric_limits<int32_t>::max(), high = 0;
      for (int64_t row = plane * rows_per_plane;
           row < (plane + 1) * rows_per_plane; ++row) {
        low = std::min(low, reach[2 * row]);
        high = std::max(high, reach[2 * row + 1]);
      }
      written.first.push_back(
          std::min<int64_t>(low / axis.stride, plane % planes));
      written.last.push_back(std::max<int64_t>(
          high / axis.stride + (axis.step > 0 ? 1 : 0), plane % planes));
    }
    return written;
  }

  const at::Tensor& velocity_;
  const int dims_;
  const int64_t batch_;
  const std::array<int64_t, 3> size_;
  const int64_t rows_, voxels_;  // Of a sample.
  const int steps_;
  const T scale_;
  const LinearAxes<T> axes_;
};

}  // namespace

at::Tensor VecIntForward(const at::Tensor& velocity, int steps,
                         WarpConvention convention, bool keep_fields,
                         VecIntSteps* kept) {
  return AT_DISPATCH_FLOATING_TYPES(velocity.scalar_type(), "VecInt", [&] {
    return Integrator<scalar_t>(velocity, steps, convention)
        .Forward(keep_fields, kept);
  });
}

at::Tensor VecIntBackward(const at::Tensor& gradient,
                          const at::Tensor& velocity, int steps,
                          WarpConvention convention, const VecIntSteps& kept) {
  return AT_DISPATCH_FLOATING_TYPES(velocity.scalar_type(), "VecInt", [&] {
    return Integrator<scalar_t>(velocity, steps, convention)
        .Backward(gradient, kept);
  });
}

}  // namespace mir::geometry::kernels
