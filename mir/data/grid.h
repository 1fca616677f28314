#ifndef MIR_DATA_GRID_H_
#define MIR_DATA_GRID_H_

#include <array>
#include <cstdint>
#include <string>

namespace mir::data {

// A 4x4 matrix by rows; the last is 0, 0, 0, 1.
using Affine = std::array<std::array<double, 4>, 4>;

constexpr Affine kIdentity = {
    {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}}};

// Where the voxels of a volume lie. Axis 0 is the file's first (i), and the
// first spatial axis of tensors; the world is RAS: its axes point to the
// right, the front and the head, in mm.
struct Grid {
  std::array<int64_t, 3> size = {0, 0, 0};
  Affine to_world = kIdentity;  // From voxel index to world position.
};

Affine Multiply(const Affine& left, const Affine& right);

// `matrix` must not be singular; IsInvertible tells.
Affine Inverse(const Affine& matrix);

// Whether all entries are finite, and the axes neither vanish nor coincide.
bool IsInvertible(const Affine& matrix);

std::array<double, 3> Apply(const Affine& matrix,
                            const std::array<double, 3>& point);

// Distance between neighbours along each axis, in mm.
std::array<double, 3> SpacingMm(const Grid& grid);

// The direction that each axis mostly points to, such as "RAS" or "LPI". No
// two axes share a letter pair.
std::string Orientation(const Grid& grid);

// Whether the sizes are equal, and no corner is off by more than a twentieth
// of a voxel (headers are rounded).
bool SameGrid(const Grid& a, const Grid& b);

// "181x217x181 voxels of 1x1x1 mm, RAS, first voxel at (-90, -126, -72) mm".
std::string Describe(const Grid& grid);

}  // namespace mir::data

#endif  // MIR_DATA_GRID_H_
