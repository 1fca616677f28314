#include "mir/losses/kernels/gradient_penalty.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "mir/base/target_clones.h"

namespace mir::losses::kernels {

namespace penalty_rows {

template <bool squared>
[[gnu::always_inline]] inline double Penalty(double difference) {
  return squared ? difference * difference : std::abs(difference);
}

// Eight partial sums, so that the order does not depend on the vector length.
template <bool squared, typename T>
[[gnu::always_inline]] inline double SumOf(const T* __restrict row,
                                           const T* __restrict next,
                                           int64_t count) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      lanes[lane] +=
          Penalty<squared>(static_cast<double>(next[i + lane]) - row[i + lane]);
    }
  }
  double sum = 0;
  for (int lane = 0; lane < 8; ++lane) sum += lanes[lane];
  for (; i < count; ++i) {
    sum += Penalty<squared>(static_cast<double>(next[i]) - row[i]);
  }
  return sum;
}

MIR_TARGET_CLONES double SumSquares(const float* row, const float* next,
                                    int64_t count) {
  return SumOf<true>(row, next, count);
}
MIR_TARGET_CLONES double SumSquares(const double* row, const double* next,
                                    int64_t count) {
  return SumOf<true>(row, next, count);
}
MIR_TARGET_CLONES double SumAbsolutes(const float* row, const float* next,
                                      int64_t count) {
  return SumOf<false>(row, next, count);
}
MIR_TARGET_CLONES double SumAbsolutes(const double* row, const double* next,
                                      int64_t count) {
  return SumOf<false>(row, next, count);
}

// Half the derivative of the square, or that of the absolute value.
template <bool squared, typename T>
[[gnu::always_inline]] inline T Slope(T difference) {
  if (squared) return difference;
  return static_cast<T>(difference > 0) - static_cast<T>(difference < 0);
}

// A row and those before and after it along h and d; where there is none, the
// row itself, to which the difference is 0.
template <typename T>
struct Neighbours {
  const T* row;
  const T* before_h;
  const T* after_h;
  const T* before_d;
  const T* after_d;
};

template <bool squared, typename T>
[[gnu::always_inline]] inline void GradientOf(const Neighbours<T>& at,
                                              const T* weights, int64_t width,
                                              T* __restrict out) {
  const T along_d = weights[0], along_h = weights[1], along_w = weights[2];
  const T* const __restrict row = at.row;
  for (int64_t w = 0; w < width; ++w) {
    const T here = row[w];
    out[w] = along_d * (Slope<squared>(here - at.before_d[w]) -
                        Slope<squared>(at.after_d[w] - here)) +
             along_h * (Slope<squared>(here - at.before_h[w]) -
                        Slope<squared>(at.after_h[w] - here));
  }
  for (int64_t w = 1; w < width; ++w) {
    out[w] += along_w * Slope<squared>(row[w] - row[w - 1]);
  }
  for (int64_t w = 0; w + 1 < width; ++w) {
    out[w] -= along_w * Slope<squared>(row[w + 1] - row[w]);
  }
}

MIR_TARGET_CLONES void SquaresGradient(const Neighbours<float>& at,
                                       const float* weights, int64_t width,
                                       float* out) {
  GradientOf<true>(at, weights, width, out);
}
MIR_TARGET_CLONES void SquaresGradient(const Neighbours<double>& at,
                                       const double* weights, int64_t width,
                                       double* out) {
  GradientOf<true>(at, weights, width, out);
}
MIR_TARGET_CLONES void AbsolutesGradient(const Neighbours<float>& at,
                                         const float* weights, int64_t width,
                                         float* out) {
  GradientOf<false>(at, weights, width, out);
}
MIR_TARGET_CLONES void AbsolutesGradient(const Neighbours<double>& at,
                                         const double* weights, int64_t width,
                                         double* out) {
  GradientOf<false>(at, weights, width, out);
}

}  // namespace penalty_rows

template <typename T>
double NeighbourPenalty(const T* fields, const PenaltyShape& shape) {
  const auto [depth, height, width] = shape.size;
  const auto sum = [&](const T* row, const T* next, int64_t count) {
    return shape.squared ? penalty_rows::SumSquares(row, next, count)
                         : penalty_rows::SumAbsolutes(row, next, count);
  };
  std::vector<double> sums(shape.fields * depth);
  at::parallel_for(0, sums.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t slice = begin; slice < end; ++slice) {
      const T* const first = fields + slice * height * width;
      double along_d = 0, along_h = 0, along_w = 0;
      for (int64_t h = 0; h < height; ++h) {
        const T* const row = first + h * width;
        along_w += sum(row, row + 1, width - 1);
        if (h + 1 < height) along_h += sum(row, row + width, width);
        if (slice % depth + 1 < depth) {
          along_d += sum(row, row + height * width, width);
        }
      }
      const auto& weights = shape.weights[slice / depth % shape.weights.size()];
      sums[slice] =
          weights[0] * along_d + weights[1] * along_h + weights[2] * along_w;
    }
  });
  double total = 0;
  for (const double one : sums) total += one;
  return total;
}

template <typename T>
void NeighbourPenaltyGradient(const T* fields, const PenaltyShape& shape,
                              double scale, T* gradient) {
  const auto [depth, height, width] = shape.size;
  const double factor = shape.squared ? 2 * scale : scale;
  at::parallel_for(0, shape.fields * depth, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slice = begin; slice < end; ++slice) {
      const int64_t d = slice % depth;
      T weights[3];
      for (int axis = 0; axis < 3; ++axis) {
        weights[axis] = static_cast<T>(
            factor * shape.weights[slice / depth % shape.weights.size()][axis]);
      }
      for (int64_t h = 0; h < height; ++h) {
        const int64_t offset = (slice * height + h) * width;
        const T* const row = fields + offset;
        const penalty_rows::Neighbours<T> at = {
            row,
            h > 0 ? row - width : row,
            h + 1 < height ? row + width : row,
            d > 0 ? row - height * width : row,
            d + 1 < depth ? row + height * width : row,
        };
        if (shape.squared) {
          penalty_rows::SquaresGradient(at, weights, width, gradient + offset);
        } else {
          penalty_rows::AbsolutesGradient(at, weights, width,
                                          gradient + offset);
        }
      }
    }
  });
}

template double NeighbourPenalty<float>(const float*, const PenaltyShape&);
template double NeighbourPenalty<double>(const double*, const PenaltyShape&);
template void NeighbourPenaltyGradient<float>(const float*, const PenaltyShape&,
                                              double, float*);
template void NeighbourPenaltyGradient<double>(const double*,
                                               const PenaltyShape&, double,
                                               double*);

}  // namespace mir::losses::kernels
