#ifndef MIR_MODELS_SWIN_MAKE_BACKBONE_H_
#define MIR_MODELS_SWIN_MAKE_BACKBONE_H_

#include <memory>
#include <string>

#include "mir/models/swin/backbone.h"
#include "mir/models/swin/swin_config.h"

namespace mir::models {

// The backbone that MIR calls `swin_type`: "swin" (SwinTransformer), "dswin"
// (DefSwinTransformer) or "dswinv2" (DefSwinTransformerV2).
//
// Throws c10::ValueError for another name, and where the configuration is not
// right.
std::shared_ptr<Backbone> MakeBackbone(const std::string& swin_type,
                                       const SwinConfig& config);

}  // namespace mir::models

#endif  // MIR_MODELS_SWIN_MAKE_BACKBONE_H_
