#ifndef MIR_METRICS_SURFACE_DISTANCE_H_
#define MIR_METRICS_SURFACE_DISTANCE_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace mir::metrics {

struct SurfaceDistances {
  std::vector<int64_t> labels;
  // One per label, in the unit of the spacing. Infinity where only one of the
  // two segmentations has the label, NaN where neither has it.
  //
  // HD95: of the distances from each surface voxel of one to the surface of the
  // other, the 95th percentile; the larger one of both directions.
  std::vector<double> hd95_mm;
  // The mean of the distances of both directions together.
  std::vector<double> average_mm;
  // Over the labels that both have: an infinite one would swallow the others.
  // So look at `missing` too. NaN where `scored` is 0.
  double mean_hd95_mm;
  double mean_average_mm;
  int64_t scored;   // How many labels the means are over.
  int64_t missing;  // How many of the labels only one of the two has.
};

// How far apart the surfaces of two segmentations are, per label.
//
//   a, b        [D, H, W] or [H, W]  integer tensors (or bool) of equal shape,
//                                    of any dtypes and devices
//   spacing_mm  one per axis, positive: the voxels' size
//   labels      which to measure, in this order; by default all that occur in
//               `a` or `b` except 0, the background, in ascending order
//
// A surface voxel has the label, and a face neighbour that has not or is
// outside the volume; distances are between centres of voxels, exact, in
// float64 (DistanceTransform). The percentile is numpy's: linear between the
// two nearest ranks. So both are MONAI's compute_hausdorff_distance
// (percentile=95) and compute_average_surface_distance (symmetric=True).
// Learn2Reg's evaluation weighs the surface by area (DeepMind's
// surface-distance) instead, with a spacing of 1, and MedPy takes the
// percentile of both directions together: figures differ by fractions of a
// voxel.
//
// Deterministic. Thread-safe.
//
// Throws c10::ValueError if an argument is not as above, or a label is given
// twice.
SurfaceDistances CompareSurfaces(
    const at::Tensor& a, const at::Tensor& b, c10::ArrayRef<double> spacing_mm,
    const std::optional<std::vector<int64_t>>& labels = {});

}  // namespace mir::metrics

#endif  // MIR_METRICS_SURFACE_DISTANCE_H_
