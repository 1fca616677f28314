#include "mir/models/vfa/vfa_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/sigmoid.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/base/nearest.h"
#include "mir/base/status_macros.h"
#include "mir/geometry/vec_int.h"
#include "mir/geometry/vfa_sampling.h"
#include "mir/geometry/warp.h"
#include "mir/models/identity_grid.h"
#include "mir/models/layers/double_resolution.h"
#include "mir/models/layers/hyper.h"
#include "mir/models/layers/image_pair.h"
#include "mir/models/vfa/blocks.h"
#include "mir/models/vfa/decoder.h"
#include "mir/precision/op_fallback.h"

namespace mir::models {
namespace {

using nlohmann::json;

constexpr int64_t kUnits = 96;  // Of the hypernetwork.
constexpr int64_t kMostChannels = 1 << 16;
constexpr int64_t kLargest = 1 << 20;  // Of an image.

at::Tensor Halved(const at::Tensor& x) {
  if (x.dim() == 4) return at::avg_pool2d(x, {2, 2}, {2, 2});
  return precision::WithFallback(
      precision::Op::kAveragePool3d,
      [](const at::Tensor& volumes) {
        return at::avg_pool3d(volumes, {2, 2, 2}, {2, 2, 2});
      },
      x);
}

// Doubles the resolution and convolves: `conv`, `norm`.
class Upsample : public torch::nn::Module {
 public:
  Upsample(const VfaBlockOptions& options, int64_t in_channels,
           int64_t out_channels)
      : torch::nn::Module("Upsample") {
    conv_ = AddConvolution(*this, "conv", options, in_channels, out_channels);
    norm_ = register_module("norm",
                            std::make_shared<AffineInstanceNorm>(out_channels));
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& embedding) const {
    return norm_->forward(
        conv_->Convolve(DoubleResolution(x, /*align_corners=*/true), embedding),
        kNegativeSlope);
  }

