#ifndef MIR_LAUNCH_STATUS_LINE_H_
#define MIR_LAUNCH_STATUS_LINE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mir/launch/env.h"

namespace mir::launch {

// What a worker tells the runner, one JSON object per line on the file
// descriptor that MIR_STATUS_FD names:
//
//   {"event":"hello","rank":0,"pid":12,"contract":"mir-worker-1"}
//   {"event":"ready"}                        the group of all ranks stands
//   {"event":"beat","step":12,"phase":"train"}
//   {"event":"checkpoint","path":"/x/latest.pth","step":12}
//   {"event":"stacks"}                       those asked for are written
//   {"event":"bye","code":0}                 about to exit, its work done
//
// A worker that says hello promises to say bye before it exits with 0: one that
// exits with 0 without it has left early, and the runner stops the others.
struct StatusLine {
  enum class Event { kHello, kReady, kBeat, kCheckpoint, kStacks, kBye };

  Event event = Event::kHello;
  int rank = 0;          // hello
  int64_t pid = 0;       // hello
  std::string contract;  // hello
  int64_t step = 0;      // beat, checkpoint
  std::string phase;     // beat
  std::string path;      // checkpoint
  int code = 0;          // bye
};

// INVALID_ARGUMENT, quoting the line, where it is none of the above. Further
// keys are ignored.
absl::StatusOr<StatusLine> ParseStatusLine(absl::string_view line);

// Writes status lines. Without MIR_STATUS_FD it does nothing. It never fails
// and never raises SIGPIPE; a beat is dropped where the runner does not read, a
// line of another kind after a second. Thread-safe.
class StatusWriter {
 public:
  // -1 for a writer that does nothing. Does not take ownership.
  explicit StatusWriter(int fd);
  // Of MIR_STATUS_FD; one that is malformed or not open counts as absent.
  explicit StatusWriter(const Env& env);

  void Hello(int rank) const;
  void Ready() const;
  void Beat(int64_t step, absl::string_view phase) const;
  void Checkpoint(absl::string_view path, int64_t step) const;
  void Stacks() const;
  void Bye(int code) const;

 private:
  int fd_;
};

}  // namespace mir::launch

#endif  // MIR_LAUNCH_STATUS_LINE_H_
