#include "mir/models/transmorph/hyper_transmorph.h"

#include <ATen/TensorOperators.h>

namespace mir::models {
namespace {

constexpr int64_t kUnits = 96;

}  // namespace

void HyperTransMorph::RegisterHyperModel() {
  hyper_model_ = register_module(
      "hyper_model",
      std::make_shared<HyperEmbedding>(HyperparameterCount(), kUnits));
}

HyperTransMorph::Conditioned HyperTransMorph::RunConditioned(
    const at::Tensor& moving, const at::Tensor& fixed,
    const at::Tensor& hyperparameters) const {
  CheckPair(moving, fixed);
  Conditioned result;
  result.embedding = hyper_model_->forward(hyperparameters.to(moving.device()));
  result.steps = RunSteps(moving, fixed, config().composition == "addition",
                          result.embedding);
  return result;
}

HyperTransMorphTVF::HyperTransMorphTVF(const TransMorphConfig& config)
    : HyperTransMorph("HyperTransMorphTVF", config) {
  RegisterParts(BlockNorm::kBatch, "spatial_trans_");
  if (config.SVF) RegisterVecInt("vec_int");
  RegisterHyperModel();
}

HyperTransMorphTVF::Output HyperTransMorphTVF::Forward(
    const at::Tensor& moving, const at::Tensor& fixed,
    const at::Tensor& hyperparameters) {
  const at::Tensor flow =
      RunConditioned(moving, fixed, hyperparameters).steps.flow;
  if (!config().SVF) return {.displacement = flow, .inverse = {}};
  return {.displacement = Integrate(flow), .inverse = Integrate(-flow)};
}

Registration HyperTransMorphTVF::Register(const at::Tensor& moving,
                                          const at::Tensor& fixed) {
  const at::Tensor displacement =
      Forward(moving, fixed, HyperparameterRow()).displacement;
  return {.displacement = displacement,
          .regularized = displacement,
          .hyperparameters = hyperparameters()};
}

HyperTransMorphTVFSPR::HyperTransMorphTVFSPR(const TransMorphConfig& config)
    : HyperTransMorph("HyperTransMorphTVFSPR", config) {
  RegisterParts(BlockNorm::kInstance, "spatial_trans_half");
  if (config.SVF) RegisterVecInt("integrate");
  RegisterSigmas();
  RegisterHyperModel();
}

TransMorphTVFSPR::Output HyperTransMorphTVFSPR::Forward(
    const at::Tensor& moving, const at::Tensor& fixed,
    const at::Tensor& hyperparameters) {
  const Conditioned found = RunConditioned(moving, fixed, hyperparameters);
  const at::Tensor& flow = found.steps.flow;
  TransMorphTVFSPR::Output output;
  output.weights = RegularizerWeights(found.steps.features, found.embedding);
  output.displacement = config().SVF ? Integrate(flow) : flow;
  if (config().SVF) output.inverse = Integrate(-flow);
  return output;
}

Registration HyperTransMorphTVFSPR::Register(const at::Tensor& moving,
                                             const at::Tensor& fixed) {
  const TransMorphTVFSPR::Output output =
      Forward(moving, fixed, HyperparameterRow());
  return {.displacement = output.displacement,
          .regularized = output.displacement,
          .weights = output.weights,
          .hyperparameters = hyperparameters()};
}

}  // namespace mir::models
