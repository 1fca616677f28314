#include "mir/geometry/patch_starts.h"

#include <c10/util/Exception.h>

namespace mir::geometry {

std::vector<int64_t> PatchStarts(int64_t size, int64_t patch, int64_t stride) {
  TORCH_CHECK_VALUE(patch >= 1 && patch <= size && stride >= 1,
                    "PatchStarts: wanted a patch of 1 to ", size,
                    " voxels and a stride of at least 1, came ", patch, " and ",
                    stride);
  std::vector<int64_t> starts;
  for (int64_t start = 0; start + patch < size; start += stride) {
    starts.push_back(start);
  }
  starts.push_back(size - patch);
  return starts;
}

}  // namespace mir::geometry
