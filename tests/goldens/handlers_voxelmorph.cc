#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/models/layers/weights.h"
#include "mir/models/model_list.h"
#include "mir/models/voxelmorph/vxm_dense.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

std::shared_ptr<models::VxmDense> Build(
    const std::string& configuration,
    const std::vector<std::string>& overrides = {}) {
  return std::make_shared<models::VxmDense>(
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

Handler Published(const std::string& configuration) {
  return [=](GoldenRun& run) {
    const models::WithoutWeights scope;
    run.CheckPublished(*Build(configuration));
  };
}

}  // namespace

HandlerTable VoxelMorphHandlers() {
  return {
      {"vxm_default", Case("default", {32, 32, 32}, /*gen_output=*/false)},
      {"vxm_1_warp", Case("1", {16, 32, 32}, /*gen_output=*/true)},
      {"vxm_bj", Case("bj", {32, 32, 32}, /*gen_output=*/false)},
      {"vxm_default@published", Published("default")},
      {"vxm_1@published", Published("1")},
      {"vxm_bj@published", Published("bj")},
  };
}

}  // namespace mir::goldens
