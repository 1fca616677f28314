#ifndef MIR_CHECKPOINT_ARCHIVE_H_
#define MIR_CHECKPOINT_ARCHIVE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mir/checkpoint/read_options.h"
#include "mir/checkpoint/value.h"

namespace mir::checkpoint {

// Reads a file that Python's torch.save or WriteCheckpoint wrote (.pth, .pt,
// .pth.tar): the zip format, and the one from before torch 1.6, which has no
// checksums. A safetensors file is read as a dict of its tensors.
//
// Nothing in the file is executed. All tensors come to the device that is asked
// for, wherever they were saved; those that shared a storage share it again;
// none requires a gradient. Memory stays in proportion to the file.
// Thread-safe.
//
// Errors name the file and what is wrong in it: NOT_FOUND and the like from the
// system; DATA_LOSS for one that is truncated or damaged (with the entry whose
// CRC-32 does not fit); PERMISSION_DENIED for a class that is not loaded (with
// its name); INVALID_ARGUMENT for one that is no checkpoint or is unsupported;
// RESOURCE_EXHAUSTED where memory does not suffice.
absl::StatusOr<Value> ReadCheckpoint(const std::string& path,
                                     const ReadOptions& options = {});

// Writes `value` to a file that Python's torch.load opens, with
// weights_only=True and with mmap=True. Tensors on a GPU are copied to the CPU
// one storage at a time; storages that are shared are written once.
//
// Atomic and durable: until it has succeeded the name holds what it held
// before, after that the new file, also after a power failure (see
// AtomicFile).
//
// Errors name the file, or the place in `value` that cannot be saved (see
// Pickle); RESOURCE_EXHAUSTED if the disk is full.
absl::Status WriteCheckpoint(const std::string& path, const Value& value);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_ARCHIVE_H_
