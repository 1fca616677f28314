#ifndef MIR_GEOMETRY_KERNELS_LINEAR_ROWS_H_
#define MIR_GEOMETRY_KERNELS_LINEAR_ROWS_H_

#include <array>
#include <cstdint>
#include <vector>

// Linear interpolation of a volume at displaced voxels, a row (along w) at a
// time, vectorised. A voxel reads two neighbours along each axis, both inside
// the volume, with tent weights: a neighbour outside a volume that reads zero
// there never gets a weight, so that there are no branches. All give the same
// bits on every processor. T is float or double throughout.
namespace mir::geometry::kernels {

// Where positions along one axis lie and what they read.
template <typename T>
struct LinearAxis {
  // `stride` is between neighbours in memory. With `mir` voxels are read as
  // by kMirCompatible. With `clamp` a position outside is moved to the
  // outermost voxel, else it reads zero there.
  LinearAxis(int64_t size, int64_t stride, bool mir, bool clamp);

  // A displaced voxel v is read at v + (v * scale - offset).
  T scale, offset;
  T slope;      // Of the position by the displacement.
  T last;       // size - 1.
  T last_base;  // Of low neighbours: max(size - 2, 0).
  bool clamp;
  int32_t stride;
  int32_t step;  // To the high neighbour: `stride`, or 0 if there is none.
};

template <typename T>
using LinearAxes = std::array<LinearAxis<T>, 3>;

// What the voxels of a row read: the index of the low neighbour along all
// axes, and each axis's weights of low and high neighbour.
template <typename T>
struct LinearRow {
  explicit LinearRow(int64_t width);

  std::vector<int32_t> index;
  std::array<std::vector<T>, 3> low, high;
  // The weights' derivatives by the position.
  std::array<std::vector<T>, 3> low_slope, high_slope;
  std::vector<T> zeros;  // A row without displacement.
};

// The smallest and largest index of a row, and whether all displacements are
// finite.
struct RowReach {
  int32_t low, high;
  bool finite;
};

// A row of displacements along each axis.
template <typename T>
using RowShift = std::array<const T*, 3>;

// The voxels that are displaced: voxel i of the row is (d, h, i * increment).
// An increment of 0 takes whole positions along w for displacements.
struct RowStart {
  int64_t d, h;
  int32_t increment;
};

// Fills `row`, its slopes only if `slopes`.
RowReach FillRow(const LinearAxes<float>& axes, const RowShift<float>& shift,
                 const RowStart& start, bool slopes, LinearRow<float>* row);
RowReach FillRow(const LinearAxes<double>& axes, const RowShift<double>& shift,
                 const RowStart& start, bool slopes, LinearRow<double>* row);

// Sets `out` to the volume `source` as `row` reads it; what lies outside reads
// `constant`. Where one neighbour alone has weight it is copied, every bit.
void Interpolate(const float* source, const LinearAxes<float>& axes,
                 const LinearRow<float>& row, float constant, float* out);
void Interpolate(const double* source, const LinearAxes<double>& axes,
                 const LinearRow<double>& row, double constant, double* out);

// Adds to out[k] the gradient to the displacement along axis k, or sets it
// with `first`, given that to Interpolate's `out`. Needs the row's slopes.
void DisplacementGradient(const float* source, const LinearAxes<float>& axes,
                          const LinearRow<float>& row, const float* gradient,
                          float constant, bool first,
                          std::array<float*, 3> out);
void DisplacementGradient(const double* source, const LinearAxes<double>& axes,
                          const LinearRow<double>& row, const double* gradient,
                          double constant, bool first,
                          std::array<double*, 3> out);

}  // namespace mir::geometry::kernels

#endif  // MIR_GEOMETRY_KERNELS_LINEAR_ROWS_H_
