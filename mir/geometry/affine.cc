#include "mir/geometry/affine.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_cross.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mir/geometry/displacement_check.h"
#include "mir/geometry/warp.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

at::Tensor Checked(const char* function, const char* name,
                   const at::Tensor& tensor, at::IntArrayRef after_batch) {
  TORCH_CHECK_VALUE(tensor.defined(), function, ": ", name, " is undefined");
  TORCH_CHECK_VALUE(
      tensor.is_floating_point() && tensor.dim() == after_batch.size() + 1 &&
          tensor.sizes().slice(1) == after_batch,
      function, ": wanted ", name, " floating, N samples of shape ",
      after_batch, ", came ", tensor.sizes(), " of ", tensor.scalar_type());
  return precision::ToComputeType(tensor);
}

at::Tensor CheckedMatrix(const char* function, const at::Tensor& matrix) {
  return Checked(function, "an affine map", matrix, {3, 4});
}

void CheckSameBatch(const char* function, at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.size(0) == tensors[0].size(0), function,
                      ": wanted equal numbers of samples, came ",
                      tensors[0].size(0), " and ", tensor.size(0));
  }
}

void CheckSizes(const char* function, at::IntArrayRef sizes) {
  TORCH_CHECK_VALUE(
      sizes.size() == 3 && std::all_of(sizes.begin(), sizes.end(),
                                       [](int64_t size) { return size > 0; }),
      function, ": wanted positive sizes (D, H, W), came ", sizes);
}

// Of small matrices, without cuBLAS: it could use TF32 in the backward pass.
at::Tensor Product(const at::Tensor& a, const at::Tensor& b) {
  return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2);
}

// [N, 3, 3] from its rows, each of three tensors [N].
using Row = std::vector<at::Tensor>;
at::Tensor FromRows(const std::vector<Row>& rows) {
  std::vector<at::Tensor> stacked;
  for (const Row& row : rows) stacked.push_back(at::stack(row, /*dim=*/1));
  return at::stack(stacked, /*dim=*/1);
}

// About z first, then y, then x: [N, 3, 3].
at::Tensor Rotation(const at::Tensor& angles) {
  const at::Tensor sine = angles.sin(), cosine = angles.cos();
  const at::Tensor one = at::ones_like(angles.select(1, 0));
  const at::Tensor zero = at::zeros_like(one);
  const auto s = [&](int64_t axis) { return sine.select(1, axis); };
  const auto c = [&](int64_t axis) { return cosine.select(1, axis); };
  const at::Tensor about_x =
      FromRows({{one, zero, zero}, {zero, c(0), -s(0)}, {zero, s(0), c(0)}});
  const at::Tensor about_y =
      FromRows({{c(1), zero, s(1)}, {zero, one, zero}, {-s(1), zero, c(1)}});
  const at::Tensor about_z =
      FromRows({{c(2), -s(2), zero}, {s(2), c(2), zero}, {zero, zero, one}});
  return Product(Product(about_x, about_y), about_z);
}

at::Tensor Join(const at::Tensor& linear, const at::Tensor& translation) {
  return at::cat({linear, translation.unsqueeze(-1)}, /*dim=*/-1);
}

at::Tensor Linear(const at::Tensor& matrix) {
  return matrix.narrow(/*dim=*/2, 0, 3);
}

at::Tensor Translation(const at::Tensor& matrix) {
  return matrix.select(/*dim=*/2, 3);
}

at::Tensor SizesLike(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::tensor(sizes, like.options().dtype(at::kLong)).to(like);
}

// Voxel positions along `axis`, from the centre.
at::Tensor FromCentre(int64_t size, const at::TensorOptions& options) {
  return at::arange(size, options) - 0.5 * static_cast<double>(size - 1);
}

}  // namespace

at::Tensor AffineMatrix(const at::Tensor& rotation, const at::Tensor& scale,
                        const at::Tensor& translation,
                        const at::Tensor& shear) {
  constexpr char kName[] = "AffineMatrix";
  const precision::Fp32Region fp32;
  const at::Tensor angles = Checked(kName, "rotation", rotation, {3});
  const at::Tensor sizes = Checked(kName, "scale", scale, {3});
  const at::Tensor shift = Checked(kName, "translation", translation, {3});
  const at::Tensor tangents = Checked(kName, "shear", shear, {6}).tan();
  CheckSameBatch(kName, {angles, sizes, shift, tangents});
  const auto t = [&](int64_t i) { return tangents.select(1, i); };
  const at::Tensor one = at::ones_like(t(0));
  const at::Tensor sheared =
      FromRows({{one, t(2), t(4)}, {t(0), one, t(5)}, {t(1), t(3), one}});
  // MIR's rotations turn the other way: the transpose.
  const at::Tensor turned = Rotation(angles).transpose(1, 2);
  return Join(Product(sheared, sizes.unsqueeze(-1) * turned), shift);
}

at::Tensor AugmentationMatrix(const at::Tensor& rotation,
                              const at::Tensor& scale,
                              const at::Tensor& translation) {
  constexpr char kName[] = "AugmentationMatrix";
  const precision::Fp32Region fp32;
  const at::Tensor angles = Checked(kName, "rotation", rotation, {3});
  const at::Tensor sizes = 1 + Checked(kName, "scale", scale, {3});
  const at::Tensor shift = Checked(kName, "translation", translation, {3});
  CheckSameBatch(kName, {angles, sizes, shift});
  return Product(Rotation(angles), Join(at::diag_embed(sizes), shift));
}

