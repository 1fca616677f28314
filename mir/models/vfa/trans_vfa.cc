#include "mir/models/vfa/trans_vfa.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mir/geometry/vfa_sampling.h"
#include "mir/models/config_reader.h"
#include "mir/models/layers/decoder_block.h"
#include "mir/models/layers/image_pair.h"
#include "mir/models/swin/def_swin_transformer.h"
#include "mir/models/swin/swin_transformer.h"
#include "mir/models/vfa/blocks.h"
#include "mir/models/vfa/decoder.h"

namespace mir::models {
namespace {

constexpr char kName[] = "TransVFA";
constexpr int64_t kLevels = 5;     // Of features, each half of the one before.
constexpr int64_t kMultiple = 16;  // From the images to the coarsest.
constexpr int64_t kMostChannels = 1 << 14;
constexpr int64_t kMostSteps = 16;

// The first setting that is wrong.
struct Fault {
  const char* key = nullptr;
  std::string wanted;
};

Fault FirstFault(const TransVfaConfig& config) {
  const SwinConfig& swin = config.swin;
  if (swin.depths.size() != 3) {
    return {"depths", absl::StrCat("three levels, not ", swin.depths.size())};
  }
  if (swin.out_indices != std::vector<int64_t>{0, 1, 2}) {
    return {"out_indices", "[0, 1, 2], the levels that are matched"};
  }
  if (swin.patch_size != 4) {
    return {"patch_size", "4, which is doubled back to full size"};
  }
  if (swin.embed_dim % 2 != 0) return {"embed_dim", "even"};
  if (config.swin_type != "swin" && swin.dwin_kernel_size.size() < 3) {
    return {"dwin_kernel_size", "one size for each level of depths"};
  }
  const std::pair<const char*, int64_t> channels[] = {
      {"start_channels", config.start_channels},
      {"matching_channels", config.matching_channels},
      {"max_channels", config.max_channels}};
  for (const auto& [key, value] : channels) {
    if (value < 1 || value > kMostChannels) {
      return {key, absl::StrCat("from 1 to ", kMostChannels)};
    }
  }
  if (config.integration_steps < 0 || config.integration_steps > kMostSteps) {
    return {"int_steps", absl::StrCat("from 0 to ", kMostSteps)};
  }
  return {};
}

std::string FaultOf(const TransVfaConfig& config) {
  if (std::string fault = FaultOf(config.swin); !fault.empty()) return fault;
  const Fault fault = FirstFault(config);
  return fault.key == nullptr
             ? ""
             : absl::StrCat(fault.key, " must be ", fault.wanted);
}

// `channels` doubled `level` times, up to the most.
int64_t Doubled(const TransVfaConfig& config, int64_t channels, int64_t level) {
  return std::min(config.max_channels, channels << level);
}

// Features per level, finest first.
std::vector<int64_t> FeaturesOf(const TransVfaConfig& config) {
  std::vector<int64_t> features;
  for (int64_t level = 0; level < kLevels; ++level) {
    features.push_back(Doubled(config, config.start_channels, level + 1));
  }
  return features;
}

}  // namespace

absl::StatusOr<TransVfaConfig> TransVfaConfigFromJson(
    const nlohmann::json& config) {
  std::vector<std::string> keys = SwinConfigKeys();
  keys.erase(std::find(keys.begin(), keys.end(), "in_chans"));
  for (const char* key : {"swin_type", "start_channels", "matching_channels",
                          "max_channels", "initialize", "skip", "int_steps"}) {
    keys.push_back(key);
  }
  TransVfaConfig result;
  ConfigReader reader(kName, config, keys);
  ReadSwinConfig(reader, &result.swin);
  reader.Read("swin_type", &result.swin_type, {"swin", "dswin", "dswinv2"});
  reader.Read("start_channels", &result.start_channels, 1, kMostChannels);
  reader.Read("matching_channels", &result.matching_channels, 1, kMostChannels);
  reader.Read("max_channels", &result.max_channels, 1, kMostChannels);
  reader.Read("initialize", &result.initialize, -1e6, 1e6);
  int64_t skip = 0;
  reader.Read("skip", &skip, 0, 1);
  result.skip = skip == 1;
  reader.Read("int_steps", &result.integration_steps, 0, kMostSteps);
  const Fault fault = FirstFault(result);
  if (fault.key != nullptr) reader.Check(fault.key, false, fault.wanted);
  if (!reader.status().ok()) return reader.status();
  return result;
}

// Features of both images at five resolutions: MIR's Feature2VFA.
class TransVfa::Encoder : public torch::nn::Module {
 public:
  explicit Encoder(const TransVfaConfig& config)
      : torch::nn::Module("Feature2VFA") {
    SwinConfig swin = config.swin;
    swin.in_chans = 1;
    if (config.swin_type == "swin") {
      swin_ =
          register_module("encoder", std::make_shared<SwinTransformer>(swin));
    } else if (config.swin_type == "dswin") {
      deformable_ = register_module("encoder",
                                    std::make_shared<DefSwinTransformer>(swin));
    } else {
      deformable_ = register_module(
          "encoder", std::make_shared<DefSwinTransformerV2>(swin));
    }
    norm_first_ =
        register_module("norm_first", std::make_shared<AffineInstanceNorm>(1));
    const int64_t embed = swin.embed_dim;
    const std::vector<int64_t> features = FeaturesOf(config);
    const auto block = [&](const char* name, int64_t inputs, int64_t outputs,
                           int64_t skipped) {
      return register_module(
          name, std::make_shared<DecoderBlock>(inputs, outputs, skipped));
    };
    const auto convolution = [&](const char* name, int64_t inputs,
                                 int64_t outputs) {
      return register_module(name,
                             std::make_shared<Conv3dReLU>(inputs, outputs));
    };
    up0_ = block("up0", 4 * embed, features[3], 2 * embed);
    up1_ = block("up1", features[3], features[2], embed);
    up2_ = block("up2", features[2], features[1], embed / 2);
    up3_ = block("up3", features[1], features[0], features[0]);
    c1_ = convolution("c1", 1, embed / 2);
    c2_ = convolution("c2", 1, features[0]);
    cb_ = convolution("cb", 4 * embed, features[4]);
  }

