#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "mir/models/layers/weights.h"
#include "mir/models/swin/def_swin_transformer.h"
#include "mir/models/swin/swin_config.h"
#include "mir/models/swin/swin_transformer.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

using models::DefSwinTransformer;
using models::DefSwinTransformerV2;
using models::SwinConfig;
using models::SwinTransformer;

// get_3DTransMorph3Lvl_config with the small sizes of the cases.
SwinConfig Small(const std::vector<int64_t>& window = {2, 2, 2}) {
  SwinConfig config;
  config.embed_dim = 24;
  config.depths = {2, 2, 2};
  config.num_heads = {2, 4, 4};
  config.window_size = window;
  return config;
}

// get_3DTransMorph_config.
SwinConfig FourLevels() {
  SwinConfig config;
  config.depths = {2, 2, 4, 2};
  config.num_heads = {4, 4, 8, 8};
  config.window_size = {5, 6, 7};
  config.out_indices = {0, 1, 2, 3};
  return config;
}

Handler Case(const SwinConfig& config) {
  return [=](GoldenRun& run) {
    const auto model = std::make_shared<SwinTransformer>(config);
    run.Fill(model);
    const std::vector<at::Tensor> features = model->forward(run.In("x"));
    for (size_t level = 0; level < features.size(); ++level) {
      run.Out(absl::StrCat("feat", level), features[level]);
    }
  };
}

template <typename Model>
Handler DeformableCase(const SwinConfig& config) {
  return [=](GoldenRun& run) {
    const auto model = std::make_shared<Model>(config);
    run.Fill(model);
    const auto features = model->forward(run.In("moving"), run.In("fixed"));
    for (size_t level = 0; level < features.size(); ++level) {
      run.Out(absl::StrCat("feat", level, "_mov"), features[level].moving);
      run.Out(absl::StrCat("feat", level, "_fix"), features[level].fixed);
    }
  };
}

template <typename Model>
Handler Published(const SwinConfig& config) {
  return [=](GoldenRun& run) {
    run.CheckPublished(*models::BuildWithoutWeights(
        [&] { return std::make_shared<Model>(config); }));
  };
}

}  // namespace

HandlerTable SwinHandlers() {
  SwinConfig ape = Small(), spe = Small(), norpe = Small();
  ape.ape = true;
  ape.pretrain_img_size = {32};
  spe.spe = true;
  norpe.rpe = false;
  norpe.qkv_bias = true;
  return {
      {"swin_default_window", Case(Small({6, 5, 6}))},
      {"swin_window_223", Case(Small({2, 2, 3}))},
      {"swin_ape", Case(ape)},
      {"swin_spe", Case(spe)},
      {"swin_norpe", Case(norpe)},
      {"def_swin", DeformableCase<DefSwinTransformer>(Small({3, 2, 3}))},
      {"def_swin_v2", DeformableCase<DefSwinTransformerV2>(Small({3, 2, 3}))},
      {"swin@published", Published<SwinTransformer>(SwinConfig())},
      {"swin_4lvl@published", Published<SwinTransformer>(FourLevels())},
      {"def_swin@published", Published<DefSwinTransformer>(SwinConfig())},
      {"def_swin_v2@published", Published<DefSwinTransformerV2>(SwinConfig())},
  };
}

}  // namespace mir::goldens
