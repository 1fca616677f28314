#include "mir/data/grid.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace mir::data {
namespace {

double Determinant(const Affine& m) {
  return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) -
         m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
         m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
}

double ColumnLength(const Affine& m, int column) {
  return std::hypot(m[0][column], m[1][column], m[2][column]);
}

}  // namespace

Affine Multiply(const Affine& left, const Affine& right) {
  Affine product{};
  for (int row = 0; row < 4; ++row) {
    for (int column = 0; column < 4; ++column) {
      for (int k = 0; k < 4; ++k) {
        product[row][column] += left[row][k] * right[k][column];
      }
    }
  }
  return product;
}

Affine Inverse(const Affine& m) {
  const double determinant = Determinant(m);
  Affine inverse = kIdentity;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) {
      // The cofactor of (column, row): cyclic indices give it its sign.
      const int r1 = (column + 1) % 3, r2 = (column + 2) % 3;
      const int c1 = (row + 1) % 3, c2 = (row + 2) % 3;
      inverse[row][column] =
          (m[r1][c1] * m[r2][c2] - m[r1][c2] * m[r2][c1]) / determinant;
    }
  }
  for (int row = 0; row < 3; ++row) {
    inverse[row][3] = 0;
    for (int k = 0; k < 3; ++k) inverse[row][3] -= inverse[row][k] * m[k][3];
  }
  return inverse;
}

bool IsInvertible(const Affine& matrix) {
  for (const auto& row : matrix) {
    for (const double entry : row) {
      if (!std::isfinite(entry) || std::abs(entry) > 1e12) return false;
    }
  }
  const double volume = ColumnLength(matrix, 0) * ColumnLength(matrix, 1) *
                        ColumnLength(matrix, 2);
  return volume > 1e-18 && std::abs(Determinant(matrix)) > 1e-6 * volume;
}

std::array<double, 3> Apply(const Affine& matrix,
                            const std::array<double, 3>& point) {
  std::array<double, 3> result;
  for (int row = 0; row < 3; ++row) {
    result[row] = matrix[row][0] * point[0] + matrix[row][1] * point[1] +
                  matrix[row][2] * point[2] + matrix[row][3];
  }
  return result;
}

std::array<double, 3> SpacingMm(const Grid& grid) {
  return {ColumnLength(grid.to_world, 0), ColumnLength(grid.to_world, 1),
          ColumnLength(grid.to_world, 2)};
}

std::string Orientation(const Grid& grid) {
  // Of all assignments of axes to directions the one with the largest sum of
  // cosines.
  std::array<int, 3> order = {0, 1, 2}, best = order;
  double best_sum = -1;
  do {
    double sum = 0;
    for (int axis = 0; axis < 3; ++axis) {
      const double length = ColumnLength(grid.to_world, axis);
      if (length > 0) {
        sum += std::abs(grid.to_world[order[axis]][axis]) / length;
      }
    }
    if (sum > best_sum + 1e-9) {
      best_sum = sum;
      best = order;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  std::string letters;
  for (int axis = 0; axis < 3; ++axis) {
    const bool negative = grid.to_world[best[axis]][axis] < 0;
    letters += (negative ? "LPI" : "RAS")[best[axis]];
  }
  return letters;
}

bool SameGrid(const Grid& a, const Grid& b) {
  if (a.size != b.size) return false;
  const auto spacing = SpacingMm(a);
  const double tolerance_mm =
      0.05 * *std::min_element(spacing.begin(), spacing.end());
  for (int corner = 0; corner < 8; ++corner) {
    std::array<double, 3> voxel;
    for (int axis = 0; axis < 3; ++axis) {
      voxel[axis] = (corner >> axis & 1) * (a.size[axis] - 1.0);
    }
    const auto in_a = Apply(a.to_world, voxel);
    const auto in_b = Apply(b.to_world, voxel);
    for (int axis = 0; axis < 3; ++axis) {
      if (!(std::abs(in_a[axis] - in_b[axis]) <= tolerance_mm)) return false;
    }
  }
  return true;
}

std::string Describe(const Grid& grid) {
  const auto spacing = SpacingMm(grid);
  return absl::StrFormat(
      "%s voxels of %.4gx%.4gx%.4g mm, %s, first voxel at (%.4g, %.4g, %.4g) "
      "mm",
      absl::StrJoin(grid.size, "x"), spacing[0], spacing[1], spacing[2],
      Orientation(grid), grid.to_world[0][3], grid.to_world[1][3],
      grid.to_world[2][3]);
}

}  // namespace mir::data