 private:
  std::shared_ptr<ConditionedConvolution> conv_;
  std::shared_ptr<AffineInstanceNorm> norm_;
};

// Features of level `level` of the encoder.
int64_t FeaturesAt(const VfaConfig& config, int64_t level) {
  return std::min(config.max_channels, config.start_channels << (level + 1));
}

VfaBlockOptions BlockOptions(const VfaConfig& config) {
  return {.ndims = static_cast<int64_t>(config.image_size.size()),
          .hyper = config.hyper};
}

// What is wrong with `config`; empty where it is right.
std::string FaultOf(const VfaConfig& config) {
  const auto from_to = [](const char* key, int64_t value, int64_t low,
                          int64_t high) -> std::string {
    if (value >= low && value <= high) return "";
    return absl::StrCat(key, " must be from ", low, " to ", high, ", not ",
                        value);
  };
  if (config.image_size.size() != 2 && config.image_size.size() != 3) {
    return absl::StrCat("img_size must have 2 or 3 entries, not ",
                        config.image_size.size());
  }
  for (const int64_t size : config.image_size) {
    const std::string fault =
        from_to("an entry of img_size", size, 1, kLargest);
    if (!fault.empty()) return fault;
  }
  for (const std::string& fault :
       {from_to("in_channels", config.in_channels, 1, kMostChannels),
        from_to("downsamples", config.downsamples, 1, 8),
        from_to("start_channels", config.start_channels, 1, kMostChannels),
        from_to("matching_channels", config.matching_channels, 1,
                kMostChannels),
        from_to("max_channels", config.max_channels, 1, kMostChannels),
        from_to("int_steps", config.integration_steps, 0, 16),
        from_to("SVF_steps", config.velocity_steps, 1, 16)}) {
    if (!fault.empty()) return fault;
  }
  if (config.spatial_weights &&
      config.max_channels < 2 * config.start_channels) {
    return absl::StrCat(
        "max_channels must be at least twice start_channels for weights of the "
        "regularizer, ",
        2 * config.start_channels, ", not ", config.max_channels);
  }
  if (config.spatial_weights && config.image_size.size() != 3) {
    return "img_size must have 3 entries for weights of the regularizer";
  }
  if (config.hyper && config.integrate) {
    return "SVF must be false for a hypernetwork";
  }
  if (config.warp_output && !config.integrate) {
    return "return_full must be false where SVF is";
  }
  return "";
}

}  // namespace

// Features of both resolutions and contexts, level by level.
class VfaEncoder : public torch::nn::Module {
 public:
  explicit VfaEncoder(const VfaConfig& config)
      : torch::nn::Module("VfaEncoder") {
    const VfaBlockOptions options = BlockOptions(config);
    const int64_t most = config.max_channels;
    const auto list = [&](const char* name) {
      return register_module(name, std::make_shared<torch::nn::Module>());
    };
    const auto encoder_conv = list("encoder_conv");
    const auto decoder_conv = list("decoder_conv");
    const auto upsampling = list("upsampling");
    in_norm_ = register_module(
        "in_norm", std::make_shared<AffineInstanceNorm>(config.in_channels));
    in_conv_ = AddConvolution(*this, "in_conv", options, config.in_channels,
                              config.start_channels);
    for (int64_t level = 0; level < config.downsamples; ++level) {
      const std::string name = absl::StrCat(level);
      const int64_t before = std::min(most, config.start_channels << level);
      const int64_t here = FeaturesAt(config, level);
      encoder_conv_.push_back(encoder_conv->register_module(
          name,
          std::make_shared<DoubleConvolution>(options, before, here, here)));
      upsampling_.push_back(upsampling->register_module(
          name, std::make_shared<Upsample>(
                    options, FeaturesAt(config, level + 1), here)));
      decoder_conv_.push_back(decoder_conv->register_module(
          name,
          std::make_shared<DoubleConvolution>(options, 2 * here, here, here)));
    }
    const int64_t deepest = FeaturesAt(config, config.downsamples);
    bottleneck_conv_ = register_module(
        "bottleneck_conv",
        std::make_shared<DoubleConvolution>(
            options,
            std::min(most, config.start_channels << config.downsamples),
            deepest, deepest));
  }

  // Finest first.
  std::vector<at::Tensor> forward(const at::Tensor& image,
                                  const at::Tensor& embedding) const {
    at::Tensor x =
        in_conv_->Convolve({in_norm_->forward(image, /*negative_slope=*/1)},
                           embedding, kNegativeSlope);
    std::vector<at::Tensor> skipped, features;
    for (const auto& block : encoder_conv_) {
      skipped.push_back(block->forward({x}, embedding));
      x = Halved(skipped.back());
    }
    features.push_back(bottleneck_conv_->forward({x}, embedding));
    for (size_t level = encoder_conv_.size(); level-- > 0;) {
      x = upsampling_[level]->forward(features.back(), embedding);
      features.push_back(
          decoder_conv_[level]->forward({x, skipped[level]}, embedding));
    }
    std::reverse(features.begin(), features.end());
    return features;
  }

 private:
  std::vector<std::shared_ptr<DoubleConvolution>> encoder_conv_, decoder_conv_;
  std::vector<std::shared_ptr<Upsample>> upsampling_;
  std::shared_ptr<AffineInstanceNorm> in_norm_;
  std::shared_ptr<ConditionedConvolution> in_conv_;
  std::shared_ptr<DoubleConvolution> bottleneck_conv_;
};

// How strongly each voxel is to be regularized, from the finest features.
class SpatialWeights : public torch::nn::Module {
 public:
  explicit SpatialWeights(const VfaConfig& config)
      : torch::nn::Module("SpatialWeights") {
    const VfaBlockOptions options = BlockOptions(config);
    const int64_t start = config.start_channels;
    spr_conv_ =
        register_module("SPR_conv", std::make_shared<DoubleConvolution>(
                                        options, 4 * start, 2 * start, start));
    lambda_out_ = AddConvolution(*this, "lambda_out", options, start, 1);
  }

