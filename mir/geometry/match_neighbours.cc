#include "mir/geometry/match_neighbours.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <vector>

#include "mir/geometry/kernels/match_neighbours_cpu.h"
#include "mir/geometry/vfa_sampling.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

void CheckArguments(const at::Tensor& queries, const at::Tensor& keys) {
  const int64_t axes = queries.dim() - 2;
  TORCH_CHECK_VALUE((axes == 2 || axes == 3) && keys.dim() == queries.dim() &&
                        queries.numel() > 0,
                    "MatchNeighbours: wanted queries [N, C, D, H, W] or "
                    "[N, C, H, W], not empty, and keys of as many axes, got ",
                    queries.sizes(), " and ", keys.sizes());
  std::vector<int64_t> wanted = queries.sizes().vec();
  for (int64_t axis = 0; axis < axes; ++axis) wanted[2 + axis] += 2;
  TORCH_CHECK_VALUE(keys.sizes() == at::IntArrayRef(wanted),
                    "MatchNeighbours: wanted keys ", wanted, " for queries ",
                    queries.sizes(), ", got ", keys.sizes());
  TORCH_CHECK_VALUE(
      queries.is_floating_point() && keys.is_floating_point() &&
          (queries.scalar_type() == at::kDouble) ==
              (keys.scalar_type() == at::kDouble) &&
          queries.device() == keys.device(),
      "MatchNeighbours: wanted floating queries and keys on one device, both "
      "float64 or neither, got ",
      queries.scalar_type(), " on ", queries.device(), " and ",
      keys.scalar_type(), " on ", keys.device());
}

kernels::MatchingShape ShapeOf(const at::Tensor& queries) {
  kernels::MatchingShape shape;
  shape.batch = queries.size(0);
  shape.channels = queries.size(1);
  shape.planes = queries.dim() == 5 ? 3 : 1;
  shape.size = {queries.dim() == 5 ? queries.size(2) : 1, queries.size(-2),
                queries.size(-1)};
  return shape;
}

class CpuMatching : public torch::autograd::Function<CpuMatching> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& queries, const at::Tensor& keys) {
    context->save_for_backward({queries, keys});
    std::vector<int64_t> sizes = queries.sizes().vec();
    sizes[1] = queries.dim() - 2;
    const at::Tensor offsets = at::empty(sizes, queries.options());
    const kernels::MatchingShape shape = ShapeOf(queries);
    if (queries.scalar_type() == at::kDouble) {
      kernels::MatchForward(queries.const_data_ptr<double>(),
                            keys.const_data_ptr<double>(), shape,
                            offsets.mutable_data_ptr<double>());
    } else {
      kernels::MatchForward(queries.const_data_ptr<float>(),
                            keys.const_data_ptr<float>(), shape,
                            offsets.mutable_data_ptr<float>());
    }
    return offsets;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "the gradient of MatchNeighbours cannot be differentiated "
                "again on the CPU; use MatchNeighboursByOperators for that");
    const auto saved = context->get_saved_variables();
    const at::Tensor& queries = saved[0];
    const at::Tensor& keys = saved[1];
    const at::Tensor gradient = gradients[0].contiguous();
    const at::Tensor to_queries = at::empty_like(queries);
    const at::Tensor to_keys = at::zeros_like(keys);
    const kernels::MatchingShape shape = ShapeOf(queries);
    if (queries.scalar_type() == at::kDouble) {
      kernels::MatchBackward(gradient.const_data_ptr<double>(),
                             queries.const_data_ptr<double>(),
                             keys.const_data_ptr<double>(), shape,
                             to_queries.mutable_data_ptr<double>(),
                             to_keys.mutable_data_ptr<double>());
    } else {
      kernels::MatchBackward(gradient.const_data_ptr<float>(),
                             queries.const_data_ptr<float>(),
                             keys.const_data_ptr<float>(), shape,
                             to_queries.mutable_data_ptr<float>(),
                             to_keys.mutable_data_ptr<float>());
    }
    return {to_queries, to_keys};
  }
};

}  // namespace

at::Tensor MatchNeighbours(const at::Tensor& queries, const at::Tensor& keys) {
  if (!queries.is_cpu()) return MatchNeighboursByOperators(queries, keys);
  CheckArguments(queries, keys);
  const precision::Fp32Region region;
  return CpuMatching::apply(precision::ToComputeType(queries).contiguous(),
                            precision::ToComputeType(keys).contiguous());
}

at::Tensor MatchNeighboursByOperators(const at::Tensor& queries,
                                      const at::Tensor& keys) {
  CheckArguments(queries, keys);
  const precision::Fp32Region region;
  const at::Tensor scaled = precision::ToComputeType(queries) /
                            std::sqrt(static_cast<double>(queries.size(1)));
  const at::Tensor wide = precision::ToComputeType(keys);
  const int64_t dims = queries.dim() - 2;
  const at::Tensor offsets =
      NeighbourOffsets(dims).to(scaled.options());  // On its device.
  std::vector<at::Tensor> matches;
  for (int64_t k = 0; k < offsets.size(0); ++k) {
    at::Tensor neighbour = wide;
    for (int64_t axis = dims - 1, rest = k; axis >= 0; --axis, rest /= 3) {
      neighbour = neighbour.narrow(2 + axis, rest % 3, queries.size(2 + axis));
    }
    matches.push_back((scaled * neighbour).sum(/*dim=*/1));
  }
  const at::Tensor weights = at::softmax(at::stack(matches, /*dim=*/1), 1);
  std::vector<at::Tensor> components;
  for (int64_t axis = 0; axis < dims; ++axis) {
    std::vector<int64_t> shape(weights.dim(), 1);
    shape[1] = -1;
    components.push_back(
        (weights * offsets.select(1, axis).view(shape)).sum(/*dim=*/1));
  }
  return at::stack(components, /*dim=*/1);
}

}  // namespace mir::geometry
