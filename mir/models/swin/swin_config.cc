#include "mir/models/swin/swin_config.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "mir/models/config_reader.h"

namespace mir::models {
namespace {

constexpr int64_t kMostLevels = 8;
constexpr int64_t kMostFeatures = 1 << 14;
constexpr int64_t kLargest = 1 << 16;  // Of an image size.

// The first setting that is wrong.
struct Fault {
  const char* key = nullptr;
  std::string wanted;
};

bool AllBetween(const std::vector<int64_t>& values, int64_t least,
                int64_t most) {
  return std::all_of(values.begin(), values.end(), [&](int64_t value) {
    return value >= least && value <= most;
  });
}

Fault FirstFault(const SwinConfig& config) {
  const int64_t levels = config.depths.size();
  if (config.patch_size < 1 || config.patch_size > 64) {
    return {"patch_size", "from 1 to 64"};
  }
  if (config.in_chans < 1 || config.in_chans > kMostFeatures) {
    return {"in_chans", "positive"};
  }
  if (levels < 1 || levels > kMostLevels ||
      !AllBetween(config.depths, 1, 1000)) {
    return {"depths",
            absl::StrCat("one to ", kMostLevels, " numbers of blocks")};
  }
  if (config.embed_dim < 1 || config.embed_dim << levels > kMostFeatures) {
    return {"embed_dim", "positive and at most 16384 at the last level"};
  }
  if (static_cast<int64_t>(config.num_heads.size()) < levels ||
      !AllBetween(config.num_heads, 1, kMostFeatures)) {
    return {"num_heads", "one positive number for each level of depths"};
  }
  for (int64_t level = 0; level < levels; ++level) {
    if ((config.embed_dim << level) % config.num_heads[level] != 0) {
      return {"num_heads",
              absl::StrCat("divisors of the features; at level ", level,
                           " embed_dim gives ", config.embed_dim << level)};
    }
  }
  if (config.window_size.size() < 3 || !AllBetween(config.window_size, 1, 64)) {
    return {"window_size", "three numbers from 1 to 64"};
  }
  if (!(config.mlp_ratio * config.embed_dim >= 1) || config.mlp_ratio > 64) {
    return {"mlp_ratio",
            "positive, at most 64, and to give a feature at least"};
  }
  if (config.pat_merg_rf < 1 || 8 / config.pat_merg_rf != 2) {
    return {"pat_merg_rf",
            "4 (or 3), so that features double from level to level"};
  }
  if (!(config.drop_rate >= 0 && config.drop_rate < 1)) {
    return {"drop_rate", "from 0 to below 1"};
  }
  if (!(config.drop_path_rate >= 0 && config.drop_path_rate < 1)) {
    return {"drop_path_rate", "from 0 to below 1"};
  }
  if (config.out_indices.empty() ||
      !AllBetween(config.out_indices, 0, levels - 1) ||
      std::adjacent_find(config.out_indices.begin(), config.out_indices.end(),
                         std::greater_equal<int64_t>()) !=
          config.out_indices.end()) {
    return {"out_indices", "ascending levels, each below depths' length"};
  }
  if ((config.pretrain_img_size.size() != 1 &&
       config.pretrain_img_size.size() != 3) ||
      !AllBetween(config.pretrain_img_size, config.patch_size, kLargest)) {
    return {"pretrain_img_size", "one or three sizes of a patch at least"};
  }
  if (config.img_size.size() != 3 ||
      !AllBetween(config.img_size, 1, kLargest)) {
    return {"img_size", "three positive sizes"};
  }
  if (!AllBetween(config.dwin_kernel_size, 1, 31) ||
      std::any_of(config.dwin_kernel_size.begin(),
                  config.dwin_kernel_size.end(),
                  [](int64_t size) { return size % 2 == 0; })) {
    return {"dwin_kernel_size", "odd sizes from 1 to 31"};
  }
  return {};
}

}  // namespace

const std::vector<std::string>& SwinConfigKeys() {
  static const auto* const keys =
      new std::vector<std::string>{"patch_size",
                                   "in_chans",
                                   "embed_dim",
                                   "depths",
                                   "num_heads",
                                   "window_size",
                                   "mlp_ratio",
                                   "pat_merg_rf",
                                   "qkv_bias",
                                   "drop_rate",
                                   "drop_path_rate",
                                   "ape",
                                   "spe",
                                   "rpe",
                                   "patch_norm",
                                   "use_checkpoint",
                                   "out_indices",
                                   "pretrain_img_size",
                                   "img_size",
                                   "dwin_kernel_size"};
  return *keys;
}

void ReadSwinConfig(ConfigReader& reader, SwinConfig* config) {
  reader.Read("patch_size", &config->patch_size, 1, 64);
  reader.Read("in_chans", &config->in_chans, 1, kMostFeatures);
  reader.Read("embed_dim", &config->embed_dim, 1, kMostFeatures);
  reader.Read("depths", &config->depths, 1, 1000);
  reader.Read("num_heads", &config->num_heads, 1, kMostFeatures);
  reader.Read("window_size", &config->window_size, 1, 64);
  reader.Read("mlp_ratio", &config->mlp_ratio, 0, 64);
  reader.Read("pat_merg_rf", &config->pat_merg_rf, 1, 8);
  reader.Read("qkv_bias", &config->qkv_bias);
  reader.Read("drop_rate", &config->drop_rate, 0, 1);
  reader.Read("drop_path_rate", &config->drop_path_rate, 0, 1);
  reader.Read("ape", &config->ape);
  reader.Read("spe", &config->spe);
  reader.Read("rpe", &config->rpe);
  reader.Read("patch_norm", &config->patch_norm);
  reader.Read("use_checkpoint", &config->use_checkpoint);
  reader.Read("out_indices", &config->out_indices, 0, kMostLevels);
  reader.Read("pretrain_img_size", &config->pretrain_img_size, 1, kLargest);
  reader.Read("img_size", &config->img_size, 1, kLargest);
  reader.Read("dwin_kernel_size", &config->dwin_kernel_size, 1, 31);
  const Fault fault = FirstFault(*config);
  if (fault.key != nullptr) reader.Check(fault.key, false, fault.wanted);
}

std::string FaultOf(const SwinConfig& config) {
  const Fault fault = FirstFault(config);
  return fault.key == nullptr
             ? ""
             : absl::StrCat(fault.key, " must be ", fault.wanted);
}

}  // namespace mir::models
