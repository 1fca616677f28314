#ifndef MIR_GEOMETRY_KERNELS_SELF_COMPOSE_ROWS_H_
#define MIR_GEOMETRY_KERNELS_SELF_COMPOSE_ROWS_H_

#include <cstdint>

#include "mir/geometry/kernels/linear_rows.h"

// The composition of a field with itself, x -> u(x) + u(x + u(x)), a row at a
// time. Fields hold four numbers per voxel, (d, h, w, 0), so that a neighbour
// is one load. The axes' strides count voxels. All give the same bits on every
// processor.
namespace mir::geometry::kernels {

// Sets out[4 * i + k] to component k at voxel `first + i`, for the row of
// voxels that begins at `first` of `field`, and reads what `row` says.
void SelfComposeRow(const float* field, int64_t first,
                    const LinearAxes<float>& axes, const LinearRow<float>& row,
                    float* out);
void SelfComposeRow(const double* field, int64_t first,
                    const LinearAxes<double>& axes,
                    const LinearRow<double>& row, double* out);

// Adds to `field_gradient` what the gradient to SelfComposeRow's `out`, the
// row at `first` of `gradient`, gives it besides itself: through the voxels
// that are read, and through where they are read. Needs the row's slopes, and
// memory for four numbers per voxel of the row in `scratch`.
void AddSelfComposeGradient(const float* field, int64_t first,
                            const LinearAxes<float>& axes,
                            const LinearRow<float>& row, const float* gradient,
                            float* scratch, float* field_gradient);
void AddSelfComposeGradient(const double* field, int64_t first,
                            const LinearAxes<double>& axes,
                            const LinearRow<double>& row,
                            const double* gradient, double* scratch,
                            double* field_gradient);

// Between four numbers per voxel and a row of each component: sets to
// components[k] (null: 0) times `scale`, and back.
void InterleaveRow(const float* const components[3], int64_t width, float scale,
                   float* out);
void InterleaveRow(const double* const components[3], int64_t width,
                   double scale, double* out);
void SeparateRow(const float* in, int64_t width, float scale,
                 float* const components[3]);
void SeparateRow(const double* in, int64_t width, double scale,
                 double* const components[3]);

}  // namespace mir::geometry::kernels

#endif  // MIR_GEOMETRY_KERNELS_SELF_COMPOSE_ROWS_H_
