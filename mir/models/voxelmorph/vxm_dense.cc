#include "mir/models/voxelmorph/vxm_dense.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest3d.h>
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
#include "mir/models/layers/weights.h"

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

  at::Tensor forward(const at::Tensor& x) const {
    // In place: nothing else needs the convolution's output.
    at::Tensor y = main_->forward(x);
    return at::leaky_relu_(y, kNegativeSlope);
  }

 private:
  std::shared_ptr<Convolution> main_;
};

// Blocks that follow each other, under the names 0, 1, ...
class ConvBlocks : public torch::nn::Module {
 public:
  ConvBlocks() : torch::nn::Module("ConvBlocks") {}

  void Append(int64_t ndims, int64_t in_channels, int64_t out_channels,
              int64_t stride) {
    blocks_.push_back(register_module(
        absl::StrCat(blocks_.size()),
        std::make_shared<ConvBlock>(ndims, in_channels, out_channels, stride)));
  }

  const std::vector<std::shared_ptr<ConvBlock>>& blocks() const {
    return blocks_;
  }

 private:
  std::vector<std::shared_ptr<ConvBlock>> blocks_;
};

at::Tensor DoubleResolution(const at::Tensor& x) {
  std::vector<int64_t> sizes = x.sizes().slice(2).vec();
  for (int64_t& size : sizes) size *= 2;
  return sizes.size() == 2 ? at::upsample_nearest2d(x, sizes)
                           : at::upsample_nearest3d(x, sizes);
}

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

// What is wrong with `config`; empty where it is right.
std::string Fault(const VxmDenseConfig& config) {
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

}  // namespace

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
  if (const std::string fault = Fault(result); !fault.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("VxmDense: ", fault));
  }
  return result;
}

class VxmDense::Unet : public torch::nn::Module {
 public:
  explicit Unet(const VxmDenseConfig& config) : torch::nn::Module("Unet") {
    const int64_t ndims = config.image_size.size();
    const std::vector<int64_t>& encoder = config.encoder_features;
    const std::vector<int64_t>& decoder = config.decoder_features;
    int64_t channels = kImages;

    downarm_ = register_module("downarm", std::make_shared<ConvBlocks>());
    for (const int64_t features : encoder) {
      downarm_->Append(ndims, channels, features, /*stride=*/2);
      channels = features;
    }
    uparm_ = register_module("uparm", std::make_shared<ConvBlocks>());
    for (size_t i = 0; i < encoder.size(); ++i) {
      const int64_t skipped = i == 0 ? 0 : encoder[encoder.size() - 1 - i];
      uparm_->Append(ndims, channels + skipped, decoder[i], /*stride=*/1);
      channels = decoder[i];
    }
    channels += kImages;
    extras_ = register_module("extras", std::make_shared<ConvBlocks>());
    for (size_t i = encoder.size(); i < decoder.size(); ++i) {
      extras_->Append(ndims, channels, decoder[i], /*stride=*/1);
      channels = decoder[i];
    }
  }

  at::Tensor forward(at::Tensor x) const {
    std::vector<at::Tensor> skipped;
    for (const auto& block : downarm_->blocks()) {
      skipped.push_back(x);
      x = block->forward(x);
    }
    for (const auto& block : uparm_->blocks()) {
      x = at::cat({DoubleResolution(block->forward(x)), skipped.back()},
                  /*dim=*/1);
      skipped.pop_back();
    }
    for (const auto& block : extras_->blocks()) x = block->forward(x);
    return x;
  }

 private:
  static constexpr int64_t kImages = 2;  // Moving and fixed.

  std::shared_ptr<ConvBlocks> downarm_, uparm_, extras_;
};

VxmDense::VxmDense(const VxmDenseConfig& config) : config_(config) {
  const std::string fault = Fault(config);
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

void VxmDense::CheckImages(const at::Tensor& moving,
                           const at::Tensor& fixed) const {
  const int64_t ndims = config_.image_size.size();
  TORCH_CHECK_VALUE(
      moving.dim() == 2 + ndims && moving.sizes() == fixed.sizes() &&
          moving.size(1) == 1,
      "VxmDense wants a moving and a fixed image of equal shape [N, 1, ",
      ndims == 3 ? "D, H, W" : "H, W", "], not ", moving.sizes(), " and ",
      fixed.sizes());
  const int64_t multiple = SizeMultiple().front();
  for (const int64_t size : moving.sizes().slice(2)) {
    TORCH_CHECK_VALUE(size > 0 && size % multiple == 0,
                      "VxmDense wants spatial sizes that are multiples of ",
                      multiple, ", not ", moving.sizes().slice(2));
  }
  TORCH_CHECK_VALUE(
      moving.is_floating_point() && moving.scalar_type() == fixed.scalar_type(),
      "VxmDense wants floating images of one dtype, not ", moving.scalar_type(),
      " and ", fixed.scalar_type());
  const at::ScalarType weights = flow_->weight.scalar_type();
  TORCH_CHECK_VALUE(
      moving.scalar_type() == weights ||
          at::autocast::is_autocast_enabled(moving.device().type()),
      "VxmDense has ", weights, " weights and wants images of that dtype, not ",
      moving.scalar_type(), " (or autocast)");
}

at::Tensor VxmDense::Displacement(const at::Tensor& moving,
                                  const at::Tensor& fixed) const {
  CheckImages(moving, fixed);
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
