#include <memory>
#include <nlohmann/json.hpp>

#include "mir/base/status_macros.h"
#include "mir/models/registry.h"
#include "mir/models/transmorph/hyper_transmorph.h"
#include "mir/models/transmorph/transmorph.h"
#include "mir/models/transmorph/transmorph_affine.h"
#include "mir/models/transmorph/transmorph_config.h"
#include "mir/models/transmorph/transmorph_tvf.h"

namespace mir::models {
namespace {

// A factory of `Model`, which errors call `name`.
template <typename Model>
ModelFactory Factory(const char* name, TransMorphKind kind) {
  return [=](const nlohmann::json& json)
             -> absl::StatusOr<std::shared_ptr<RegistrationModel>> {
    MIR_ASSIGN_OR_RETURN(const TransMorphConfig config,
                         TransMorphConfigFromJson(name, json, kind));
    return std::make_shared<Model>(config);
  };
}

[[maybe_unused]] const bool registered =
    RegisterModel("transmorph",
                  Factory<TransMorph>("TransMorph", TransMorphKind::kPlain)) &&
    RegisterModel("transmorph_affine",
                  Factory<TransMorphAffine>("TransMorphAffine",
                                            TransMorphKind::kAffine)) &&
    RegisterModel("transmorph_tvf",
                  Factory<TransMorphTVF>("TransMorphTVF",
                                         TransMorphKind::kTimeVarying)) &&
    RegisterModel("transmorph_tvf_spr",
                  Factory<TransMorphTVFSPR>("TransMorphTVFSPR",
                                            TransMorphKind::kTimeVarying)) &&
    RegisterModel("hyper_transmorph_tvf",
                  Factory<HyperTransMorphTVF>("HyperTransMorphTVF",
                                              TransMorphKind::kHyper)) &&
    RegisterModel("hyper_transmorph_tvf_spr",
                  Factory<HyperTransMorphTVFSPR>("HyperTransMorphTVFSPR",
                                                 TransMorphKind::kHyper)) &&
    RegisterModel(
        "transmorph_tvf_autopet_atlas",
        Factory<TransMorphTVFAutoPETAtlas>("TransMorphTVFAutoPETAtlas",
                                           TransMorphKind::kTimeVarying));

}  // namespace
}  // namespace mir::models
