#ifndef MIR_TOOLS_GPU_CHECK_CHECKS_H_
#define MIR_TOOLS_GPU_CHECK_CHECKS_H_

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "mir/distributed/init.h"

namespace mir::tools {

// One thing that a device must do as the CPU does.
struct Check {
  std::string group;  // "loss", "regularizer", "warp", "model", ...
  std::string name;   // "ncc"
  std::string
      precision;  // "fp32", "fp16" or "bf16"; empty where there is none.
  // The larger of the relative differences of value and gradient (L2).
  double error = 0;
  double limit = 0;
  std::string fault;  // What it threw, or what was wrong; empty for nothing.

  bool passed() const { return fault.empty() && error <= limit; }
};

// The image losses and regularizers of losses/factory.h, value and gradient, on
// inputs in each precision, against float32 on the CPU with the same values.
std::vector<Check> CheckLosses(const at::Device& device);

// Warps of images in each border, of labels, integration and Jacobians;
// likewise.
std::vector<Check> CheckGeometry(const at::Device& device);

// The `tiny` configuration of each model that this program links, in float32
// (without TF32) and under autocast, against float32 on the CPU. Autocast may
// differ by what is usual of networks, or by twice what it does on the CPU.
std::vector<Check> CheckModels(const at::Device& device);

// That an overflow of fp16 skips the step and halves the scale.
std::vector<Check> CheckScaler(const at::Device& device);

// With the peers of `context`: a sum over the ranks, and the gradient of a
// batch that is spread over them against that of the joined batch.
std::vector<Check> CheckRanks(const distributed::Context& context);

}  // namespace mir::tools

#endif  // MIR_TOOLS_GPU_CHECK_CHECKS_H_
