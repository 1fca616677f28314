#ifndef MIR_LOSSES_KERNELS_PARZEN_H_
#define MIR_LOSSES_KERNELS_PARZEN_H_

#include <cstdint>
#include <vector>

namespace mir::losses::kernels {

// Where an intensity lies in a row of cells of equal width. Within a cell the
// weight of each bin is a polynomial of the offset from the cell's middle (in
// cells, from -0.5 to 0.5), so that sums over voxels of products of weights
// follow from sums of products of powers of offsets.
struct ParzenCells {
  int64_t cells = 1;
  double start = 0;  // The lower end of the first cell.
  double inverse_width = 1;
  // Intensities are clamped to these; beyond them slopes are 0. Not so with one
  // cell: there the offset is the intensity less `start`.
  double low = 0, high = 0;
  // At an intensity on the border of two cells, but for `start`, take the sum
  // of the slopes to both sides, as autograd does for a hat function.
  bool sum_slopes = false;
};

// The numbers of powers that each image of a pair takes, from the 0th.
struct ParzenOrders {
  int x = 8, y = 8;
};

// Whether the kernels are made for these: (8, 8), (8, 2), (4, 4) and (4, 2).
bool HasParzenKernel(const ParzenOrders& orders);

// Sums over voxels weight * s^p * t^q, with s and t the offsets of x and y, for
// each pair of cells: [volumes][cells of x][cells of y][orders.x][orders.y].
//
//   x, y    [volumes, count]; T is float or double
//   weight  null, or [volumes, count]
//
// Sums are flushed to float64 before they are long. The same bits for every
// number of threads.
template <typename T>
std::vector<double> ParzenMoments(const T* x, const T* y, const T* weight,
                                  int64_t volumes, int64_t count,
                                  const ParzenCells& x_cells,
                                  const ParzenCells& y_cells,
                                  const ParzenOrders& orders);

// Writes to `out`, or adds where `add`, for each voxel, weight * sum of
// slopes[...][p][q] s^p t^q for its pair of cells: [volumes, count]. `slopes`
// is laid out as the result of ParzenMoments. It is the derivative by x where
// `by_x`, else by y, and 0 where that image's intensity is clamped.
template <typename T>
void ParzenSlopes(const T* x, const T* y, const T* weight, int64_t volumes,
                  int64_t count, const ParzenCells& x_cells,
                  const ParzenCells& y_cells, const ParzenOrders& orders,
                  const std::vector<T>& slopes, bool by_x, bool add, T* out);

}  // namespace mir::losses::kernels

#endif  // MIR_LOSSES_KERNELS_PARZEN_H_
