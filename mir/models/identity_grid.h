#ifndef MIR_MODELS_IDENTITY_GRID_H_
#define MIR_MODELS_IDENTITY_GRID_H_

#include <torch/nn/module.h>

#include <vector>

namespace mir::models {

// Stands where MIR's SpatialTransformer registers its sampling grid, the buffer
// `grid` of shape [1, nd, ...]: lists the key and holds no memory. The warp
// makes its coordinates itself.
class IdentityGrid : public torch::nn::Module {
 public:
  // `image_size`: the spatial sizes, nd of them.
  explicit IdentityGrid(std::vector<int64_t> image_size)
      : torch::nn::Module("IdentityGrid"), image_size_(std::move(image_size)) {}

  // The last part of the state_dict key.
  static constexpr char kKey[] = "grid";

  // The shape of MIR's buffer; its dtype is float32.
  std::vector<int64_t> Shape() const {
    std::vector<int64_t> shape = {1, static_cast<int64_t>(image_size_.size())};
    shape.insert(shape.end(), image_size_.begin(), image_size_.end());
    return shape;
  }

 private:
  std::vector<int64_t> image_size_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_IDENTITY_GRID_H_
