#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/models/layers/weights.h"
#include "mir/models/model_list.h"
#include "mir/models/voxelmorph/hyper_vxm_dense.h"
#include "mir/models/voxelmorph/vxm_dense.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

template <typename Model = models::VxmDense>
std::shared_ptr<Model> Build(const std::string& configuration,
                             const std::vector<std::string>& overrides = {}) {
  return std::make_shared<Model>(
      models::VxmDenseConfigFromJson(
          models::ModelConfig("voxelmorph", configuration, overrides).value())
          .value());
}

Handler Case(const std::string& configuration,
             const std::vector<int64_t>& image_size, bool gen_output) {
  return [=](GoldenRun& run) {
    const auto model =
        Build(configuration,
              {absl::StrCat("img_size=[", absl::StrJoin(image_size, ","), "]"),
               absl::StrCat("gen_output=", gen_output ? "true" : "false")});
    run.Fill(model);
    const models::VxmDense::Output output =
        model->Forward(run.In("moving"), run.In("fixed"));
    if (gen_output) run.Out("warped", output.warped);
    run.Out("flow", output.displacement);
  };
}

void HyperCase(GoldenRun& run) {
  const auto model = Build<models::HyperVxmDense>(
      "1", {"img_size=[16,32,32]", "gen_output=true",
            "nb_unet_features=[[4,8,8,8],[8,8,8,8,8,4,4]]"});
  run.Fill(model);
  const models::VxmDense::Output output =
      model->Forward(run.In("moving"), run.In("fixed"), run.In("hyper"));
  run.Out("warped", output.warped);
  run.Out("flow", output.displacement);
}

template <typename Model = models::VxmDense>
Handler Published(const std::string& configuration) {
  return [=](GoldenRun& run) {
    const models::WithoutWeights scope;
    run.CheckPublished(*Build<Model>(configuration));
  };
}

}  // namespace

HandlerTable VoxelMorphHandlers() {
  return {
      {"vxm_default", Case("default", {32, 32, 32}, /*gen_output=*/false)},
      {"vxm_1_warp", Case("1", {16, 32, 32}, /*gen_output=*/true)},
      {"vxm_bj", Case("bj", {32, 32, 32}, /*gen_output=*/false)},
      {"hyper_vxm", HyperCase},
      {"hyper_vxm@published", Published<models::HyperVxmDense>("default")},
      {"vxm_default@published", Published("default")},
      {"vxm_1@published", Published("1")},
      {"vxm_bj@published", Published("bj")},
  };
}

}  // namespace mir::goldens
