#include "mir/metrics/digital_diffeomorphism.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <vector>

#include "mir/geometry/displacement_check.h"
#include "mir/geometry/finite_check.h"

namespace mir::metrics {
namespace {

using Step = std::array<int, 3>;

// A row of the Jacobian is scale * (mapping(x + to) - mapping(x + from)).
struct Difference {
  Step to, from;
  double scale;
};
using Stencil = std::array<Difference, 3>;

constexpr int kStencils = 11;
constexpr int kCentral = static_cast<int>(JacobianStencil::kCentral);

// Forward where `sign` is 1, backward where it is -1, central where it is 0.
Difference Along(int axis, int sign) {
  Difference difference = {{}, {}, sign == 0 ? 0.5 : 1};
  difference.to[axis] = sign >= 0 ? 1 : 0;
  difference.from[axis] = sign <= 0 ? -1 : 0;
  return difference;
}

Stencil MakeStencil(JacobianStencil stencil) {
  switch (stencil) {
    case JacobianStencil::kCentral:
      return {Along(0, 0), Along(1, 0), Along(2, 0)};
    case JacobianStencil::kStar1:
      return {
          {{{-1, -1, 0}, {}, 1}, {{-1, 0, -1}, {}, 1}, {{0, -1, -1}, {}, 1}}};
    case JacobianStencil::kStar2:
      return {{{{1, 1, 0}, {}, 1}, {{0, 1, 1}, {}, 1}, {{1, 0, 1}, {}, 1}}};
    default:
      break;
  }
  const int corner = static_cast<int>(stencil) -
                     static_cast<int>(JacobianStencil::kPlusPlusPlus);
  const auto sign = [&](int bit) { return (corner & bit) == 0 ? 1 : -1; };
  return {Along(0, sign(4)), Along(1, sign(2)), Along(2, sign(1))};
}

// One sample's displacement, with the offsets of a stencil in it.
template <typename T>
class Field {
 public:
  Field(const T* values, std::array<int64_t, 3> size)
      : values_(values), size_(size), voxels_(size[0] * size[1] * size[2]) {}

  struct Offsets {
    std::array<int64_t, 3> to, from;
    std::array<std::array<double, 3>, 3> identity;  // What x itself gives.
    std::array<double, 3> scale;
  };

  Offsets OffsetsOf(const Stencil& stencil) const {
    Offsets offsets;
    for (int row = 0; row < 3; ++row) {
      const Difference& difference = stencil[row];
      offsets.to[row] = Offset(difference.to);
      offsets.from[row] = Offset(difference.from);
      offsets.scale[row] = difference.scale;
      for (int axis = 0; axis < 3; ++axis) {
        offsets.identity[row][axis] =
            difference.to[axis] - difference.from[axis];
      }
    }
    return offsets;
  }

  double Determinant(const Offsets& offsets, int64_t voxel) const {
    double j[3][3];
    for (int row = 0; row < 3; ++row) {
      for (int axis = 0; axis < 3; ++axis) {
        const T* component = values_ + axis * voxels_ + voxel;
        j[row][axis] = offsets.scale[row] *
                       (offsets.identity[row][axis] +
                        (static_cast<double>(component[offsets.to[row]]) -
                         static_cast<double>(component[offsets.from[row]])));
      }
    }
    return j[0][0] * (j[1][1] * j[2][2] - j[1][2] * j[2][1]) -
           j[1][0] * (j[0][1] * j[2][2] - j[0][2] * j[2][1]) +
           j[2][0] * (j[0][1] * j[1][2] - j[0][2] * j[1][1]);
  }

 private:
  int64_t Offset(const Step& step) const {
    return (step[0] * size_[1] + step[1]) * size_[2] + step[2];
  }

