#ifndef MIR_CHECKPOINT_CRC32_H_
#define MIR_CHECKPOINT_CRC32_H_

#include <cstddef>
#include <cstdint>

namespace mir::checkpoint {

// The CRC-32 of zip files (polynomial 0x04C11DB7, reflected) of `size` bytes,
// going on from `crc`, that of the bytes before; the first call takes 0.
// Runs at memory speed where the processor multiplies without carries.
// Thread-safe.
//
// V. Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction, Intel, 2009.
uint32_t Crc32(const void* data, size_t size, uint32_t crc = 0);

// The same by tables, for processors without that instruction and for tests.
uint32_t Crc32Portable(const void* data, size_t size, uint32_t crc = 0);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_CRC32_H_