  // Of each image, finest first.
  struct Features {
    std::vector<at::Tensor> moving, fixed;
  };

  Features forward(const at::Tensor& moving, const at::Tensor& fixed) const {
    const at::Tensor m = norm_first_->forward(moving, /*negative_slope=*/1);
    const at::Tensor f = norm_first_->forward(fixed, /*negative_slope=*/1);
    if (swin_ != nullptr) {
      return {ToLevels(m, swin_->forward(m)), ToLevels(f, swin_->forward(f))};
    }
    Features tokens;
    for (const DefSwinTransformer::Pair& pair : deformable_->forward(m, f)) {
      tokens.moving.push_back(pair.moving);
      tokens.fixed.push_back(pair.fixed);
    }
    return {ToLevels(m, tokens.moving), ToLevels(f, tokens.fixed)};
  }

 private:
  // `tokens`: of the backbone's levels, from fine to coarse.
  std::vector<at::Tensor> ToLevels(
      const at::Tensor& image, const std::vector<at::Tensor>& tokens) const {
    const at::Tensor eighth = up0_->forward(tokens[2], tokens[1]);
    const at::Tensor quarter = up1_->forward(eighth, tokens[0]);
    const at::Tensor half = up2_->forward(
        quarter,
        c1_->forward(AveragePool(image, /*kernel_size=*/3, /*padding=*/1)));
    const at::Tensor full = up3_->forward(half, c2_->forward(image));
    return {full, half, quarter, eighth, cb_->forward(tokens[2])};
  }

  std::shared_ptr<SwinTransformer> swin_;  // One of these two.
  std::shared_ptr<DefSwinTransformer> deformable_;
  std::shared_ptr<AffineInstanceNorm> norm_first_;
  std::shared_ptr<DecoderBlock> up0_, up1_, up2_, up3_;
  std::shared_ptr<Conv3dReLU> c1_, c2_, cb_;
};

TransVfa::TransVfa(const TransVfaConfig& config) {
  const std::string fault = FaultOf(config);
  TORCH_CHECK_VALUE(fault.empty(), kName, ": ", fault);
  encoder_ = register_module("encoder", std::make_shared<Encoder>(config));
  VfaDecoderOptions options;
  options.features = FeaturesOf(config);
  for (int64_t level = 0; level < kLevels; ++level) {
    options.matched.push_back(Doubled(config, config.matching_channels, level));
  }
  options.initialize = config.initialize;
  options.skip = config.skip;
  options.integration_steps = config.integration_steps;
  decoder_ = register_module("decoder", std::make_shared<VfaDecoder>(options));
}

TransVfa::~TransVfa() = default;

at::Tensor TransVfa::Forward(const at::Tensor& moving,
                             const at::Tensor& fixed) {
  CheckImagePair({.model = kName,
                  .multiple = SizeMultiple(),
                  .weights = parameters().front().scalar_type()},
                 moving, fixed);
  for (const int64_t size : moving.sizes().slice(2)) {
    TORCH_CHECK_VALUE(size >= 2 * kMultiple, kName,
                      " wants spatial sizes of at least ", 2 * kMultiple,
                      ", not ", moving.sizes().slice(2));
  }
  const Encoder::Features features = encoder_->forward(moving, fixed);
  return geometry::GridToDisplacement(
      decoder_->forward(features.fixed, features.moving, /*embedding=*/{})
          .back());
}

Registration TransVfa::Register(const at::Tensor& moving,
                                const at::Tensor& fixed) {
  const at::Tensor displacement = Forward(moving, fixed);
  return {.displacement = displacement, .regularized = displacement};
}

std::vector<int64_t> TransVfa::SizeMultiple() const {
  return {kMultiple, kMultiple, kMultiple};
}

}  // namespace mir::models
