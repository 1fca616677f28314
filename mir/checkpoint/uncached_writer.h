#ifndef MIR_CHECKPOINT_UNCACHED_WRITER_H_
#define MIR_CHECKPOINT_UNCACHED_WRITER_H_

#include <cstddef>
#include <cstdlib>
#include <future>
#include <memory>

namespace mir::checkpoint {

// Appends to a file that will not be read soon: whole blocks go past the
// system's cache where the file system can do that (O_DIRECT), while the caller
// prepares the next. Filling the cache costs more than the disk does, and
// drives other files out of it. Not thread-safe.
class UncachedWriter {
 public:
  // `descriptor` is an empty file that is open for writing; this closes it.
  explicit UncachedWriter(int descriptor) : descriptor_(descriptor) {}
  ~UncachedWriter();
  UncachedWriter(const UncachedWriter&) = delete;
  UncachedWriter& operator=(const UncachedWriter&) = delete;

  // Takes the bytes. Both return 0 or the system's error number, which may be
  // that of bytes before; nothing may be called after an error.
  int Write(const void* data, size_t size);

  // Makes all of them durable.
  int Finish();

 private:
  struct Free {
    void operator()(char* block) const { std::free(block); }
  };
  using Block = std::unique_ptr<char, Free>;

  static Block NewBlock();
  int WaitForBlock();
  int StartBlock();  // Writes `block_`, which is full.

  const int descriptor_;
  Block block_;  // Being filled.
  size_t filled_ = 0;
  Block on_its_way_;
  std::future<int> result_;
};

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_UNCACHED_WRITER_H_
