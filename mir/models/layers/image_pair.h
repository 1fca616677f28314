#ifndef MIR_MODELS_LAYERS_IMAGE_PAIR_H_
#define MIR_MODELS_LAYERS_IMAGE_PAIR_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace mir::models {

// What a registration model takes.
struct ImagePairRule {
  std::string model;     // As errors name it.
  int64_t channels = 1;  // Of each image.
  std::vector<int64_t>
      multiple;  // Per spatial axis, of which there are 2 or 3.
  c10::ScalarType weights = c10::ScalarType::Float;  // The parameters' dtype.
};

// Throws c10::ValueError, saying what was wanted, unless `moving` and `fixed`
// are floating, of equal shape [N, channels, ...] and dtype, with spatial sizes
// that are multiples of `multiple`, and of the dtype of the weights or under
// autocast.
void CheckImagePair(const ImagePairRule& rule, const at::Tensor& moving,
                    const at::Tensor& fixed);

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_IMAGE_PAIR_H_
