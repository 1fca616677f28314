#include <memory>
#include <nlohmann/json.hpp>

#include "mir/base/status_macros.h"
#include "mir/models/registry.h"
#include "mir/models/voxelmorph/hyper_vxm_dense.h"
#include "mir/models/voxelmorph/vxm_dense.h"

namespace mir::models {
namespace {

template <typename Model>
absl::StatusOr<std::shared_ptr<RegistrationModel>> Build(
    const nlohmann::json& json) {
  MIR_ASSIGN_OR_RETURN(const VxmDenseConfig config,
                       VxmDenseConfigFromJson(json));
  return std::make_shared<Model>(config);
}

[[maybe_unused]] const bool registered =
    RegisterModel("voxelmorph", Build<VxmDense>) &&
    RegisterModel("hyper_voxelmorph", Build<HyperVxmDense>);

}  // namespace
}  // namespace mir::models
