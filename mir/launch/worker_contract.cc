#include "mir/launch/worker_contract.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace mir::launch {

const char kWorkerContract[] = "mir-worker-contract-1";

bool KeepsWorkerContract(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat file;
  bool found = false;
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_size > 0) {
    void* const bytes =
        mmap(nullptr, file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes != MAP_FAILED) {
      found = memmem(bytes, file.st_size, kWorkerContract,
                     sizeof(kWorkerContract) - 1) != nullptr;
      munmap(bytes, file.st_size);
    }
  }
  close(fd);
  return found;
}

}  // namespace mir::launch
