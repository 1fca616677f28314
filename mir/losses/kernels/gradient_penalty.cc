#include "mir/losses/kernels/gradient_penalty.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "mir/base/target_clones.h"

namespace mir::losses::kernels {

namespace penalty_rows {

template <bool squared>
[[gnu::always_inline]] inline double Penalty(double difference) {
  return squared ? difference * difference : std::abs(difference);
}

// A row and those before and after it along h and d; where there is none, the
// row itself, to which the difference is 0. Of the row itself moved by one
// voxel along w the end is not read.
template <typename T>
struct Neighbours {
  const T* row;
  const T *before_d, *after_d;
  const T *before_h, *after_h;
  const T *before_w, *after_w;
};

// Adds the penalties of the differences to the neighbours after, along d, h and
// w. Eight partial sums, so that the order does not depend on the vector
// length.
template <bool squared, typename T>
[[gnu::always_inline]] inline void AddPenaltiesOf(const Neighbours<T>& at,
                                                  int64_t width, double* sums) {
  const T* const __restrict row = at.row;
  const T* const __restrict after_d = at.after_d;
  const T* const __restrict after_h = at.after_h;
  const T* const __restrict after_w = at.after_w;
  double along_d[8] = {}, along_h[8] = {}, along_w[8] = {};
  int64_t w = 0;
  for (; w + 8 < width; w += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      const double here = row[w + lane];
      along_d[lane] += Penalty<squared>(after_d[w + lane] - here);
      along_h[lane] += Penalty<squared>(after_h[w + lane] - here);
      along_w[lane] += Penalty<squared>(after_w[w + lane] - here);
    }
  }
  for (int lane = 0; lane < 8; ++lane) {
    sums[0] += along_d[lane];
    sums[1] += along_h[lane];
    sums[2] += along_w[lane];
  }
  for (; w < width; ++w) {
    const double here = row[w];
    sums[0] += Penalty<squared>(after_d[w] - here);
    sums[1] += Penalty<squared>(after_h[w] - here);
    if (w + 1 < width) sums[2] += Penalty<squared>(after_w[w] - here);
  }
}

// Half the derivative of the square, or that of the absolute value.
template <bool squared, typename T>
[[gnu::always_inline]] inline T Slope(T difference) {
  if (squared) return difference;
  return static_cast<T>(difference > 0) - static_cast<T>(difference < 0);
}

// The derivative by a voxel of the differences to those before and after it.
template <bool squared, typename T>
[[gnu::always_inline]] inline T SlopeAt(T before, T here, T after) {
  return Slope<squared>(here - before) - Slope<squared>(after - here);
}

template <bool squared, typename T>
[[gnu::always_inline]] inline void GradientOf(const Neighbours<T>& at,
                                              const T* weights, int64_t width,
                                              T* __restrict out) {
  const T along_d = weights[0], along_h = weights[1], along_w = weights[2];
  const T* const __restrict row = at.row;
  const T* const __restrict before_d = at.before_d;
  const T* const __restrict after_d = at.after_d;
  const T* const __restrict before_h = at.before_h;
  const T* const __restrict after_h = at.after_h;
  const T* const __restrict before_w = at.before_w;
  const T* const __restrict after_w = at.after_w;
  const int64_t last = width - 1;
  const auto across = [&](int64_t w) __attribute__((always_inline)) {
    return along_d * SlopeAt<squared>(before_d[w], row[w], after_d[w]) +
           along_h * SlopeAt<squared>(before_h[w], row[w], after_h[w]);
  };
  for (int64_t w = 1; w < last; ++w) {
    out[w] =
        across(w) + along_w * SlopeAt<squared>(before_w[w], row[w], after_w[w]);
  }
  for (const int64_t w : {int64_t{0}, last}) {
    const T before = row[w > 0 ? w - 1 : w], after = row[w < last ? w + 1 : w];
    out[w] = across(w) + along_w * SlopeAt<squared>(before, row[w], after);
  }
}

MIR_TARGET_CLONES void AddSquares(const Neighbours<float>& at, int64_t width,
                                  double* sums) {
  AddPenaltiesOf<true>(at, width, sums);
}
MIR_TARGET_CLONES void SquaresGradient(const Neighbours<float>& at,
                                       const float* weights, int64_t width,
                                       float* out) {
  GradientOf<true>(at, weights, width, out);
}
MIR_TARGET_CLONES void AddSquares(const Neighbours<double>& at, int64_t width,
                                  double* sums) {
  AddPenaltiesOf<true>(at, width, sums);
}
MIR_TARGET_CLONES void SquaresGradient(const Neighbours<double>& at,
                                       const double* weights, int64_t width,
                                       double* out) {
  GradientOf<true>(at, weights, width, out);
}
MIR_TARGET_CLONES void AddAbsolutes(const Neighbours<float>& at, int64_t width,
                                    double* sums) {
  AddPenaltiesOf<false>(at, width, sums);
}
MIR_TARGET_CLONES void AbsolutesGradient(const Neighbours<float>& at,
                                         const float* weights, int64_t width,
                                         float* out) {
  GradientOf<false>(at, weights, width, out);
}
MIR_TARGET_CLONES void AddAbsolutes(const Neighbours<double>& at, int64_t width,
                                    double* sums) {
  AddPenaltiesOf<false>(at, width, sums);
}
MIR_TARGET_CLONES void AbsolutesGradient(const Neighbours<double>& at,
                                         const double* weights, int64_t width,
                                         double* out) {
  GradientOf<false>(at, weights, width, out);
}

}  // namespace penalty_rows

template <typename T>
double NeighbourPenalty(const T* fields, const PenaltyShape& shape,
                        T* gradient) {
  const auto [depth, height, width] = shape.size;
  std::vector<double> penalties(shape.fields * depth);
  at::parallel_for(0, penalties.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t slice = begin; slice < end; ++slice) {
      const int64_t d = slice % depth;
      const auto& weights = shape.weights[slice / depth % shape.weights.size()];
      T slopes[3];
      for (int axis = 0; axis < 3; ++axis) {
        slopes[axis] = static_cast<T>((shape.squared ? 2 : 1) * weights[axis]);
      }
      double sums[3] = {};
      for (int64_t h = 0; h < height; ++h) {
        const int64_t offset = (slice * height + h) * width;
        const T* const row = fields + offset;
        const penalty_rows::Neighbours<T> at = {
            row,
            d > 0 ? row - height * width : row,
            d + 1 < depth ? row + height * width : row,
            h > 0 ? row - width : row,
            h + 1 < height ? row + width : row,
            row - 1,
            row + 1,
        };
        if (shape.squared) {
          penalty_rows::AddSquares(at, width, sums);
        } else {
          penalty_rows::AddAbsolutes(at, width, sums);
        }
        if (!gradient) continue;
        if (shape.squared) {
          penalty_rows::SquaresGradient(at, slopes, width, gradient + offset);
        } else {
          penalty_rows::AbsolutesGradient(at, slopes, width, gradient + offset);
        }
      }
      for (int axis = 0; axis < 3; ++axis) {
        penalties[slice] += weights[axis] * sums[axis];
      }
    }
  });
  double total = 0;
  for (const double one : penalties) total += one;
  return total;
}

template double NeighbourPenalty<float>(const float*, const PenaltyShape&,
                                        float*);
template double NeighbourPenalty<double>(const double*, const PenaltyShape&,
                                         double*);

}  // namespace mir::losses::kernels
