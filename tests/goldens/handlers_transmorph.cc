#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mir/models/layers/weights.h"
#include "mir/models/model_list.h"
#include "mir/models/transmorph/hyper_transmorph.h"
#include "mir/models/transmorph/transmorph.h"
#include "mir/models/transmorph/transmorph_affine.h"
#include "mir/models/transmorph/transmorph_config.h"
#include "mir/models/transmorph/transmorph_tvf.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

using models::HyperTransMorphTVF;
using models::HyperTransMorphTVFSPR;
using models::TransMorph;
using models::TransMorphAffine;
using models::TransMorphConfig;
using models::TransMorphKind;
using models::TransMorphTVF;
using models::TransMorphTVFAutoPETAtlas;
using models::TransMorphTVFSPR;

// The constructor's defaults with a small backbone, as most cases have it.
TransMorphConfig Small(const std::vector<int64_t>& image_size,
                       const std::string& swin_type = "swin") {
  TransMorphConfig config;
  config.swin.embed_dim = 24;
  config.swin.depths = {2, 2, 2};
  config.swin.num_heads = {2, 4, 4};
  config.swin.window_size = {2, 3, 3};
  config.swin.img_size = image_size;
  config.swin_type = swin_type;
  return config;
}

TransMorphConfig TimeVarying(const std::vector<int64_t>& image_size,
                             int64_t time_steps, bool svf) {
  TransMorphConfig config = Small(image_size);
  config.time_steps = time_steps;
  config.SVF = svf;
  return config;
}

void Run(TransMorph& model, GoldenRun& run) {
  run.Out("flow", model.Forward(run.In("moving"), run.In("fixed")));
}

void Run(TransMorphTVF& model, GoldenRun& run) {
  run.Out("flow", model.Forward(run.In("moving"), run.In("fixed")));
}

void Run(TransMorphTVFSPR& model, GoldenRun& run) {
  const auto output = model.Forward(run.In("moving"), run.In("fixed"));
  const bool svf = output.inverse.defined();
  run.Out(svf ? "pos_flow" : "flow", output.displacement);
  if (svf) run.Out("neg_flow", output.inverse);
  run.Out("weights", output.weights);
}

void Run(TransMorphTVFAutoPETAtlas& model, GoldenRun& run) {
  const auto output = model.Forward(run.In("moving"), run.In("fixed"));
  run.Out("def_mov", output.warped_moving);
  run.Out("def_fix", output.warped_fixed);
  run.Out("pos_flow", output.displacement);
  run.Out("neg_flow", output.inverse);
}

void Run(TransMorphAffine& model, GoldenRun& run) {
  const auto output = model.Forward(run.In("moving"), run.In("fixed"));
  run.Out("aff", output.rotation);
  run.Out("scl", output.scale);
  run.Out("trans", output.translation);
  run.Out("shr", output.shear);
}

void Run(HyperTransMorphTVF& model, GoldenRun& run) {
  const auto output =
      model.Forward(run.In("moving"), run.In("fixed"), run.In("hyper"));
  run.Out("pos_flow", output.displacement);
  run.Out("neg_flow", output.inverse);
}

void Run(HyperTransMorphTVFSPR& model, GoldenRun& run) {
  const auto output =
      model.Forward(run.In("moving"), run.In("fixed"), run.In("hyper"));
  run.Out("pos_flow", output.displacement);
  run.Out("neg_flow", output.inverse);
  run.Out("weights", output.weights);
}

template <typename Model>
Handler Case(const TransMorphConfig& config) {
  return [=](GoldenRun& run) {
    const auto model = std::make_shared<Model>(config);
    run.Fill(model);
    Run(*model, run);
  };
}

template <typename Model>
Handler Published(const TransMorphConfig& config) {
  return [=](GoldenRun& run) {
    run.CheckPublished(*models::BuildWithoutWeights(
        [&] { return std::make_shared<Model>(config); }));
  };
}

// A configuration of models.json.
TransMorphConfig Named(const char* model, const char* configuration,
                       TransMorphKind kind) {
  return models::TransMorphConfigFromJson(
             model, models::ModelConfig(model, configuration).value(), kind)
      .value();
}

}  // namespace

