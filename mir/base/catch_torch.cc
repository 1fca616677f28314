#include "mir/base/catch_torch.h"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

namespace mir {

absl::Status CatchTorch(const std::function<absl::Status()>& body) {
  try {
    return body();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(error.what_without_backtrace());
  } catch (const c10::ValueError& error) {
    return absl::InvalidArgumentError(error.what_without_backtrace());
  } catch (const c10::TypeError& error) {
    return absl::InvalidArgumentError(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    // The CPU allocator has no exception type of its own.
    if (message.find("not enough memory") != std::string::npos ||
        message.find("can't allocate memory") != std::string::npos) {
      return absl::ResourceExhaustedError(message);
    }
    return absl::InternalError(message);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace mir
