#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mir/models/layers/weights.h"
#include "mir/models/model_list.h"
#include "mir/models/vfa/trans_vfa.h"
#include "mir/models/vfa/vfa_model.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

using ::mir::models::TransVfa;
using ::mir::models::Vfa;

std::shared_ptr<Vfa> Build(const std::string& model,
                           const std::string& configuration,
                           const std::vector<std::string>& overrides = {}) {
  return std::make_shared<Vfa>(
      models::VfaConfigFromJson(
          models::ModelConfig(model, configuration, overrides).value(),
          /*spatial_weights=*/model.find("spr") != std::string::npos,
          /*hyper=*/model.find("hyper") != std::string::npos)
          .value());
}

// Runs `model`, which the overrides change, and gives `outputs` of it.
Handler Case(const std::string& model, const std::vector<std::string>& changes,
             const std::vector<std::string>& outputs) {
  return [=](GoldenRun& run) {
    const auto vfa = Build(model, "default", changes);
    run.Fill(vfa);
    const Vfa::Output found = vfa->Forward(
        run.In("moving"), run.In("fixed"),
        vfa->HyperparameterCount() > 0 ? run.In("hyper") : at::Tensor());
    for (const std::string& name : outputs) {
      run.Out(name, name == "def_mov"    ? found.warped_moving
                    : name == "def_fix"  ? found.warped_fixed
                    : name == "neg_flow" ? found.inverse
                    : name == "weights"  ? found.weights
                                         : found.displacement);
    }
  };
}

void AllFlows(GoldenRun& run) {
  const auto vfa = Build("vfa", "default", {"img_size=[32,32,32]"});
  run.Fill(vfa);
  const Vfa::Output found = vfa->Forward(run.In("moving"), run.In("fixed"));
  for (size_t level = 0; level < found.levels.size(); ++level) {
    run.Out("flow" + std::to_string(level), found.levels[level]);
  }
}

Handler Published(const std::string& model, const std::string& configuration,
                  const std::vector<std::string>& changes = {}) {
  return [=](GoldenRun& run) {
    const models::WithoutWeights scope;
    run.CheckPublished(*Build(model, configuration, changes));
  };
}

std::shared_ptr<TransVfa> BuildTransVfa(
    const std::string& configuration,
    const std::vector<std::string>& changes = {}) {
  return std::make_shared<TransVfa>(
      models::TransVfaConfigFromJson(
          models::ModelConfig("trans_vfa", configuration, changes).value())
          .value());
}

Handler TransCase(const std::string& swin_type) {
  return [=](GoldenRun& run) {
    const auto model = BuildTransVfa(
        "default", {"embed_dim=24", "depths=[2,2,2]", "num_heads=[2,4,4]",
                    "window_size=[2,3,3]", "img_size=[32,32,32]",
                    "swin_type=" + swin_type});
    run.Fill(model);
    run.Out("flow", model->Forward(run.In("moving"), run.In("fixed")));
  };
}

Handler PublishedTrans(const std::string& configuration) {
  return [=](GoldenRun& run) {
    const models::WithoutWeights scope;
    run.CheckPublished(*BuildTransVfa(configuration));
  };
}

}  // namespace

HandlerTable VfaHandlers() {
  const std::string cube = "img_size=[32,32,32]";
  const std::vector<std::string> full = {cube, "SVF=true", "return_full=true"};
  const std::vector<std::string> small = {
      "img_size=[16,32,32]", "start_channels=4", "matching_channels=4",
      "max_channels=32", "downsamples=3"};
  return {
      {"vfa_default", Case("vfa", {cube}, {"flow"})},
      {"vfa_all_flows", AllFlows},
      {"vfa_svf_full",
       Case("vfa", full, {"def_mov", "def_fix", "pos_flow", "neg_flow"})},
      {"vfa_int2_skip1",
       Case("vfa", {cube, "int_steps=2", "skip=1"}, {"flow"})},
      {"vfaspr_svf_full",
       Case("vfa_spr", full,
            {"def_mov", "def_fix", "pos_flow", "neg_flow", "weights"})},
      {"hypervfa", Case("hyper_vfa", small, {"flow"})},
      {"hypervfaspr", Case("hyper_vfa_spr", small, {"flow", "weights"})},
      {"transvfa_swin", TransCase("swin")},
      {"transvfa_dswin", TransCase("dswin")},
      {"transvfa_swin@published", PublishedTrans("default")},
      {"transvfa_dswin@published", PublishedTrans("dswin")},
      {"vfa_default@published", Published("vfa", "default")},
      {"vfa_lumir@published", Published("vfa", "lumir")},
      {"vfaspr_svf@published", Published("vfa_spr", "default", {"SVF=true"})},
      {"hypervfa@published", Published("hyper_vfa", "default")},
      {"hypervfaspr@published", Published("hyper_vfa_spr", "lumir")},
  };
}

}  // namespace mir::goldens
