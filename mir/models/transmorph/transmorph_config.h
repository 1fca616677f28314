#ifndef MIR_MODELS_TRANSMORPH_TRANSMORPH_CONFIG_H_
#define MIR_MODELS_TRANSMORPH_TRANSMORPH_CONFIG_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "mir/models/swin/swin_config.h"

namespace mir::models {

// Settings of the TransMorph models, under the names of MIR's configurations
// and constructor arguments.
struct TransMorphConfig {
  // With `img_size`, of the images that the model takes.
  SwinConfig swin;
  // "swin", or a deformable backbone: "dswin", "dswinv2".
  std::string swin_type = "swin";
  bool if_transskip = true;    // Shortcuts from the transformer.
  bool if_convskip = true;     // Shortcuts from convolutions of the images.
  int64_t reg_head_chan = 16;  // Features that the flow is made from.
  bool SVF = true;             // The flow is a velocity, which is integrated.
  int64_t SVF_steps = 7;       // Squarings of the integration, 0 to 32.

  // Of the time-varying models alone.
  int64_t time_steps = 12;
  // How a step's flow joins the ones before: "composition" warps it by them,
  // "addition" by itself.
  std::string composition = "composition";
};

// Which of them the decoder can be built for.
enum class TransMorphKind {
  kPlain,        // TransMorph
  kTimeVarying,  // The TVF models.
  kHyper,        // Their hypernetworks, with a plain Swin.
  kAffine,       // TransMorphAffine, which has no decoder.
};

// Reads the keys that are there over `defaults`. INVALID_ARGUMENT names the
// field that is wrong, or that the decoder does not fit: it takes three levels
// (`depths`, `out_indices`), patches of 4, and
//   kPlain        if_convskip where there is if_transskip
//   kTimeVarying  both
//   kHyper        both, and swin_type "swin"
// as MIR's does, whose other configurations fail in forward.
absl::StatusOr<TransMorphConfig> TransMorphConfigFromJson(
    const char* model, const nlohmann::json& config, TransMorphKind kind,
    const TransMorphConfig& defaults = {});

// What is wrong with `config`, in words that name the field; empty where it is
// right.
std::string FaultOf(const TransMorphConfig& config, TransMorphKind kind);

}  // namespace mir::models

#endif  // MIR_MODELS_TRANSMORPH_TRANSMORPH_CONFIG_H_
