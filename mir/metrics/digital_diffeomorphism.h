#ifndef MIR_METRICS_DIGITAL_DIFFEOMORPHISM_H_
#define MIR_METRICS_DIGITAL_DIFFEOMORPHISM_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

namespace mir::metrics {

// Whether a digital mapping x -> x + displacement(x) folds, by Liu, Chen, Wei,
// Carass and Prince, On Finite Difference Jacobian Computation in Deformable
// Image Registration (IJCV 2024). Between voxels the mapping is taken to be
// linear on tetrahedra, so that it folds nowhere if and only if all of the
// tetrahedra keep their orientation. MIR's MIR.accuracy_measures.

// Finite differences for the Jacobian determinant, in MIR's order and with
// MIR's names. kCentral takes neighbours on both sides; the next eight take
// one-sided differences, forward (Plus) or backward (Minus) along d, h and w in
// turn: each is six times the signed volume of a tetrahedron at a corner of a
// cube of voxels. The last two are of the tetrahedra in the middle of the cube.
enum class JacobianStencil {
  kCentral,          // 0x0y0z
  kPlusPlusPlus,     // +x+y+z
  kPlusPlusMinus,    // +x+y-z
  kPlusMinusPlus,    // +x-y+z
  kPlusMinusMinus,   // +x-y-z
  kMinusPlusPlus,    // -x+y+z
  kMinusPlusMinus,   // -x+y-z
  kMinusMinusPlus,   // -x-y+z
  kMinusMinusMinus,  // -x-y-z
  kStar1,            // Jstar_1
  kStar2,            // Jstar_2
};

// All functions below take
//
//   displacement  [N, 3, D, H, W]  float16, bfloat16, float32 or float64; in
//                                  voxels; channel k along spatial axis k; all
//                                  spatial sizes at least 3; on any device
//
// (MIR takes x + displacement(x) instead) and leave out the voxels of the
// volume's faces, as MIR does, so that every voxel has its neighbours. They
// compute in float64, without gradients, and are deterministic and thread-safe.
// They throw c10::ValueError if an argument is not as said here, or the
// displacement is not finite.

// The determinants by one stencil: [N, D-2, H-2, W-2], float64, on the CPU.
at::Tensor StencilJacobian(const at::Tensor& displacement,
                           JacobianStencil stencil);

struct DiffeomorphismMeasures {
  int64_t voxels;  // How many were looked at.
  // Those with a central determinant of at most 0.
  int64_t non_diffeomorphic_voxels;
  // The share of the ten tetrahedra (two ways of cutting a cube into five) with
  // a determinant of at most 0, summed over voxels: in units of voxels. MIR's
  // non_diff_tetrahedra.
  double non_diffeomorphic_tetrahedra;
  // By how much the tetrahedra are turned inside out, averaged over the two
  // ways of cutting: a volume in voxels, 0 for a digital diffeomorphism.
  // MIR's non_diff_volume; LUMIR and IXI give it in per cent of `voxels`.
  double non_diffeomorphic_volume;
};

// Samples of a batch are taken together, so call it per pair.
DiffeomorphismMeasures MeasureDiffeomorphism(const at::Tensor& displacement);

// Likewise, of the voxels where `mask` is not 0.
//
//   mask  [N, D, H, W]  floating, integer or bool
DiffeomorphismMeasures MeasureDiffeomorphism(const at::Tensor& displacement,
                                             const at::Tensor& mask);

// Each voxel's part of the non-diffeomorphic volume, [N, D-2, H-2, W-2],
// float64, on the CPU. MIR's non_diff_volume_map.
at::Tensor NonDiffeomorphicVolume(const at::Tensor& displacement);

}  // namespace mir::metrics

#endif  // MIR_METRICS_DIGITAL_DIFFEOMORPHISM_H_