at::Tensor InvertAffine(const at::Tensor& matrix) {
  const precision::Fp32Region fp32;
  const at::Tensor map = CheckedMatrix("InvertAffine", matrix);
  // The rows of the inverse's transpose are cross products of the rows.
  const auto row = [&](int64_t i) { return Linear(map).select(/*dim=*/1, i); };
  const at::Tensor cofactors = at::stack(
      {at::linalg_cross(row(1), row(2)), at::linalg_cross(row(2), row(0)),
       at::linalg_cross(row(0), row(1))},
      /*dim=*/2);
  const at::Tensor determinant =
      (row(0) * cofactors.select(/*dim=*/2, 0)).sum(/*dim=*/1);
  const at::Tensor linear = cofactors / determinant.view({-1, 1, 1});
  return Join(linear,
              -Product(linear, Translation(map).unsqueeze(-1)).squeeze(-1));
}

at::Tensor ToVoxelAffine(const at::Tensor& normalized, at::IntArrayRef sizes) {
  CheckSizes("ToVoxelAffine", sizes);
  const at::Tensor map = CheckedMatrix("ToVoxelAffine", normalized);
  const at::Tensor size = SizesLike(sizes, map);
  return Join(Linear(map).flip({1, 2}) * (size.unsqueeze(1) / size),
              Translation(map).flip(1) * size * 0.5);
}

at::Tensor ToNormalizedAffine(const at::Tensor& voxel, at::IntArrayRef sizes) {
  CheckSizes("ToNormalizedAffine", sizes);
  const at::Tensor map = CheckedMatrix("ToNormalizedAffine", voxel);
  const at::Tensor size = SizesLike(sizes, map);
  return Join((Linear(map) * (size / size.unsqueeze(1))).flip({1, 2}),
              (Translation(map) * 2 / size).flip(1));
}

at::Tensor AffineToDisplacement(const at::Tensor& voxel,
                                at::IntArrayRef sizes) {
  CheckSizes("AffineToDisplacement", sizes);
  const at::Tensor map = CheckedMatrix("AffineToDisplacement", voxel);
  // What differs from the identity, so that nothing cancels.
  const at::Tensor linear = Linear(map) - at::eye(3, map.options());
  const auto along = [&](int64_t axis) {
    std::vector<int64_t> shape = {1, 1, 1, 1, 1};
    shape[2 + axis] = sizes[axis];
    return linear.select(/*dim=*/2, axis).view({-1, 3, 1, 1, 1}) *
           FromCentre(sizes[axis], map.options()).view(shape);
  };
  return along(0) + Translation(map).reshape({-1, 3, 1, 1, 1}) +
         (along(1) + along(2));
}

at::Tensor DisplacementToAffine(const at::Tensor& displacement) {
  CheckDisplacement("DisplacementToAffine", "displacement", displacement);
  TORCH_CHECK_VALUE(displacement.dim() == 5,
                    "DisplacementToAffine: wanted a displacement [N, 3, D, H, "
                    "W], came ",
                    displacement.sizes());
  const precision::Fp32Region fp32;
  const at::Tensor field = precision::ToComputeType(displacement);
  // Centred coordinates are orthogonal to each other and to constants over the
  // grid, so that each coefficient is a projection of its own.
  std::vector<at::Tensor> columns;
  for (int64_t axis = 0; axis < 3; ++axis) {
    std::vector<int64_t> others = {2, 3, 4};
    others.erase(others.begin() + axis);
    const at::Tensor position =
        FromCentre(field.size(2 + axis), field.options().dtype(at::kDouble));
    const at::Tensor mean =
        field.mean(others, /*keepdim=*/false, at::kDouble);  // [N, 3, size]
    columns.push_back((mean * position).sum(-1) /
                      position.square().sum().clamp_min(0.5));
  }
  columns.push_back(field.mean({2, 3, 4}, /*keepdim=*/false, at::kDouble));
  const at::Tensor map = at::stack(columns, /*dim=*/2);
  return (map + at::eye(3, 4, map.options())).to(field.scalar_type());
}

at::Tensor ApplyAffine(const at::Tensor& image, const at::Tensor& normalized,
                       Interpolation interpolation, Outside outside) {
  TORCH_CHECK_VALUE(image.defined() && image.dim() == 5,
                    "ApplyAffine: wanted an image [N, C, D, H, W], came ",
                    image.defined() ? image.sizes() : at::IntArrayRef());
  at::Tensor map = CheckedMatrix("ApplyAffine", normalized);
  TORCH_CHECK_VALUE(map.size(0) == image.size(0),
                    "ApplyAffine: wanted a map for each of ", image.size(0),
                    " images, came ", map.size(0));
  if (image.scalar_type() == at::kDouble) map = map.to(at::kDouble);
  const at::IntArrayRef sizes = image.sizes().slice(2);
  return Warp(image, AffineToDisplacement(ToVoxelAffine(map, sizes), sizes),
              {WarpConvention::kExact, interpolation, outside});
}

AffineTransformer::Result AffineTransformer::operator()(
    const at::Tensor& image, const at::Tensor& rotation,
    const at::Tensor& scale, const at::Tensor& translation,
    const at::Tensor& shear) const {
  const at::Tensor matrix = AffineMatrix(rotation, scale, translation, shear);
  return {ApplyAffine(image, matrix, interpolation_), matrix,
          InvertAffine(matrix)};
}

}  // namespace mir::geometry