  const T* values_;
  std::array<int64_t, 3> size_;
  int64_t voxels_;
};

at::Tensor CheckedField(const char* function, const at::Tensor& displacement) {
  geometry::CheckDisplacement(function, "displacement", displacement);
  TORCH_CHECK_VALUE(displacement.dim() == 5 && displacement.size(0) > 0 &&
                        displacement.size(2) >= 3 &&
                        displacement.size(3) >= 3 && displacement.size(4) >= 3,
                    function,
                    ": wanted a displacement [N, 3, D, H, W] of at least 3 "
                    "voxels along each axis, came ",
                    displacement.sizes());
  const at::ScalarType dtype =
      displacement.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor field = displacement.detach().to(at::kCPU, dtype).contiguous();
  geometry::CheckFinite(function, "displacement", field);
  return field;
}

// Calls `body(field, plane, voxel, inner)` for the voxels of each inner plane,
// one after the other, planes in any order: `plane` counts them over the
// samples, `voxel` is the place in the sample and `inner` that among all inner
// voxels.
template <typename T, typename Body>
void ForEachInnerVoxel(const at::Tensor& displacement, const Body& body) {
  const std::array<int64_t, 3> size = {
      displacement.size(2), displacement.size(3), displacement.size(4)};
  const int64_t planes = size[0] - 2;
  const int64_t sample = 3 * size[0] * size[1] * size[2];
  at::parallel_for(
      0, displacement.size(0) * planes, 1, [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
          const int64_t n = plane / planes;
          const int64_t d = plane % planes + 1;
          const Field<T> field(displacement.const_data_ptr<T>() + n * sample,
                               size);
          int64_t inner = plane * (size[1] - 2) * (size[2] - 2);
          for (int64_t h = 1; h < size[1] - 1; ++h) {
            for (int64_t w = 1; w < size[2] - 1; ++w, ++inner) {
              body(field, plane, (d * size[1] + h) * size[2] + w, inner);
            }
          }
        }
      });
}

at::Tensor EmptyInner(const at::Tensor& field) {
  return at::empty(
      {field.size(0), field.size(2) - 2, field.size(3) - 2, field.size(4) - 2},
      at::kDouble);
}

// The offsets of all stencils, in a sample of the shape of `displacement`.
template <typename T>
std::array<typename Field<T>::Offsets, kStencils> AllOffsets(
    const at::Tensor& displacement) {
  const Field<T> shape(nullptr, {displacement.size(2), displacement.size(3),
                                 displacement.size(4)});
  std::array<typename Field<T>::Offsets, kStencils> all;
  for (int i = 0; i < kStencils; ++i) {
    all[i] = shape.OffsetsOf(MakeStencil(static_cast<JacobianStencil>(i)));
  }
  return all;
}

// A determinant is six times a signed volume, and there are two ways of
// cutting.
double VolumeOf(double determinant) { return std::max(-determinant, 0.0) / 12; }

template <typename T>
DiffeomorphismMeasures Measure(const at::Tensor& field,
                               const at::Tensor& mask) {
  struct OfPlane {
    int64_t voxels = 0, folded = 0, tetrahedra = 0;
    double volume = 0;
  };
  const auto all = AllOffsets<T>(field);
  std::vector<OfPlane> planes(field.size(0) * (field.size(2) - 2));
  const bool* looked_at =
      mask.defined() ? mask.const_data_ptr<bool>() : nullptr;
  ForEachInnerVoxel<T>(field, [&](const Field<T>& values, int64_t plane,
                                  int64_t voxel, int64_t inner) {
    if (looked_at != nullptr && !looked_at[inner]) return;
    OfPlane& of = planes[plane];
    ++of.voxels;
    if (values.Determinant(all[kCentral], voxel) <= 0) ++of.folded;
    for (int i = kCentral + 1; i < kStencils; ++i) {
      const double determinant = values.Determinant(all[i], voxel);
      if (determinant <= 0) ++of.tetrahedra;
      of.volume += VolumeOf(determinant);
    }
  });
  DiffeomorphismMeasures sum = {};
  int64_t tetrahedra = 0;
  for (const OfPlane& of : planes) {
    sum.voxels += of.voxels;
    sum.non_diffeomorphic_voxels += of.folded;
    tetrahedra += of.tetrahedra;
    sum.non_diffeomorphic_volume += of.volume;
  }
  sum.non_diffeomorphic_tetrahedra = static_cast<double>(tetrahedra) / 10;
  return sum;
}

// Within `mask`, of the inner voxels, where there is one.
DiffeomorphismMeasures MeasureField(const at::Tensor& field,
                                    const at::Tensor& mask) {
  return field.scalar_type() == at::kDouble ? Measure<double>(field, mask)
                                            : Measure<float>(field, mask);
}

template <typename T>
void Determinants(const at::Tensor& field, JacobianStencil stencil,
                  double* out) {
  const auto offsets = AllOffsets<T>(field)[static_cast<int>(stencil)];
  ForEachInnerVoxel<T>(field, [&](const Field<T>& values, int64_t,
                                  int64_t voxel, int64_t inner) {
    out[inner] = values.Determinant(offsets, voxel);
  });
}

template <typename T>
void Volumes(const at::Tensor& field, double* out) {
  const auto all = AllOffsets<T>(field);
  ForEachInnerVoxel<T>(field, [&](const Field<T>& values, int64_t,
                                  int64_t voxel, int64_t inner) {
    out[inner] = 0;
    for (int i = kCentral + 1; i < kStencils; ++i) {
      out[inner] += VolumeOf(values.Determinant(all[i], voxel));
    }
  });
}

}  // namespace

at::Tensor StencilJacobian(const at::Tensor& displacement,
                           JacobianStencil stencil) {
  const at::Tensor field = CheckedField("StencilJacobian", displacement);
  at::Tensor determinants = EmptyInner(field);
  double* out = determinants.mutable_data_ptr<double>();
  if (field.scalar_type() == at::kDouble) {
    Determinants<double>(field, stencil, out);
  } else {
    Determinants<float>(field, stencil, out);
  }
  return determinants;
}

DiffeomorphismMeasures MeasureDiffeomorphism(const at::Tensor& displacement) {
  return MeasureField(CheckedField("MeasureDiffeomorphism", displacement),
                      /*mask=*/{});
}

DiffeomorphismMeasures MeasureDiffeomorphism(const at::Tensor& displacement,
                                             const at::Tensor& mask) {
  const at::Tensor field = CheckedField("MeasureDiffeomorphism", displacement);
  TORCH_CHECK_VALUE(mask.defined(), "MeasureDiffeomorphism: mask is undefined");
  TORCH_CHECK_VALUE(mask.dim() == 4 && mask.size(0) == field.size(0) &&
                        mask.sizes().slice(1) == field.sizes().slice(2),
                    "MeasureDiffeomorphism: wanted a mask [N, D, H, W] for "
                    "the displacement ",
                    field.sizes(), ", came ", mask.sizes());
  at::Tensor inner = mask.detach().to(at::kCPU, at::kBool);
  for (int64_t axis = 1; axis < 4; ++axis) {
    inner = inner.narrow(axis, 1, inner.size(axis) - 2);
  }
  return MeasureField(field, inner.contiguous());
}

at::Tensor NonDiffeomorphicVolume(const at::Tensor& displacement) {
  const at::Tensor field = CheckedField("NonDiffeomorphicVolume", displacement);
  at::Tensor volumes = EmptyInner(field);
  double* out = volumes.mutable_data_ptr<double>();
  if (field.scalar_type() == at::kDouble) {
    Volumes<double>(field, out);
  } else {
    Volumes<float>(field, out);
  }
  return volumes;
}

}  // namespace mir::metrics
