#ifndef MIR_LOSSES_MIND_SSC_H_
#define MIR_LOSSES_MIND_SSC_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

namespace mir::losses {

struct MindSscOptions {
  int64_t radius = 2;    // Of the patches that are compared, in voxels.
  int64_t dilation = 2;  // How far the neighbours lie, in voxels.
  // Throw on a NaN or infinity on a GPU too, which waits for it.
  bool check_finite = false;
};

// The mean squared difference of two images' self-similarity contexts (Heinrich
// et al., "Towards Realtime Multimodal Fusion", 2013; MIR's MIND_loss). Of the
// six neighbours of a voxel those 12 pairs that touch are compared, by the mean
// squared difference s of the patches around them; a descriptor is
// exp(-(s - min s) / v) with v the mean of s - min s over the pairs, kept
// between 0.001 and 1000 times its own mean over the volume. In [0, 1]; the
// descriptor of a constant image is 1. Does not change when an image is scaled,
// shifted or negated.
//
//   fixed, moving  [N, C, D, H, W] or [N, C, H, W]  floating, of any types;
//                  each channel is compared with its own; 2-D images are
//                  volumes of one slice
//   returns        scalar, float32 (float64 where an image is float64)
//
// Computes in float32 (float64) with float64 sums under any autocast.
// Differentiable in both, with the bounds of v held fixed; on the CPU once,
// with the gradients computed in the forward pass. The same bits for any number
// of threads. Thread-safe. Throws as LocalNcc does.
class MindSsc {
 public:
  // Throws c10::ValueError for a negative radius or a dilation that is not
  // positive.
  explicit MindSsc(const MindSscOptions& options = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  MindSscOptions options_;
};

// The descriptors of a volume, [N, 1, D, H, W] to [N, 12, D, H, W], float32
// (float64 for float64), in the order of the authors' C++ code, which MIR
// keeps. By LibTorch's operators, on any device; differentiable.
at::Tensor MindSscDescriptor(const at::Tensor& image,
                             const MindSscOptions& options = {});

// MindSsc by LibTorch's operators: what runs on GPUs. On any device.
at::Tensor MindSscByOperators(const at::Tensor& fixed, const at::Tensor& moving,
                              const MindSscOptions& options);

}  // namespace mir::losses

#endif  // MIR_LOSSES_MIND_SSC_H_
