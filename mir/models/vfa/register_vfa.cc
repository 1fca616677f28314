#include <memory>
#include <nlohmann/json.hpp>

#include "mir/base/status_macros.h"
#include "mir/models/registry.h"
#include "mir/models/vfa/trans_vfa.h"
#include "mir/models/vfa/vfa_model.h"

namespace mir::models {
namespace {

template <bool spatial_weights, bool hyper>
absl::StatusOr<std::shared_ptr<RegistrationModel>> Build(
    const nlohmann::json& json) {
  MIR_ASSIGN_OR_RETURN(const VfaConfig config,
                       VfaConfigFromJson(json, spatial_weights, hyper));
  return std::make_shared<Vfa>(config);
}

absl::StatusOr<std::shared_ptr<RegistrationModel>> BuildTransVfa(
    const nlohmann::json& json) {
  MIR_ASSIGN_OR_RETURN(const TransVfaConfig config,
                       TransVfaConfigFromJson(json));
  return std::make_shared<TransVfa>(config);
}

[[maybe_unused]] const bool registered =
    RegisterModel("vfa", Build<false, false>) &&
    RegisterModel("vfa_spr", Build<true, false>) &&
    RegisterModel("hyper_vfa", Build<false, true>) &&
    RegisterModel("hyper_vfa_spr", Build<true, true>) &&
    RegisterModel("trans_vfa", BuildTransVfa);

}  // namespace
}  // namespace mir::models
