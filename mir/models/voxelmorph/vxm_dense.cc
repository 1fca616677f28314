#include "mir/models/voxelmorph/vxm_dense.h"

#include <ATen/ops/cat.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/base/nearest.h"
#include "mir/base/status_macros.h"
#include "mir/geometry/warp.h"
#include "mir/models/identity_grid.h"
#include "mir/models/layers/image_pair.h"
#include "mir/models/layers/weights.h"
#include "mir/models/voxelmorph/unet.h"

namespace mir::models {
namespace {

using nlohmann::json;

constexpr char kKeys[][20] = {"img_size",       "nb_unet_features",
                              "nb_unet_levels", "unet_feat_mult",
                              "use_probs",      "gen_output"};
constexpr int64_t kLargest = 1 << 20;  // Of a size or a channel count.
constexpr double kNegativeSlope = 0.2;
constexpr double kFlowDeviation = 1e-5;
constexpr size_t kMostLevels = 16;  // Images have multiples of 2^levels.

// A convolution (`main`) and a leaky ReLU.
class ConvBlock : public torch::nn::Module {
 public:
  ConvBlock(int64_t ndims, int64_t in_channels, int64_t out_channels,
            int64_t stride)
      : torch::nn::Module("ConvBlock") {
    ConvolutionOptions options;
    options.ndims = ndims;
    options.in_channels = in_channels;
    options.out_channels = out_channels;
    options.stride = stride;
    main_ = register_module("main", std::make_shared<Convolution>(options));
  }

  at::Tensor forward(const std::vector<at::Tensor>& features) const {
    return main_->forward(features, kNegativeSlope);
  }

 private:
  std::shared_ptr<Convolution> main_;
};

bool InRange(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t value) {
    return value > 0 && value <= kLargest;
  });
}

absl::Status Wanted(const char* key, const char* wanted, const json& value) {
  return absl::InvalidArgumentError(absl::StrCat(
      "VxmDense wants ", key, " to be ", wanted, ", not ", value.dump()));
}

absl::StatusOr<std::vector<int64_t>> Integers(const char* key,
                                              const json& value) {
  const auto is_size = [](const json& entry) {
    return entry.is_number_integer() && entry > 0 && entry <= kLargest;
  };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_size)) {
    return Wanted(key, "a list of positive numbers", value);
  }
  return value.get<std::vector<int64_t>>();
}

// MIR's rule for a single number: `levels` features, each `multiplier` times
// the one above; the deepest is the decoder's alone.
void SetFeatures(int64_t first, int64_t levels, double multiplier,
                 VxmDenseConfig& config) {
  std::vector<int64_t> features;
  for (int64_t level = 0; level < levels; ++level) {
    features.push_back(std::nearbyint(
        std::min(first * std::pow(multiplier, level), 2.0 * kLargest)));
  }
  config.decoder_features.assign(features.rbegin(), features.rend());
  features.pop_back();
  config.encoder_features = features;
}

}  // namespace

std::string FaultOf(const VxmDenseConfig& config) {
  if (config.image_size.size() != 2 && config.image_size.size() != 3) {
    return absl::StrCat("img_size must have 2 or 3 entries, not ",
                        config.image_size.size());
  }
  if (!InRange(config.image_size) || !InRange(config.encoder_features) ||
      !InRange(config.decoder_features)) {
    return absl::StrCat(
        "the entries of img_size and nb_unet_features must be from 1 to ",
        kLargest);
  }
  if (config.encoder_features.size() > kMostLevels) {
    return absl::StrCat("nb_unet_features must have at most ", kMostLevels,
                        " encoder entries, not ",
                        config.encoder_features.size());
  }
  if (config.encoder_features.empty() ||
      config.decoder_features.size() <= config.encoder_features.size()) {
    return absl::StrCat(
        "nb_unet_features must have at least one encoder entry and more "
        "decoder entries than that, not ",
        config.encoder_features.size(), " and ",
        config.decoder_features.size());
  }
  return "";
}

