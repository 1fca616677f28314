#ifndef MIR_TOOLS_TRAIN_DEVICES_H_
#define MIR_TOOLS_TRAIN_DEVICES_H_

#include <string>
#include <vector>

#include "mir/launch/env.h"

namespace mir::tools {

// The CUDA devices that a program would see.
struct CudaDevices {
  std::vector<std::string> names;
  // Why there is none: "libcuda.so.1 not found". Empty where there are some.
  std::string why_none;

  int count() const { return static_cast<int>(names.size()); }
};

// Asks the driver (libcuda.so.1), in a child process that ends afterwards, so
// that this one holds no CUDA state. CUDA_VISIBLE_DEVICES counts as `env` has
// it. A driver that does not answer within 30 s counts as none.
CudaDevices FindCudaDevices(const launch::Env& env);

}  // namespace mir::tools

#endif  // MIR_TOOLS_TRAIN_DEVICES_H_
