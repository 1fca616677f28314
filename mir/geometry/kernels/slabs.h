#ifndef MIR_GEOMETRY_KERNELS_SLABS_H_
#define MIR_GEOMETRY_KERNELS_SLABS_H_

#include <array>
#include <cstdint>
#include <vector>

namespace mir::geometry::kernels {

// Planes [begin, end) of one sample.
struct Slab {
  int64_t sample, begin, end;
};

// Two lists of slabs, to be worked on one after the other. Those of one list
// write to disjoint planes, so a list can be worked on in parallel, and every
// voxel gets its terms in an order that does not depend on the threads.
using Phases = std::array<std::vector<Slab>, 2>;

// Cuts each sample's planes into slabs. Plane p of sample n writes to planes
// first[n * planes + p] to last[n * planes + p]. Slabs are as thick as the
// farthest of these needs; in the end one slab is the whole sample.
Phases CutIntoSlabs(int64_t planes, const std::vector<int64_t>& first,
                    const std::vector<int64_t>& last);

}  // namespace mir::geometry::kernels

#endif  // MIR_GEOMETRY_KERNELS_SLABS_H_
