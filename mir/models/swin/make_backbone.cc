#include "mir/models/swin/make_backbone.h"

#include <c10/util/Exception.h>

#include "mir/models/swin/def_swin_transformer.h"
#include "mir/models/swin/swin_transformer.h"

namespace mir::models {

std::shared_ptr<Backbone> MakeBackbone(const std::string& swin_type,
                                       const SwinConfig& config) {
  if (swin_type == "swin") return std::make_shared<SwinTransformer>(config);
  if (swin_type == "dswin") {
    return std::make_shared<DefSwinTransformer>(config);
  }
  TORCH_CHECK_VALUE(swin_type == "dswinv2",
                    "swin_type must be swin, dswin or dswinv2, not ",
                    swin_type);
  return std::make_shared<DefSwinTransformerV2>(config);
}

}  // namespace mir::models
