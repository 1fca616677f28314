#ifndef MIR_LOSSES_KERNELS_GRADIENT_FIELD_H_
#define MIR_LOSSES_KERNELS_GRADIENT_FIELD_H_

#include <array>
#include <cstdint>

namespace mir::losses::kernels {

// The normalized gradient field similarity of each voxel. With a and b the
// images' gradients by central differences, after a mean over a box:
//
//   ((a . b)^2 + epsilon) / ((|a|^2 + eta_a) (|b|^2 + eta_b) + epsilon)
struct GradientFieldFormula {
  int64_t radius = 1;  // Of the box; 0: no smoothing.
  // Voxels outside read their nearest neighbour inside, and the mean is over
  // those inside; otherwise they count as zeros in both.
  bool replicate = false;
  double epsilon = 0;
  double eta_a = 0, eta_b = 0;
};

// The sum of that over all voxels, and its derivative by b.
//
//   a, b    [volumes, d, h, w]; T is float or double; a 2-D image has d = 1 and
//           `axes` 2, and is not smoothed along d
//   grad_b  null, or where to write the derivative
//
// The same bits for every number of threads.
template <typename T>
double CompareGradientFields(const T* a, const T* b, int64_t volumes,
                             const std::array<int64_t, 3>& size, int axes,
                             const GradientFieldFormula& formula, T* grad_b);

}  // namespace mir::losses::kernels

#endif  // MIR_LOSSES_KERNELS_GRADIENT_FIELD_H_
