#ifndef MIR_CHECKPOINT_ATOMIC_FILE_H_
#define MIR_CHECKPOINT_ATOMIC_FILE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mir/checkpoint/uncached_writer.h"

namespace mir::checkpoint {

// Writes a file so that its name always holds a whole one: the old until
// Commit has succeeded, the new from then on, also after a power failure.
//
// Until then the bytes lie in a file `.NAME.*.tmp` beside it. That file is
// removed if anything fails; one that a killed process left is removed when
// the same name is next written. Not thread-safe; different objects may write
// the same name at once, and the last to commit wins.
class AtomicFile {
 public:
  // Where `path` is a symbolic link, what it points to is replaced. Errors
  // name the file, and say what the system says: NOT_FOUND where the folder
  // does not exist, PERMISSION_DENIED, ...
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(
      const std::string& path);

  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. RESOURCE_EXHAUSTED if the disk is full, perhaps only of a later
  // call or Commit; nothing may be called after an error.
  absl::Status Write(const void* data, size_t size);

  // Makes the bytes durable, then gives them the name. Once.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor);
  absl::Status Fail(int error, const char* what) const;

  std::string path_;
  std::string temporary_;  // Empty once it is no longer there.
  UncachedWriter writer_;
};

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_ATOMIC_FILE_H_
