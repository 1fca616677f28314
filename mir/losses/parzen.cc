#include "mir/losses/parzen.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "mir/losses/fused_loss.h"

namespace mir::losses {
namespace {

constexpr int kGaussianOrder = 8;

// Tails of a Gaussian are below 1e-16 beyond so many sigmas.
constexpr double kTailSigmas = 8.6;

// The offsets at which a polynomial in a cell is fitted: Chebyshev's.
std::vector<double> Nodes(int order) {
  std::vector<double> nodes;
  for (int i = 0; i < order; ++i) {
    nodes.push_back(0.5 * std::cos(M_PI * (i + 0.5) / order));
  }
  return nodes;
}

// The polynomials through weight(place, bin) at `order` places in each cell;
// places are in bins from the first centre on.
template <typename Weight>
ParzenWindow Fit(int64_t bins, int order, const kernels::ParzenCells& cells,
                 double first_place, double cell_bins, const Weight& weight) {
  const std::vector<double> nodes = Nodes(order);
  const at::TensorOptions options(at::kDouble);
  const at::Tensor powers = at::empty({order, order}, options);
  for (int i = 0; i < order; ++i) {
    for (int p = 0; p < order; ++p) powers[i][p] = std::pow(nodes[i], p);
  }
  const at::Tensor values = at::empty({cells.cells, order, bins}, options);
  double* value = values.mutable_data_ptr<double>();
  for (int64_t cell = 0; cell < cells.cells; ++cell) {
    for (const double node : nodes) {
      const double place = first_place + (cell + 0.5 + node) * cell_bins;
      for (int64_t bin = 0; bin < bins; ++bin) *value++ = weight(place, bin);
    }
  }
  ParzenWindow window;
  window.bins = bins;
  window.order = order;
  window.cells = cells;
  window.coefficients = at::linalg_solve(powers, values);
  return window;
}

void CheckBins(int64_t bins, double low, double high) {
  TORCH_CHECK_VALUE(bins >= 2 && low < high,
                    "wanted at least 2 bins and a range that is not empty, "
                    "got ",
                    bins, " from ", low, " to ", high);
}

}  // namespace

ParzenWindow GaussianWindow(int64_t bins, double low, double high, double sigma,
                            bool normalized, double clamp_low) {
  CheckBins(bins, low, high);
  TORCH_CHECK_VALUE(sigma > 0, "wanted a positive sigma, got ", sigma);
  const double width = (high - low) / (bins - 1);
  // Normalised weights have poles pi sigma^2 bins off the real axis, which
  // bound how wide a cell a polynomial of this degree can follow.
  const double reach = normalized ? sigma * sigma : sigma;
  const int64_t per_bin =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(1 / reach - 1e-9)));
  const int64_t beyond =
      normalized ? 0 : static_cast<int64_t>(std::ceil(kTailSigmas * sigma));
  kernels::ParzenCells cells;
  cells.cells = (bins - 1 + 2 * beyond) * per_bin;
  cells.start = low - beyond * width;
  cells.inverse_width = per_bin / width;
  cells.low = normalized ? clamp_low : cells.start;
  cells.high = high + beyond * width;
  // Normalised weights do not change where all are scaled.
  const auto gaussian = [=](double place, int64_t bin) {
    const double distance = (place - bin) / sigma;
    return std::exp(-0.5 * distance * distance);
  };
  return Fit(bins, kGaussianOrder, cells, -static_cast<double>(beyond),
             1.0 / per_bin, [&](double place, int64_t bin) {
               if (!normalized) return gaussian(place, bin);
               double sum = 0;
               for (int64_t other = 0; other < bins; ++other) {
                 sum += gaussian(place, other);
               }
               return gaussian(place, bin) / sum;
             });
}

ParzenWindow CubicSplineWindow(int64_t bins, double low, double high) {
  CheckBins(bins, low, high);
  kernels::ParzenCells cells;
  cells.cells = bins - 1;
  cells.start = cells.low = low;
  cells.high = high;
  cells.inverse_width = (bins - 1) / (high - low);
  return Fit(bins, 4, cells, 0, 1, [](double place, int64_t bin) {
    const double u = std::abs(place - bin);
    if (u < 1) return (4 - 6 * u * u + 3 * u * u * u) / 6;
    return u < 2 ? (2 - u) * (2 - u) * (2 - u) / 6 : 0.0;
  });
}