absl::StatusOr<VxmDenseConfig> VxmDenseConfigFromJson(const json& config) {
  if (!config.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "VxmDense wants a configuration object, not ", config.dump()));
  }
  const std::vector<std::string> keys(std::begin(kKeys), std::end(kKeys));
  for (const auto& item : config.items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("VxmDense has no setting '", item.key(), "'",
                       DidYouMean(item.key(), keys)));
    }
  }

  VxmDenseConfig result;
  if (config.contains("img_size")) {
    MIR_ASSIGN_OR_RETURN(result.image_size,
                         Integers("img_size", config["img_size"]));
  }
  const json levels = config.value("nb_unet_levels", json());
  if (const auto features = config.find("nb_unet_features");
      features != config.end() && features->is_number_integer()) {
    const json multiplier = config.value("unet_feat_mult", json(1));
    if (*features <= 0 || *features > kLargest) {
      return Wanted("nb_unet_features", "positive", *features);
    }
    if (!levels.is_number_integer() || levels < 2 || levels > kMostLevels) {
      return Wanted("nb_unet_levels",
                    "a number from 2 to 16, as nb_unet_features is one",
                    levels);
    }
    if (!multiplier.is_number() || multiplier < 1 || multiplier > 16) {
      return Wanted("unet_feat_mult", "a number from 1 to 16", multiplier);
    }
    SetFeatures(*features, levels, multiplier, result);
  } else {
    if (!levels.is_null()) {
      return Wanted("nb_unet_levels",
                    "null, as nb_unet_features is not a single number", levels);
    }
    const json lists =
        features == config.end()
            ? json({result.encoder_features, result.decoder_features})
        : features->is_null()
            ? json({{8, 32, 32, 32}, {32, 32, 32, 32, 32, 8, 8}})
            : *features;
    if (!lists.is_array() || lists.size() != 2) {
      return Wanted("nb_unet_features",
                    "a pair of lists [encoder, decoder], or a number", lists);
    }
    MIR_ASSIGN_OR_RETURN(result.encoder_features,
                         Integers("nb_unet_features", lists[0]));
    MIR_ASSIGN_OR_RETURN(result.decoder_features,
                         Integers("nb_unet_features", lists[1]));
  }
  const json use_probs = config.value("use_probs", json(false));
  if (use_probs != false) {
    return Wanted("use_probs", "false (flow variance is not part of MIR)",
                  use_probs);
  }
  const json gen_output = config.value("gen_output", json(false));
  if (!gen_output.is_boolean()) {
    return Wanted("gen_output", "true or false", gen_output);
  }
  result.warp_output = gen_output;
  if (const std::string fault = FaultOf(result); !fault.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("VxmDense: ", fault));
  }
  return result;
}

class VxmDense::Unet : public VxmUnet<ConvBlock> {
  using VxmUnet::VxmUnet;
};

VxmDense::VxmDense(const VxmDenseConfig& config) : config_(config) {
  const std::string fault = FaultOf(config);
  TORCH_CHECK_VALUE(fault.empty(), fault);
  unet_model_ = register_module("unet_model", std::make_shared<Unet>(config));

  const int64_t ndims = config.image_size.size();
  ConvolutionOptions options;
  options.ndims = ndims;
  options.in_channels = config.decoder_features.back();
  options.out_channels = ndims;
  flow_ = register_module("flow", std::make_shared<Convolution>(options));
  // Training starts near the identity.
  InitNormal(flow_->weight, 0, kFlowDeviation);
  InitConstant(flow_->bias, 0);

  if (config.warp_output) {
    register_module("transformer",
                    std::make_shared<IdentityGrid>(config.image_size));
  }
}

at::Tensor VxmDense::Displacement(const at::Tensor& moving,
                                  const at::Tensor& fixed) const {
  CheckImagePair({.model = "VxmDense",
                  .multiple = SizeMultiple(),
                  .weights = flow_->weight.scalar_type()},
                 moving, fixed);
  return flow_->forward(
      unet_model_->forward(at::cat({moving, fixed}, /*dim=*/1)));
}

VxmDense::Output VxmDense::Forward(const at::Tensor& moving,
                                   const at::Tensor& fixed) {
  Output output;
  output.displacement = Displacement(moving, fixed);
  if (config_.warp_output) {
    geometry::WarpOptions options;
    options.convention = geometry::WarpConvention::kMirCompatible;
    output.warped = geometry::Warp(moving, output.displacement, options);
  }
  return output;
}

Registration VxmDense::Register(const at::Tensor& moving,
                                const at::Tensor& fixed) {
  const at::Tensor displacement = Displacement(moving, fixed);
  return {displacement, displacement};
}

std::vector<int64_t> VxmDense::SizeMultiple() const {
  return std::vector<int64_t>(config_.image_size.size(),
                              int64_t{1} << config_.encoder_features.size());
}

std::vector<std::string> VxmDense::DerivedKeys() const {
  return {absl::StrCat("transformer.", IdentityGrid::kKey)};
}

}  // namespace mir::models
