#include "mir/losses/reconstruction.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/fft_fftn.h>
#include <c10/util/Exception.h>

#include <optional>
#include <vector>

#include "mir/losses/arguments.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

namespace {

struct Pair {
  at::Tensor fixed, moving;
};

Pair Prepare(const char* loss, const at::Tensor& fixed,
             const at::Tensor& moving, const at::Tensor& weight,
             bool check_finite) {
  CheckImagePair(loss, fixed, moving);
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  Pair pair{fixed.to(compute), moving.to(compute)};
  if (weight.defined()) {
    CheckWeight(loss, weight, fixed);
    // Voxels that do not count may hold anything.
    const at::Tensor nothing = weight == 0;
    pair = {pair.fixed.masked_fill(nothing, 0),
            pair.moving.masked_fill(nothing, 0)};
  }
  CheckFiniteIf(check_finite, loss, "fixed", pair.fixed);
  CheckFiniteIf(check_finite, loss, "moving", pair.moving);
  return pair;
}

at::Tensor Mean(const at::Tensor& values, const at::Tensor& weight) {
  return weight.defined() ? WeightedMean(values, weight) : values.mean();
}

at::Tensor CharbonnierOf(const Pair& pair, double epsilon) {
  return ((pair.fixed - pair.moving).square() + epsilon * epsilon).sqrt() -
         epsilon;
}

at::Tensor AbsoluteGradient(const at::Tensor& image, int64_t axis) {
  const int64_t pairs = image.size(axis) - 1;
  return (image.narrow(axis, 1, pairs) - image.narrow(axis, 0, pairs)).abs();
}

}  // namespace

at::Tensor L1::operator()(const at::Tensor& fixed,
                          const at::Tensor& moving) const {
  const precision::Fp32Region region;
  const Pair pair =
      Prepare("L1", fixed, moving, at::Tensor(), options_.check_finite);
  return (pair.fixed - pair.moving).abs().mean();
}

at::Tensor L1::operator()(const at::Tensor& fixed, const at::Tensor& moving,
                          const at::Tensor& weight) const {
  const precision::Fp32Region region;
  const Pair pair = Prepare("L1", fixed, moving, weight, options_.check_finite);
  return Mean((pair.fixed - pair.moving).abs(), weight);
}

Charbonnier::Charbonnier(double epsilon, const ReconstructionOptions& options)
    : epsilon_(epsilon), options_(options) {
  TORCH_CHECK_VALUE(epsilon > 0, "Charbonnier: wanted a positive epsilon, got ",
                    epsilon);
}

at::Tensor Charbonnier::operator()(const at::Tensor& fixed,
                                   const at::Tensor& moving) const {
  const precision::Fp32Region region;
  return CharbonnierOf(Prepare("Charbonnier", fixed, moving, at::Tensor(),
                               options_.check_finite),
                       epsilon_)
      .mean();
}

at::Tensor Charbonnier::operator()(const at::Tensor& fixed,
                                   const at::Tensor& moving,
                                   const at::Tensor& weight) const {
  const precision::Fp32Region region;
  return Mean(CharbonnierOf(Prepare("Charbonnier", fixed, moving, weight,
                                    options_.check_finite),
                            epsilon_),
              weight);
}

CompositeReconstruction::CompositeReconstruction(
    const CompositeReconstructionOptions& options)
    : options_(options) {
  for (const double weight :
       {options.charbonnier_weight, options.gradient_weight,
        options.frequency_weight}) {
    TORCH_CHECK_VALUE(
        weight >= 0,
        "CompositeReconstruction: wanted weights of at least 0, got ", weight);
  }
  TORCH_CHECK_VALUE(options.epsilon > 0 && options.exponent >= 1,
                    "CompositeReconstruction: wanted a positive epsilon and an "
                    "exponent of at least 1, got ",
                    options.epsilon, " and ", options.exponent);
}

at::Tensor CompositeReconstruction::operator()(const at::Tensor& prediction,
                                               const at::Tensor& target) const {
  const precision::Fp32Region region;
  const Pair pair = Prepare("CompositeReconstruction", prediction, target,
                            at::Tensor(), options_.check_finite);
  at::Tensor loss = options_.charbonnier_weight *
                    CharbonnierOf(pair, options_.epsilon).mean();
  std::vector<int64_t> spatial;
  for (int64_t axis = 2; axis < pair.fixed.dim(); ++axis) {
    spatial.push_back(axis);
    if (pair.fixed.size(axis) == 1) continue;
    loss = loss + options_.gradient_weight / (pair.fixed.dim() - 2) *
                      (AbsoluteGradient(pair.fixed, axis) -
                       AbsoluteGradient(pair.moving, axis))
                          .abs()
                          .mean();
  }
  if (options_.frequency_weight == 0) return loss;
  const at::Tensor magnitude =
      at::fft_fftn(pair.fixed - pair.moving, std::nullopt, spatial).abs();
  return loss +
         options_.frequency_weight * magnitude.pow(options_.exponent).mean();
}

}  // namespace mir::losses
