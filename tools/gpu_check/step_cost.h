#ifndef MIR_TOOLS_GPU_CHECK_STEP_COST_H_
#define MIR_TOOLS_GPU_CHECK_STEP_COST_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "mir/precision/precision.h"

namespace mir::tools {

// What one training step of a model costs on a device.
struct StepCost {
  std::string model;
  std::string precision;
  double milliseconds = 0;  // The median of `steps`.
  double peak_mib = 0;      // Of the device's tensors; 0 on the CPU.
  std::string fault;        // What it threw, such as no memory.
};

// Trains `configuration` of `model` on one pair of noise images of `size` for a
// few steps: forward, warp, local NCC, gradient penalty, backward, gradient
// scaling where the precision needs it, AdamW.
StepCost MeasureStepCost(const std::string& model,
                         const std::string& configuration,
                         const std::vector<int64_t>& size,
                         precision::Precision precision,
                         const at::Device& device, int steps);

}  // namespace mir::tools

#endif  // MIR_TOOLS_GPU_CHECK_STEP_COST_H_
