#ifndef MIR_TESTING_TENSOR_MATCHERS_H_
#define MIR_TESTING_TENSOR_MATCHERS_H_

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>

#include <ostream>
#include <string>

namespace mir::testing {

// How far two tensors of equal shape are apart, compared in float64.
struct Difference {
  bool comparable = false;  // Shapes are equal.
  bool finite = false;      // No NaN or infinity in either, unless equal.
  double max_abs = 0;       // Largest |actual - expected|.
  double max_expected = 0;  // Largest |expected|.
  double rel_l2 = 0;        // |actual - expected|_2 / |expected|_2.
};
Difference Compare(const at::Tensor& actual, const at::Tensor& expected);
std::string Describe(const Difference& difference);

// Matches a tensor of the same shape, each element within `tolerance` times
// the largest absolute value of `expected` (at least 1e-30, so that zeros
// compare exactly). Dtypes may differ: values are compared in float64.
MATCHER_P2(AllClose, expected, tolerance,
           "is within " + ::testing::PrintToString(tolerance) +
               " of the expected tensor") {
  const Difference difference = Compare(arg, expected);
  *result_listener << Describe(difference);
  return difference.comparable && difference.finite &&
         difference.max_abs <= tolerance * difference.max_expected;
}

// Matches a tensor within `tolerance` by relative L2 difference.
MATCHER_P2(RelativeL2Near, expected, tolerance,
           "is within " + ::testing::PrintToString(tolerance) +
               " (relative L2) of the expected tensor") {
  const Difference difference = Compare(arg, expected);
  *result_listener << Describe(difference);
  return difference.comparable && difference.finite &&
         difference.rel_l2 <= tolerance;
}

// Matches a tensor of equal dtype and shape that holds the same values.
MATCHER_P(TensorEq, expected, "equals the expected tensor exactly") {
  if (arg.scalar_type() != expected.scalar_type()) {
    *result_listener << "dtype " << c10::toString(arg.scalar_type());
    return false;
  }
  const Difference difference = Compare(arg, expected);
  *result_listener << Describe(difference);
  return difference.comparable && difference.finite && difference.max_abs == 0;
}

}  // namespace mir::testing

#endif  // MIR_TESTING_TENSOR_MATCHERS_H_
