#ifndef MIR_MODELS_SWIN_SWIN_CONFIG_H_
#define MIR_MODELS_SWIN_SWIN_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

namespace mir::models {

class ConfigReader;

// Settings of the Swin backbones under the names of MIR's configurations
// (configs_TransMorph.py). The defaults are get_3DTransMorph3Lvl_config's.
struct SwinConfig {
  // Voxels along each axis that become one token.
  int64_t patch_size = 4;
  int64_t in_chans = 2;  // Of the images, side by side (plain Swin alone).
  // Features of a token at the first level; they double at each.
  int64_t embed_dim = 96;
  std::vector<int64_t> depths = {4, 4, 5};     // Blocks of each level.
  std::vector<int64_t> num_heads = {8, 8, 8};  // Likewise.
  // Tokens along d, h, w; further entries are ignored, as by MIR.
  std::vector<int64_t> window_size = {6, 5, 6};
  double mlp_ratio = 4;
  // 8 tokens with C features each become one with 8 / pat_merg_rf * C. Levels
  // have twice the features of the one before, so only 4 (or 3) fits.
  int64_t pat_merg_rf = 4;
  bool qkv_bias = false;
  double drop_rate = 0;
  double drop_path_rate = 0.3;  // Of the last block; the first has 0.
  bool ape = false;             // Absolute position embedding, learnt.
  bool spe = false;             // Sinusoidal position embedding (unless `ape`).
  bool rpe = true;  // Bias by relative position in a window, learnt.
  bool patch_norm = true;
  bool use_checkpoint = false;  // Recompute blocks in the backward pass.
  // Levels whose features are given out, ascending.
  std::vector<int64_t> out_indices = {0, 1, 2};
  // Of the images that `ape` was learnt on: one number or three. No
  // configuration of MIR sets it.
  std::vector<int64_t> pretrain_img_size = {224};

  // Of the deformable backbones alone.
  std::vector<int64_t> img_size = {160, 192, 224};
  // Of the convolutions that find the windows' offsets, one per level at
  // least; odd.
  std::vector<int64_t> dwin_kernel_size = {7, 5, 3};

  // No key, but which of MIR's classes it is: a hypernetwork makes the weights
  // of patches, attention and Mlps (plain Swin alone).
  bool hyper = false;
};

// The keys above.
const std::vector<std::string>& SwinConfigKeys();

// Reads the keys that are there, and checks all.
void ReadSwinConfig(ConfigReader& reader, SwinConfig* config);

// What is wrong with `config`, in words that name the field; empty where it is
// right.
std::string FaultOf(const SwinConfig& config);

}  // namespace mir::models

#endif  // MIR_MODELS_SWIN_SWIN_CONFIG_H_