HandlerTable TransMorphHandlers() {
  constexpr TransMorphKind kPlain = TransMorphKind::kPlain;
  constexpr TransMorphKind kVarying = TransMorphKind::kTimeVarying;
  TransMorphConfig full;  // The published sizes on a small image.
  full.swin.img_size = {32, 32, 32};
  full.SVF = false;
  TransMorphConfig batch = Small({16, 32, 32});
  batch.SVF = false;
  TransMorphConfig no_skip = Small({16, 32, 32});
  no_skip.if_transskip = no_skip.if_convskip = false;
  TransMorphConfig addition = TimeVarying({16, 32, 32}, 3, /*svf=*/true);
  addition.composition = "addition";
  TransMorphConfig hyper = TimeVarying({16, 32, 32}, 3, /*svf=*/true);
  hyper.swin.embed_dim = 12;
  hyper.swin.depths = {2, 2, 1};
  hyper.swin.num_heads = {2, 2, 4};
  hyper.swin.mlp_ratio = 2;
  return {
      {"tm_3lvl", Case<TransMorph>(full)},
      {"tm_3lvl_svf", Case<TransMorph>(Small({32, 32, 32}))},
      {"tm_3lvl_b2", Case<TransMorph>(batch)},
      {"tm_noskip", Case<TransMorph>(no_skip)},
      {"tm_dswin", Case<TransMorph>(Small({16, 32, 32}, "dswin"))},
      {"tm_dswinv2", Case<TransMorph>(Small({16, 32, 32}, "dswinv2"))},
      {"tm_tvf",
       Case<TransMorphTVF>(TimeVarying({32, 32, 32}, 12, /*svf=*/false))},
      {"tm_tvf_addition_svf", Case<TransMorphTVF>(addition)},
      {"tm_tvfspr",
       Case<TransMorphTVFSPR>(TimeVarying({16, 32, 32}, 4, /*svf=*/true))},
      {"tm_tvfspr_nosvf",
       Case<TransMorphTVFSPR>(TimeVarying({16, 32, 32}, 4, /*svf=*/false))},
      {"tm_tvf_autopet", Case<TransMorphTVFAutoPETAtlas>(
                             TimeVarying({16, 16, 16}, 3, /*svf=*/true))},
      {"tm_affine_swin", Case<TransMorphAffine>(Small({32, 32, 32}))},
      {"tm_affine_dswin", Case<TransMorphAffine>(Small({16, 32, 32}, "dswin"))},
      {"hyper_tm_tvf", Case<HyperTransMorphTVF>(hyper)},
      {"hyper_tm_tvfspr_fixed", Case<HyperTransMorphTVFSPR>(hyper)},
      {"hyper_tm_tvf@published",
       Published<HyperTransMorphTVF>(
           Named("hyper_transmorph_tvf", "default", TransMorphKind::kHyper))},
      {"hyper_tm_tvfspr@published",
       Published<HyperTransMorphTVFSPR>(Named(
           "hyper_transmorph_tvf_spr", "default", TransMorphKind::kHyper))},
      {"tm_3lvl@published",
       Published<TransMorph>(Named("transmorph", "ixi", kPlain))},
      {"tm_3lvl_default@published",
       Published<TransMorph>(Named("transmorph", "default", kPlain))},
      {"tm_dswin@published",
       Published<TransMorph>(Named("transmorph", "3lvl_dwin", kPlain))},
      {"tm_dswinv2@published",
       Published<TransMorph>(Named("transmorph", "3lvl_dwinv2", kPlain))},
      {"tm_tvf@published",
       Published<TransMorphTVF>(Named("transmorph_tvf", "default", kVarying))},
      {"tm_tvf_lumir@published",
       Published<TransMorphTVF>(Named("transmorph_tvf", "lumir", kVarying))},
      {"tm_tvfspr@published", Published<TransMorphTVFSPR>(Named(
                                  "transmorph_tvf_spr", "default", kVarying))},
      {"tm_tvf_autopet@published",
       Published<TransMorphTVFAutoPETAtlas>(
           Named("transmorph_tvf_autopet_atlas", "default", kVarying))},
      {"tm_affine_swin@published",
       Published<TransMorphAffine>(
           Named("transmorph_affine", "default", TransMorphKind::kAffine))},
  };
}

}  // namespace mir::goldens
