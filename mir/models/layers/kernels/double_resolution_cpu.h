#ifndef MIR_MODELS_LAYERS_KERNELS_DOUBLE_RESOLUTION_CPU_H_
#define MIR_MODELS_LAYERS_KERNELS_DOUBLE_RESOLUTION_CPU_H_

#include <array>
#include <cstdint>

// Doubles the resolution of volumes by trilinear interpolation, axis by axis,
// float or double: `channels` contiguous volumes of `size` to as many of twice
// the size, of which the first and last voxels lie where they did
// (`align_corners`), or whose edges do. Threaded; the same bits for any number
// of threads and on every x86-64.
namespace mir::models::kernels {

template <typename T>
void DoubleForward(const T* x, int64_t channels,
                   const std::array<int64_t, 3>& size, bool align_corners,
                   T* out);

// The gradient to the volumes, given that to the larger ones.
template <typename T>
void DoubleBackward(const T* gradient, int64_t channels,
                    const std::array<int64_t, 3>& size, bool align_corners,
                    T* to_x);

}  // namespace mir::models::kernels

#endif  // MIR_MODELS_LAYERS_KERNELS_DOUBLE_RESOLUTION_CPU_H_