  at::Tensor forward(const at::Tensor& moving, const at::Tensor& fixed,
                     const at::Tensor& embedding) const {
    const at::Tensor x = spr_conv_->forward({moving, fixed}, embedding);
    return at::clamp(at::sigmoid(lambda_out_->Convolve(x, embedding)), 1e-6,
                     1.0);
  }

 private:
  std::shared_ptr<DoubleConvolution> spr_conv_;
  std::shared_ptr<ConditionedConvolution> lambda_out_;
};

absl::StatusOr<VfaConfig> VfaConfigFromJson(const json& config,
                                            bool spatial_weights, bool hyper) {
  if (!config.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("VFA wants a configuration object, not ", config.dump()));
  }
  VfaConfig result;
  result.spatial_weights = spatial_weights;
  result.hyper = hyper;
  int64_t affine = 0, skip = 0;
  const std::vector<std::pair<std::string, int64_t*>> integers = {
      {"in_channels", &result.in_channels},
      {"downsamples", &result.downsamples},
      {"start_channels", &result.start_channels},
      {"matching_channels", &result.matching_channels},
      {"max_channels", &result.max_channels},
      {"int_steps", &result.integration_steps},
      {"skip", &skip},
      {"affine", &affine},
      {"SVF_steps", &result.velocity_steps}};
  const std::vector<std::pair<std::string, bool*>> switches = {
      {"SVF", &result.integrate}, {"return_full", &result.warp_output}};
  std::vector<std::string> keys = {"img_size", "initialize"};
  for (const auto& [key, value] : integers) keys.push_back(key);
  for (const auto& [key, value] : switches) keys.push_back(key);

  const auto wanted = [](const std::string& key, const char* what,
                         const json& value) {
    return absl::InvalidArgumentError(absl::StrCat(
        "VFA wants ", key, " to be ", what, ", not ", value.dump()));
  };
  for (const auto& item : config.items()) {
    const std::string& key = item.key();
    const json& value = item.value();
    const auto is_it = [&](const auto& entry) { return entry.first == key; };
    const auto integer = std::find_if(integers.begin(), integers.end(), is_it);
    const auto toggle = std::find_if(switches.begin(), switches.end(), is_it);
    if (integer != integers.end()) {
      if (!value.is_number_integer()) {
        return wanted(key, "a whole number", value);
      }
      *integer->second = value.get<int64_t>();
    } else if (toggle != switches.end()) {
      if (!value.is_boolean()) return wanted(key, "true or false", value);
      *toggle->second = value.get<bool>();
    } else if (key == "initialize") {
      if (!value.is_number()) return wanted(key, "a number", value);
      result.initialize = value.get<double>();
    } else if (key == "img_size") {
      if (!value.is_array() ||
          !std::all_of(value.begin(), value.end(), [](const json& entry) {
            return entry.is_number_integer();
          })) {
        return wanted(key, "a list of whole numbers", value);
      }
      result.image_size = value.get<std::vector<int64_t>>();
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "VFA has no setting '", key, "'", DidYouMean(key, keys)));
    }
  }
  if (affine != 0) {
    return wanted("affine", "0 (affine results are not part of MIR)",
                  config["affine"]);
  }
  if (skip != 0 && skip != 1) return wanted("skip", "0 or 1", config["skip"]);
  result.skip = skip == 1;
  if (const std::string fault = FaultOf(result); !fault.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("VFA: ", fault));
  }
  return result;
}

