#ifndef MIR_BASE_CATCH_TORCH_H_
#define MIR_BASE_CATCH_TORCH_H_

#include <functional>

#include "absl/status/status.h"

namespace mir {

// Runs `body` at an edge of the library and turns what LibTorch throws into a
// status, without its C++ backtrace: out of memory becomes RESOURCE_EXHAUSTED,
// c10::ValueError and c10::TypeError INVALID_ARGUMENT, every other
// std::exception INTERNAL.
absl::Status CatchTorch(const std::function<absl::Status()>& body);

}  // namespace mir

#endif  // MIR_BASE_CATCH_TORCH_H_
