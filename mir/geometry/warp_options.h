#ifndef MIR_GEOMETRY_WARP_OPTIONS_H_
#define MIR_GEOMETRY_WARP_OPTIONS_H_

namespace mir::geometry {

// Where voxel v is read at displacement u, along an axis of `size` voxels.
enum class WarpConvention {
  // At v + u: a zero displacement is the identity (PyTorch's
  // align_corners=True).
  kExact,
  // Where MIR's (and VoxelMorph's) SpatialTransformer reads: it normalises by
  // size - 1 and samples with align_corners=False, hence at
  // (v + u) * size / (size - 1) - 0.5. A zero displacement magnifies about the
  // centre, by half a voxel at the border. Along an axis of one voxel, where
  // Python divides by zero, as kExact.
  kMirCompatible,
};

enum class Interpolation {
  kLinear,
  // The nearest voxel; halfway between two, the one of even index, as in
  // PyTorch: 0.5, 1.5, 2.5 and 3.5 read 0, 2, 2 and 4.
  kNearest,
};

// What a sample outside the volume reads.
enum class Outside {
  kZero,         // Zero; linear samples fade over the last voxel.
  kNearestEdge,  // The nearest voxel of the volume ("border").
  // The volume mirrored: about the centres of its outermost voxels with
  // kExact, about their outer faces with kMirCompatible ("reflection").
  kReflect,
  kConstant,  // WarpOptions::constant; linear samples fade as with kZero.
};

struct WarpOptions {
  WarpConvention convention = WarpConvention::kExact;
  Interpolation interpolation = Interpolation::kLinear;
  Outside outside = Outside::kZero;
  double constant = 0;  // Of kConstant alone, such as -1024 for air in CT.
};

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_WARP_OPTIONS_H_
