#include "mir/testing/tensor_matchers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <sstream>

namespace mir::testing {

Difference Compare(const at::Tensor& actual, const at::Tensor& expected) {
  Difference difference;
  if (!actual.defined() || !expected.defined() ||
      actual.sizes() != expected.sizes()) {
    return difference;
  }
  difference.comparable = true;
  difference.finite = true;
  if (expected.numel() == 0) return difference;
  const at::Tensor a = actual.detach().to(at::kCPU, at::kDouble);
  const at::Tensor e = expected.detach().to(at::kCPU, at::kDouble);
  const at::Tensor gap = at::where(a.eq(e), at::zeros_like(a), (a - e).abs());
  difference.finite = at::isfinite(gap).all().item<bool>();
  difference.max_abs = gap.max().item<double>();
  difference.max_expected = e.abs().max().item<double>();
  const double norm = e.norm().item<double>();
  const double gap_norm = gap.norm().item<double>();
  difference.rel_l2 = gap_norm == 0 ? 0
                      : norm == 0   ? std::numeric_limits<double>::infinity()
                                    : gap_norm / norm;
  return difference;
}

std::string Describe(const Difference& difference) {
  if (!difference.comparable) return "whose shape differs";
  std::ostringstream out;
  if (!difference.finite) out << "which differs in NaN or infinity; ";
  out << "max |difference| " << difference.max_abs << " of max |expected| "
      << difference.max_expected << ", relative L2 " << difference.rel_l2;
  return out.str();
}

}  // namespace mir::testing
