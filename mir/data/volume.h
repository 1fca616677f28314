#ifndef MIR_DATA_VOLUME_H_
#define MIR_DATA_VOLUME_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "mir/data/grid.h"

namespace mir::data {

struct NiftiHeader;  // What a file said besides its voxels; see nifti.h.

// A volume in space, as read from a file or computed.
struct Volume {
  at::Tensor voxels;  // [D, H, W], D along the file's first axis; float32, or
                      // int32 for labels. On the CPU.
  Grid grid;
  // Kept for what is written on the same grid; null for volumes that were
  // computed or whose grid has changed since.
  std::shared_ptr<const NiftiHeader> header;
  std::string name;  // The file's path, for messages.
};

}  // namespace mir::data

#endif  // MIR_DATA_VOLUME_H_
