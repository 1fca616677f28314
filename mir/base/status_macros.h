#ifndef MIR_BASE_STATUS_MACROS_H_
#define MIR_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function where `expression`, an absl::Status, is
// an error.
#define MIR_RETURN_IF_ERROR(expression)                               \
  do {                                                                \
    if (absl::Status mir_status_ = (expression); !mir_status_.ok()) { \
      return mir_status_;                                             \
    }                                                                 \
  } while (false)

// Assigns the value of `expression`, an absl::StatusOr, to `target` (which may
// declare a variable), or returns its error from the enclosing function.
#define MIR_ASSIGN_OR_RETURN(target, expression)                           \
  MIR_ASSIGN_OR_RETURN_(MIR_STATUS_CONCAT_(mir_result_, __LINE__), target, \
                        expression)
#define MIR_ASSIGN_OR_RETURN_(result, target, expression) \
  auto result = (expression);                             \
  if (!result.ok()) return std::move(result).status();    \
  target = *std::move(result)
#define MIR_STATUS_CONCAT_(a, b) MIR_STATUS_CONCAT_INNER_(a, b)
#define MIR_STATUS_CONCAT_INNER_(a, b) a##b

#endif  // MIR_BASE_STATUS_MACROS_H_
