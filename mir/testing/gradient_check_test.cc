#include "mir/testing/gradient_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

namespace mir::testing {
namespace {

at::Tensor Input() { return at::arange(1, 5, at::kDouble); }

TEST(GradientCheckTest, AcceptsTheRightGradient) {
  EXPECT_LT(GradientError([](const auto& in) { return in[0] * in[0] * in[1]; },
                          {Input(), Input() + 1}),
            1e-8);
}

TEST(GradientCheckTest, SeesAWrongGradient) {
  // Half of x^2 is hidden from autograd.
  EXPECT_GT(GradientError([](const auto& in) { return in[0] * in[0].detach(); },
                          {Input()}),
            0.5);
}

TEST(GradientCheckTest, SeesAMissingGradient) {
  EXPECT_GT(
      GradientError([](const auto& in) { return in[0] + in[1].detach() * 2; },
                    {Input(), Input()}),
      0.5);
}

TEST(GradientCheckTest, SeesAGradientThatIsNotFinite) {
  // The first element's derivative is infinity * 0 for autograd.
  EXPECT_GT(
      GradientError([](const auto& in) { return (in[0] - 1).relu().sqrt(); },
                    {Input()}),
      0.5);
}

}  // namespace
}  // namespace mir::testing