ParzenWindow HatWindow(int64_t bins, double low, double high) {
  CheckBins(bins, low, high);
  kernels::ParzenCells cells;
  // One beyond each end, for the slopes there.
  cells.cells = bins + 1;
  cells.inverse_width = (bins - 1) / (high - low);
  cells.start = low - 1 / cells.inverse_width;
  cells.low = low;
  cells.high = high;
  cells.sum_slopes = true;
  return Fit(bins, 2, cells, -1, 1, [](double place, int64_t bin) {
    return std::max(0.0, 1 - std::abs(place - bin));
  });
}

ParzenWindow ValueWindow(double centre) {
  ParzenWindow window;
  window.cells.start = centre;
  window.bins = window.order = 2;
  window.cells.low = -std::numeric_limits<double>::infinity();
  window.cells.high = std::numeric_limits<double>::infinity();
  window.coefficients = at::eye(2, at::kDouble).unsqueeze(0);
  return window;
}

at::Tensor ParzenMoments(const at::Tensor& x, const at::Tensor& y,
                         const at::Tensor& weight, const ParzenWindow& x_window,
                         const ParzenWindow& y_window) {
  const kernels::ParzenOrders orders{x_window.order, y_window.order};
  TORCH_CHECK(kernels::HasParzenKernel(orders), "no kernel for orders ",
              orders.x, " and ", orders.y);
  const int64_t volumes = x.size(0), count = x.numel() / volumes;
  const auto sums = [&](auto zero) {
    using T = decltype(zero);
    return kernels::ParzenMoments<T>(
        x.const_data_ptr<T>(), y.const_data_ptr<T>(),
        weight.defined() ? weight.const_data_ptr<T>() : nullptr, volumes, count,
        x_window.cells, y_window.cells, orders);
  };
  const std::vector<double> moments =
      x.scalar_type() == at::kDouble ? sums(0.0) : sums(0.0f);
  const at::Tensor result = at::empty(
      {volumes, x_window.cells.cells, y_window.cells.cells, orders.x, orders.y},
      at::TensorOptions(at::kDouble));
  std::memcpy(result.mutable_data_ptr<double>(), moments.data(),
              moments.size() * sizeof(double));
  return result;
}

Histogram HistogramOf(const at::Tensor& moments, const ParzenWindow& x_window,
                      const ParzenWindow& y_window) {
  const at::Tensor x_rows = x_window.coefficients.flatten(0, 1);
  const at::Tensor y_rows = y_window.coefficients.flatten(0, 1);
  // [N, cells and powers of x, cells and powers of y]
  const at::Tensor matrix = moments.transpose(2, 3).flatten(3, 4).flatten(1, 2);
  Histogram histogram;
  histogram.joint = at::matmul(x_rows.t(), at::matmul(matrix, y_rows));
  // The 0th power of the other image is 1.
  histogram.x = at::matmul(moments.select(4, 0).sum(2).flatten(1), x_rows);
  histogram.y = at::matmul(moments.select(3, 0).sum(1).flatten(1), y_rows);
  return histogram;
}

at::Tensor SlopeTable(const at::Tensor& gradient, const ParzenWindow& x_window,
                      const ParzenWindow& y_window, bool by_x) {
  const int64_t axis = by_x ? 3 : 4;
  const int64_t order = gradient.size(axis);
  std::vector<int64_t> along(5, 1);
  along[axis] = order - 1;
  const double per_intensity =
      by_x ? x_window.cells.inverse_width : y_window.cells.inverse_width;
  const at::Tensor exponents =
      at::arange(1, order, at::TensorOptions(at::kDouble)).view(along);
  const at::Tensor slopes = at::zeros_like(gradient);
  slopes.narrow(axis, 0, order - 1)
      .copy_(gradient.narrow(axis, 1, order - 1) * exponents * per_intensity);
  return slopes;
}

void WriteSlopes(const at::Tensor& x, const at::Tensor& y,
                 const at::Tensor& weight, const ParzenWindow& x_window,
                 const ParzenWindow& y_window, const at::Tensor& table,
                 bool by_x, bool add, const at::Tensor& out) {
  const kernels::ParzenOrders orders{x_window.order, y_window.order};
  const int64_t volumes = x.size(0), count = x.numel() / volumes;
  const at::Tensor own = table.to(x.scalar_type()).contiguous();
  const auto write = [&](auto zero) {
    using T = decltype(zero);
    const T* const first = own.const_data_ptr<T>();
    kernels::ParzenSlopes<T>(
        x.const_data_ptr<T>(), y.const_data_ptr<T>(),
        weight.defined() ? weight.const_data_ptr<T>() : nullptr, volumes, count,
        x_window.cells, y_window.cells, orders,
        std::vector<T>(first, first + own.numel()), by_x, add,
        out.mutable_data_ptr<T>());
  };
  if (x.scalar_type() == at::kDouble) {
    write(0.0);
  } else {
    write(0.0f);
  }
}

