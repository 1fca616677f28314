// Finds by how many voxels an image was moved: descends MIR's local NCC through
// MIR's warp.

#include <torch/torch.h>

#include <cmath>
#include <iostream>

#include "mir/geometry/warp.h"
#include "mir/losses/local_ncc.h"

namespace {

// Smooth waves in a volume of side^3, moved along the last axis.
at::Tensor Waves(int64_t side, double shift) {
  const at::Tensor axis = at::arange(side, at::kFloat);
  const at::Tensor waves = at::sin(axis.view({side, 1, 1}) / 4) +
                           at::sin(axis.view({1, side, 1}) / 5) +
                           2 * at::sin((axis - shift).view({1, 1, side}) / 3);
  return waves.view({1, 1, side, side, side});
}

}  // namespace

int main() {
  constexpr int64_t kSide = 32;
  constexpr int64_t kMargin = 6;  // What comes from outside is not compared.
  constexpr double kShift = 3;
  const at::Tensor fixed = Waves(kSide, 0);
  const at::Tensor moving = Waves(kSide, kShift);

  at::Tensor shift = at::zeros({1, 3, 1, 1, 1});
  shift.requires_grad_();
  torch::optim::Adam optimizer({shift}, torch::optim::AdamOptions(0.1));
  const mir::losses::LocalNcc ncc;
  const auto Inside = [&](const at::Tensor& image) {
    return image.narrow(/*dim=*/4, kMargin, kSide - 2 * kMargin);
  };
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    const at::Tensor warped =
        mir::geometry::Warp(moving, shift.expand({1, 3, kSide, kSide, kSide}));
    const at::Tensor loss = ncc(Inside(fixed), Inside(warped));
    loss.backward();
    optimizer.step();
    if (step % 25 == 0) std::cout << "ncc " << loss.item<float>() << "\n";
  }

  const double found = shift[0][2].item<double>();
  std::cout << "moved by " << kShift << " voxels, found " << found << "\n";
  return std::abs(found - kShift) < 0.1 ? 0 : 1;
}
