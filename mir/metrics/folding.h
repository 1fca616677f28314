#ifndef MIR_METRICS_FOLDING_H_
#define MIR_METRICS_FOLDING_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::metrics {

// Both measures take
//
//   displacement  [N, 3, D, H, W] or [N, 2, H, W]  float16, bfloat16, float32
//                                                  or float64; in voxels;
//                                                  channel k along spatial
//                                                  axis k; on any device
//
// and look at the Jacobian determinants J of geometry::JacobianDeterminant,
// computed in float64, a few planes at a time. Samples of a batch are taken
// together, so call them per pair. Deterministic. Thread-safe.
//
// They throw c10::ValueError if `displacement` is not as above, is empty or is
// not finite.

// The share of voxels, from 0 to 1, with J <= 0: there the mapping folds. Over
// all voxels, those on the volume's faces included, as VoxelMorph and
// TransMorph report it ("% of |J| <= 0"); Learn2Reg's evaluation reports no
// share (it counts after a clip, hence always 0).
double FoldedShare(const at::Tensor& displacement);

// Learn2Reg's SDlogJ: the standard deviation (over n, not n - 1) of
// log(clip(J + 3, 1e-9, 1e9)), over the voxels that are at least 2 away from
// every face. Every spatial size is at least 5.
double SdLogJacobian(const at::Tensor& displacement);

}  // namespace mir::metrics

#endif  // MIR_METRICS_FOLDING_H_
