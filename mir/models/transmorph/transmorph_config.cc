#include "mir/models/transmorph/transmorph_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "mir/models/config_reader.h"

namespace mir::models {
namespace {

constexpr int64_t kMostSteps = 1000;  // Of time.

struct Fault {
  const char* key = nullptr;
  std::string wanted;
};

bool IsTimeVarying(TransMorphKind kind) {
  return kind == TransMorphKind::kTimeVarying || kind == TransMorphKind::kHyper;
}

Fault FirstFault(const TransMorphConfig& config, TransMorphKind kind) {
  const SwinConfig& swin = config.swin;
  const std::vector<int64_t> three = {0, 1, 2};
  if (swin.depths.size() != 3) {
    return {"depths",
            absl::StrCat("three levels (TransMorph's decoder takes no others), "
                         "not ",
                         swin.depths.size())};
  }
  if (swin.out_indices != three) {
    return {"out_indices", "[0, 1, 2], the levels that the decoder uses"};
  }
  if (swin.patch_size != 4) {
    return {"patch_size", "4, which the decoder doubles back to full size"};
  }
  if (swin.in_chans != 2) {
    return {"in_chans", "2, the moving and the fixed image"};
  }
  if (config.swin_type != "swin" && swin.dwin_kernel_size.size() < 3) {
    return {"dwin_kernel_size", "one size for each level of depths"};
  }
  if (swin.embed_dim % 2 != 0) return {"embed_dim", "even, for the decoder"};
  if (kind == TransMorphKind::kAffine) {
    if (std::any_of(swin.img_size.begin(), swin.img_size.end(),
                    [](int64_t size) { return size % 16 != 0; })) {
      return {"img_size", "multiples of 16"};
    }
    return {};
  }
  if (kind == TransMorphKind::kPlain && config.if_transskip &&
      !config.if_convskip) {
    return {"if_convskip", "true where if_transskip is"};
  }
  if (IsTimeVarying(kind) && !config.if_transskip) {
    return {"if_transskip", "true for a time-varying model"};
  }
  if (IsTimeVarying(kind) && !config.if_convskip) {
    return {"if_convskip", "true for a time-varying model"};
  }
  if (kind == TransMorphKind::kHyper && config.swin_type != "swin") {
    return {"swin_type", "swin, the backbone that MIR's hypernetworks have"};
  }
  if (config.reg_head_chan < 1 || config.reg_head_chan > 4096) {
    return {"reg_head_chan", "from 1 to 4096"};
  }
  if (config.SVF_steps < 0 || config.SVF_steps > 32) {
    return {"SVF_steps", "from 0 to 32"};
  }
  if (config.time_steps < 1 || config.time_steps > kMostSteps) {
    return {"time_steps", "from 1 to 1000"};
  }
  return {};
}

std::vector<std::string> Keys(TransMorphKind kind) {
  std::vector<std::string> keys = SwinConfigKeys();
  // MIR's configurations have these, whether the model uses them or not.
  for (const char* key :
       {"swin_type", "if_transskip", "if_convskip", "reg_head_chan"}) {
    keys.push_back(key);
  }
  if (kind != TransMorphKind::kAffine) {
    keys.push_back("SVF");
    keys.push_back("SVF_steps");
  }
  if (IsTimeVarying(kind)) {
    keys.push_back("time_steps");
    keys.push_back("composition");
  }
  return keys;
}

}  // namespace

absl::StatusOr<TransMorphConfig> TransMorphConfigFromJson(
    const char* model, const nlohmann::json& config, TransMorphKind kind,
    const TransMorphConfig& defaults) {
  TransMorphConfig result = defaults;
  ConfigReader reader(model, config, Keys(kind));
  ReadSwinConfig(reader, &result.swin);
  reader.Read("swin_type", &result.swin_type, {"swin", "dswin", "dswinv2"});
  reader.Read("if_transskip", &result.if_transskip);
  reader.Read("if_convskip", &result.if_convskip);
  reader.Read("reg_head_chan", &result.reg_head_chan, 1, 4096);
  reader.Read("SVF", &result.SVF);
  reader.Read("SVF_steps", &result.SVF_steps, 0, 32);
  reader.Read("time_steps", &result.time_steps, 1, kMostSteps);
  reader.Read("composition", &result.composition, {"composition", "addition"});
  const Fault fault = FirstFault(result, kind);
  if (fault.key != nullptr) reader.Check(fault.key, false, fault.wanted);
  if (!reader.status().ok()) return reader.status();
  return result;
}

std::string FaultOf(const TransMorphConfig& config, TransMorphKind kind) {
  if (std::string fault = FaultOf(config.swin); !fault.empty()) return fault;
  const Fault fault = FirstFault(config, kind);
  return fault.key == nullptr
             ? ""
             : absl::StrCat(fault.key, " must be ", fault.wanted);
}

}  // namespace mir::models
