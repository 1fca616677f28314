#ifndef MIR_MODELS_LAYERS_KERNELS_CONVOLVE3_CPU_H_
#define MIR_MODELS_LAYERS_KERNELS_CONVOLVE3_CPU_H_

#include <array>
#include <cstdint>
#include <vector>

// Convolutions of one volume with kernels of 3 x 3 x 3, stride 1 and a padding
// of one zero, in float or double. Along d and h by Winograd's minimal
// filtering F(2 x 2, 3 x 3): 12 multiplications per voxel and pair of channels
// instead of 27 (Lavin and Gray, "Fast algorithms for convolutional neural
// networks", CVPR 2016).
//
// A channel is a contiguous [D, H, W] array wherever it lies, so that what is
// concatenated need not be copied. Threaded; the same bits for the same number
// of threads on one processor.
namespace mir::models::kernels {

template <typename T>
using Channels = std::vector<const T*>;

template <typename T>
using OutChannels = std::vector<T*>;

using VolumeSize = std::array<int64_t, 3>;  // (D, H, W)

// A gradient after a leaky ReLU of `slope`, whose outputs are `activated`; none
// where that is empty.
template <typename T>
struct ActivatedGradient {
  Channels<T> gradient;
  Channels<T> activated;
  T slope = 1;
};

// out = leaky_relu(convolution of `in` + bias); a slope of 1 is none.
//
//   weight  [out.size(), in.size(), 3, 3, 3]
//   bias    [out.size()], or null
template <typename T>
void ConvolveForward(const Channels<T>& in, const T* weight, const T* bias,
                     T slope, const VolumeSize& size,
                     const OutChannels<T>& out);

// The gradient to the inputs.
//
//   weight  [gradient.size(), to_in.size(), 3, 3, 3]
template <typename T>
void ConvolveBackwardToInput(const ActivatedGradient<T>& gradient,
                             const T* weight, const VolumeSize& size,
                             const OutChannels<T>& to_in);

// Adds the gradients to the weight and to the bias (null: not that).
template <typename T>
void ConvolveBackwardToWeight(const Channels<T>& in,
                              const ActivatedGradient<T>& gradient,
                              const VolumeSize& size, T* to_weight, T* to_bias);

}  // namespace mir::models::kernels

#endif  // MIR_MODELS_LAYERS_KERNELS_CONVOLVE3_CPU_H_