namespace {

// [N, count, bins]: each intensity's weights, of images [N, count] in float64.
at::Tensor WeightsOf(const at::Tensor& image, const ParzenWindow& window) {
  const at::Tensor coefficients = window.coefficients.to(image.device());
  at::Tensor cell, offset;
  if (window.cells.cells == 1) {
    cell = at::zeros_like(image, at::kLong);
    offset = image - window.cells.start;
  } else {
    const at::Tensor place = (image.clamp(window.cells.low, window.cells.high) -
                              window.cells.start) *
                             window.cells.inverse_width;
    cell = place.detach().to(at::kLong).clamp_max(window.cells.cells - 1);
    offset = place - cell - 0.5;
  }
  at::Tensor weights, power;
  for (int p = 0; p < window.order; ++p) {
    const at::Tensor own =
        coefficients.select(1, p)
            .index_select(0, cell.flatten())
            .view({image.size(0), image.size(1), window.bins});
    if (p == 0) {
      weights = own;
      continue;
    }
    power = power.defined() ? power * offset : offset;
    weights = weights + own * power.unsqueeze(2);
  }
  return weights;
}

}  // namespace

Histogram HistogramByOperators(const at::Tensor& x, const at::Tensor& y,
                               const at::Tensor& weight,
                               const ParzenWindow& x_window,
                               const ParzenWindow& y_window) {
  at::Tensor x_weights = WeightsOf(x.to(at::kDouble).flatten(1), x_window);
  const at::Tensor y_weights =
      WeightsOf(y.to(at::kDouble).flatten(1), y_window);
  Histogram histogram;
  if (weight.defined()) {
    const at::Tensor own = weight.to(at::kDouble).flatten(1).unsqueeze(2);
    x_weights = x_weights * own;
    histogram.y = (y_weights * own).sum(1);
  } else {
    histogram.y = y_weights.sum(1);
  }
  histogram.x = x_weights.sum(1);
  histogram.joint = at::matmul(x_weights.transpose(1, 2), y_weights);
  return histogram;
}

at::Tensor ParzenLoss(const char* loss, const at::Tensor& x,
                      const at::Tensor& y, const at::Tensor& weight,
                      const ParzenWindow& x_window,
                      const ParzenWindow& y_window, const HistogramLoss& of) {
  at::Tensor own_weight;
  at::Tensor total =
      at::full({x.size(0)}, static_cast<double>(x.numel() / x.size(0)),
               x.options().dtype(at::kDouble));
  if (weight.defined()) {
    own_weight = weight.detach().to(x.scalar_type()).expand_as(x).contiguous();
    total = own_weight.flatten(1).sum(1, /*keepdim=*/false, at::kDouble);
    total = total.masked_fill(total == 0, 1);
  }
  if (!x.is_cpu()) {
    return of(HistogramByOperators(x, y, own_weight, x_window, y_window), total)
        .to(x.scalar_type());
  }
  return FusedLoss(
      loss, x, y,
      [=](const at::Tensor& x, const at::Tensor& y, const at::Tensor& grad_x,
          const at::Tensor& grad_y) {
        const bool gradient = grad_x.defined() || grad_y.defined();
        const at::AutoGradMode mode(gradient);
        const at::Tensor moments =
            ParzenMoments(x, y, own_weight, x_window, y_window)
                .requires_grad_(gradient);
        const at::Tensor value =
            of(HistogramOf(moments, x_window, y_window), total);
        if (gradient) {
          const at::Tensor by_moments =
              torch::autograd::grad({value}, {moments})[0];
          const at::NoGradGuard no_grad;
          for (const bool by_x : {true, false}) {
            const at::Tensor& out = by_x ? grad_x : grad_y;
            if (!out.defined()) continue;
            WriteSlopes(x, y, own_weight, x_window, y_window,
                        SlopeTable(by_moments, x_window, y_window, by_x), by_x,
                        /*add=*/false, out);
          }
        }
        return value.item<double>();
      });
}

}  // namespace mir::losses
