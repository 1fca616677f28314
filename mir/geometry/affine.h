#ifndef MIR_GEOMETRY_AFFINE_H_
#define MIR_GEOMETRY_AFFINE_H_

#include <ATen/core/Tensor.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry {

// Affine maps of a volume, from where a voxel is to where it is read. They come
// in two forms, each [N, 3, 4], the linear part A before the translation t:
//
//   normalized  y = A x + t for points (x, y, z), that is (w, h, d), each from
//               -1 to 1 between the volume's outer faces: MIR's, and that of
//               PyTorch's affine_grid with align_corners=False
//   voxel       y - c = A (x - c) + t for points (d, h, w) in voxels, c the
//               volume's centre, (size - 1) / 2: that of MIR's AffineReg3D
//
// All functions take float16, bfloat16, float32 or float64, and compute and
// return float64 for float64, else float32, under autocast too. They are
// differentiable in all tensors and thread-safe, and throw c10::ValueError if
// an argument is not as said.

// MIR's AffineTransformer: a normalized map that turns, scales, and then
// shears.
//
//   rotation     [N, 3]  angles about x, y and z, in radians; applied in that
//                        order
//   scale        [N, 3]  along x, y and z; 1 keeps a size
//   translation  [N, 3]  (x, y, z), normalized
//   shear        [N, 6]  angles xy, xz, yx, yz, zx, zy in radians: their
//                        tangents stand off the diagonal, column by column
//
// AffineReg3D's matrix has the same form with exp(log_scale), and shears that
// are tangents already: give their arctangents.
at::Tensor AffineMatrix(const at::Tensor& rotation, const at::Tensor& scale,
                        const at::Tensor& translation, const at::Tensor& shear);

// MIR's affine augmentation (_build_affine_matrix_3d): a normalized map that
// scales by 1 + scale and shifts, and then turns about z, y and x, the other
// way round than AffineMatrix does. All are [N, 3].
at::Tensor AugmentationMatrix(const at::Tensor& rotation,
                              const at::Tensor& scale,
                              const at::Tensor& translation);

// The map back, in the same form. Infinite or NaN where there is none.
at::Tensor InvertAffine(const at::Tensor& matrix);

// From one form to the other, for a volume of (D, H, W) voxels.
at::Tensor ToVoxelAffine(const at::Tensor& normalized, at::IntArrayRef sizes);
at::Tensor ToNormalizedAffine(const at::Tensor& voxel, at::IntArrayRef sizes);

// The displacement [N, 3, D, H, W], in voxels, of a voxel map: exactly 0 for
// the identity.
at::Tensor AffineToDisplacement(const at::Tensor& voxel, at::IntArrayRef sizes);

// The voxel map whose displacement is nearest to `displacement` [N, 3, D, H, W]
// in the least-squares sense: AffineToDisplacement's inverse where that is
// affine. Along an axis of one voxel the map keeps lengths. Sums are float64.
at::Tensor DisplacementToAffine(const at::Tensor& displacement);

// Reads `image` [N, C, D, H, W] where a normalized map takes each voxel: MIR's
// apply_affine. Returns the dtype and shape of `image`, as Warp does with
// kExact; reads outside the volume as that does.
at::Tensor ApplyAffine(const at::Tensor& image, const at::Tensor& normalized,
                       Interpolation interpolation = Interpolation::kLinear,
                       Outside outside = Outside::kZero);

// MIR's AffineTransformer in one call.
class AffineTransformer {
 public:
  explicit AffineTransformer(
      Interpolation interpolation = Interpolation::kLinear)
      : interpolation_(interpolation) {}

  struct Result {
    at::Tensor warped;   // ApplyAffine
    at::Tensor matrix;   // AffineMatrix
    at::Tensor inverse;  // InvertAffine
  };
  Result operator()(const at::Tensor& image, const at::Tensor& rotation,
                    const at::Tensor& scale, const at::Tensor& translation,
                    const at::Tensor& shear) const;

 private:
  Interpolation interpolation_;
};

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_AFFINE_H_
