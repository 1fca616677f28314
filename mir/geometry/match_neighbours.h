#ifndef MIR_GEOMETRY_MATCH_NEIGHBOURS_H_
#define MIR_GEOMETRY_MATCH_NEIGHBOURS_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::geometry {

// Vector field attention: where, among a voxel's neighbours, its features are
// found again. The mean offset of the 27 (9) neighbours, weighted by the
// softmax of query times key over the square root of the channels:
//
//   queries  [N, C, D, H, W] or [N, C, H, W]            float16, bfloat16,
//                                                       float32 or float64
//   keys     [N, C, D + 2, H + 2, W + 2] or likewise    likewise; float64 only
//                                                       where `queries` is
//   returns  [N, 3, D, H, W] or [N, 2, H, W]            each from -1 to 1;
//            channel k along spatial axis k; float64 for float64, else float32
//
// Liu, Chen, Wei, Carass and Prince, "Vector field attention for deformable
// image registration", Journal of Medical Imaging 11(6), 2024. MIR's
// `Attention` on `get_candidate_from_tensor`, which first copies every
// neighbourhood: 27 times the memory.
//
// Computes in the type that it returns, under autocast too. Differentiable
// once. On the CPU a kernel of its own, with the same bits for any number of
// threads; elsewhere MatchNeighboursByOperators. Thread-safe.
//
// Throws c10::ValueError where a shape or dtype is not as above.
at::Tensor MatchNeighbours(const at::Tensor& queries, const at::Tensor& keys);

// The same by LibTorch's operators: what runs on GPUs. On any device;
// differentiable any number of times.
at::Tensor MatchNeighboursByOperators(const at::Tensor& queries,
                                      const at::Tensor& keys);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_MATCH_NEIGHBOURS_H_
