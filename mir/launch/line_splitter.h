#ifndef MIR_LAUNCH_LINE_SPLITTER_H_
#define MIR_LAUNCH_LINE_SPLITTER_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace mir::launch {

// Cuts a stream of bytes, as it comes in pieces from a process, into lines.
// Bytes are passed on as they are, whatever their encoding. Not thread-safe.
class LineSplitter {
 public:
  // What ended a line.
  enum class End {
    kNewline,         // LF, or CR LF.
    kCarriageReturn,  // CR: the next text is to replace this one, as progress
                      // bars do. Texts that are empty are left out.
    kTooLong,         // The line goes on, but is cut here.
    kEndOfStream,
  };
  using Sink = std::function<void(absl::string_view text, End end)>;

  // Lines longer than `longest` bytes are cut, so that memory stays bounded.
  explicit LineSplitter(size_t longest = 1 << 16) : longest_(longest) {}

  // Calls `sink` with each text that `bytes` completes, in order. A CR that
  // ends `bytes` is passed on at once, and its text again with kNewline if LF
  // follows.
  void Add(absl::string_view bytes, const Sink& sink);

  // The stream has ended: passes on what is left, if anything, with
  // kEndOfStream; that is also the last text that a CR ended, if nothing came
  // after it.
  void Finish(const Sink& sink);

  // The text that no end has come for; after a CR and until something else
  // comes, the text that it ended.
  absl::string_view Pending() const;

 private:
  const size_t longest_;
  std::string text_;
  // The last text that a CR ended; empty once something else came.
  std::string replaceable_;
  bool after_carriage_return_ = false;
};

}  // namespace mir::launch

#endif  // MIR_LAUNCH_LINE_SPLITTER_H_