Vfa::Vfa(const VfaConfig& config) : config_(config) {
  const std::string fault = FaultOf(config);
  TORCH_CHECK_VALUE(fault.empty(), "VFA: ", fault);
  encoder_ = register_module("encoder", std::make_shared<VfaEncoder>(config));
  VfaDecoderOptions options;
  options.block = BlockOptions(config);
  options.initialize = config.initialize;
  options.skip = config.skip;
  options.integration_steps = config.integration_steps;
  for (int64_t level = 0; level <= config.downsamples; ++level) {
    options.features.push_back(FeaturesAt(config, level));
    options.matched.push_back(
        std::min(config.max_channels, config.matching_channels << level));
  }
  decoder_ = register_module("decoder", std::make_shared<VfaDecoder>(options));
  if (config.spatial_weights) {
    spatial_weights_ =
        register_module("SPRDecoder", std::make_shared<SpatialWeights>(config));
  }
  if (config.hyper) {
    hyper_model_ = register_module(
        "hyper_model",
        std::make_shared<HyperEmbedding>(HyperparameterCount(), kUnits));
  }
  if (config.integrate) {
    register_module("integrate", std::make_shared<torch::nn::Module>())
        ->register_module("transformer",
                          std::make_shared<IdentityGrid>(config.image_size));
  }
  if (config.warp_output) {
    register_module("spatial_trans",
                    std::make_shared<IdentityGrid>(config.image_size));
  }
}

Vfa::~Vfa() = default;

Vfa::Output Vfa::Forward(const at::Tensor& moving, const at::Tensor& fixed,
                         const at::Tensor& hyperparameters) {
  CheckImagePair({.model = "VFA",
                  .channels = config_.in_channels,
                  .multiple = SizeMultiple(),
                  .weights = parameters().front().scalar_type()},
                 moving, fixed);
  const int64_t least = 2 * SizeMultiple().front();
  for (const int64_t size : moving.sizes().slice(2)) {
    TORCH_CHECK_VALUE(size >= least, "VFA wants spatial sizes of at least ",
                      least, ", not ", moving.sizes().slice(2));
  }
  TORCH_CHECK_VALUE(
      config_.hyper == hyperparameters.defined(),
      config_.hyper ? "VFA with a hypernetwork wants hyperparameters"
                    : "VFA without a hypernetwork takes no hyperparameters");
  at::Tensor embedding;
  if (config_.hyper) {
    embedding = hyper_model_->forward(hyperparameters.to(moving.device()));
  }
  const std::vector<at::Tensor> fixed_features =
      encoder_->forward(fixed, embedding);
  const std::vector<at::Tensor> moving_features =
      encoder_->forward(moving, embedding);

  Output output;
  if (config_.spatial_weights) {
    output.weights = spatial_weights_->forward(
        moving_features.front(), fixed_features.front(), embedding);
  }
  for (const at::Tensor& grid :
       decoder_->forward(fixed_features, moving_features, embedding)) {
    output.levels.push_back(geometry::GridToDisplacement(grid));
  }
  output.displacement = output.levels.back();
  if (!config_.integrate) return output;

  const int steps = static_cast<int>(config_.velocity_steps);
  output.displacement = geometry::VecInt(
      output.displacement, steps, geometry::WarpConvention::kMirCompatible);
  if (config_.warp_output) {
    geometry::WarpOptions options;
    options.convention = geometry::WarpConvention::kMirCompatible;
    output.inverse =
        geometry::VecInt(-output.displacement, steps, options.convention);
    output.warped_moving = geometry::Warp(moving, output.displacement, options);
    output.warped_fixed = geometry::Warp(fixed, output.inverse, options);
  }
  return output;
}

Registration Vfa::Register(const at::Tensor& moving, const at::Tensor& fixed) {
  const Output output = Forward(
      moving, fixed, config_.hyper ? HyperparameterRow() : at::Tensor());
  return {.displacement = output.displacement,
          .regularized = output.displacement,
          .weights = output.weights,
          .hyperparameters = hyperparameters()};
}

int64_t Vfa::HyperparameterCount() const {
  if (!config_.hyper) return 0;
  return config_.spatial_weights ? 2 : 1;
}

std::vector<int64_t> Vfa::SizeMultiple() const {
  return std::vector<int64_t>(config_.image_size.size(),
                              int64_t{1} << config_.downsamples);
}

std::vector<std::string> Vfa::DerivedKeys() const {
  return {absl::StrCat("integrate.transformer.", IdentityGrid::kKey),
          absl::StrCat("spatial_trans.", IdentityGrid::kKey)};
}

}  // namespace mir::models
