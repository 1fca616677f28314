#ifndef MIR_GEOMETRY_PATCH_STARTS_H_
#define MIR_GEOMETRY_PATCH_STARTS_H_

#include <cstdint>
#include <vector>

namespace mir::geometry {

// Where patches of `patch` voxels begin that cover an axis of `size` voxels:
// every `stride`, and a last one that ends with the axis. With a stride of at
// most `patch` no voxel is left out. MIR's get_patch_starts.
//
// Thread-safe. Throws c10::ValueError unless 1 <= patch <= size and stride >= 1
// (MIR lets a patch that is too long begin before the axis).
std::vector<int64_t> PatchStarts(int64_t size, int64_t patch, int64_t stride);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_PATCH_STARTS_H_
