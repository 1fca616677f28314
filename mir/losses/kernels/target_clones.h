#ifndef MIR_LOSSES_KERNELS_TARGET_CLONES_H_
#define MIR_LOSSES_KERNELS_TARGET_CLONES_H_

#include "mir/base/target_clones.h"  // IWYU pragma: export

#endif  // MIR_LOSSES_KERNELS_TARGET_CLONES_H_
