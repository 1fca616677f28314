#ifndef MIR_TOOLS_CHECKPOINT_TENSOR_STATISTICS_H_
#define MIR_TOOLS_CHECKPOINT_TENSOR_STATISTICS_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace mir::tools {

struct TensorStatistics {
  // Of the finite elements; a float, an int, or null where there are none and
  // for complex tensors.
  nlohmann::ordered_json minimum;
  nlohmann::ordered_json maximum;
  int64_t nonfinite = 0;  // How many elements are infinite or no number.
};

// Of a tensor on the CPU, of any shape and dtype. Memory does not grow with the
// tensor. Thread-safe.
//
// Throws what ATen throws for tensors that are not strided.
TensorStatistics StatisticsOf(const at::Tensor& tensor);

// How two tensors of one shape differ, compared as float64 or complex128.
struct TensorDifference {
  // Whether all bytes are equal: dtypes too, and signs of zeros.
  bool bit_equal = false;
  int64_t different = 0;  // Elements; those that are NaN in both are equal.
  double largest = 0;     // |a - b|; infinite where only one is finite.
};
TensorDifference DifferenceOf(const at::Tensor& a, const at::Tensor& b);

}  // namespace mir::tools

#endif  // MIR_TOOLS_CHECKPOINT_TENSOR_STATISTICS_H_
