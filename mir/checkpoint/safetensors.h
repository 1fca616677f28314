#ifndef MIR_CHECKPOINT_SAFETENSORS_H_
#define MIR_CHECKPOINT_SAFETENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mir/checkpoint/read_options.h"

namespace mir::checkpoint {

// What a safetensors file holds.
struct Safetensors {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::map<std::string, std::string> metadata;  // `__metadata__`.
};

// Reads a safetensors file (Hugging Face's format, of 2022): the length of a
// JSON header, the header, then the bytes of all tensors, bit for bit. They
// come in the header's order. CRC-32s and unknown classes, of which `options`
// speaks, are not in this format. Memory stays in proportion to the file.
// Thread-safe.
//
// As Hugging Face's reader it wants the tensors to fill the file, without gaps
// and overlaps; it also refuses names that stand twice.
//
// Errors name the file and what is wrong in it: NOT_FOUND and the like from the
// system; DATA_LOSS where the file is truncated or has bytes too many;
// INVALID_ARGUMENT for any other header, naming the tensor, and for dtypes that
// LibTorch cannot hold.
absl::StatusOr<Safetensors> ReadSafetensors(const std::string& path,
                                            const ReadOptions& options = {});

// Writes a file that Python's safetensors opens, the names in the order given.
// Views and tensors on a GPU are copied one at a time, tensors that share a
// storage are written once each (the format has no sharing).
//
// Atomic and durable, as WriteCheckpoint. Errors name the file, and
// INVALID_ARGUMENT the tensor that cannot be saved: undefined, sparse,
// quantized or meta, of a dtype that the format lacks (complex128), a name
// that stands twice, is `__metadata__` or is not UTF-8.
absl::Status WriteSafetensors(const std::string& path,
                              const Safetensors& content);

// Whether a file that begins with `start`, its first kSafetensorsStart bytes,
// can be a safetensors file. No file of torch.save and no text does.
inline constexpr size_t kSafetensorsStart = 9;
bool BeginsAsSafetensors(absl::string_view start);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_SAFETENSORS_H_
