#ifndef MIR_TESTING_FILL_H_
#define MIR_TESTING_FILL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

// The values of network weights in golden cases: a function of an entry's name,
// shape and gain and of a seed, so that no weights need to be stored.
// tests/goldens/README.md has the rule.
namespace mir::testing {

// 64-bit FNV-1a of the bytes of `text`.
uint64_t Fnv1a64(absl::string_view text);

// Element `index` of the pseudo-random sequence of `name`: in [-1, 1), a
// multiple of 2^-23.
double UniformValue(uint64_t name_hash, uint64_t index, uint64_t seed);

// The float32 tensor of that shape that `name` is filled with.
at::Tensor FillValues(absl::string_view name, const std::vector<int64_t>& shape,
                      double gain, uint64_t seed);

// What an output is multiplied by, elementwise, before all is summed to the
// scalar that golden gradients are of. float32.
at::Tensor Cotangent(absl::string_view output_name,
                     const std::vector<int64_t>& shape, uint64_t seed);

}  // namespace mir::testing

#endif  // MIR_TESTING_FILL_H_
