#ifndef MIR_TOOLS_TRAIN_CONSOLE_H_
#define MIR_TOOLS_TRAIN_CONSOLE_H_

#include <poll.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "mir/launch/env.h"
#include "mir/launch/line_splitter.h"
#include "mir/launch/spawn.h"
#include "mir/launch/supervisor.h"
#include "tools/train/options.h"

namespace mir::tools {

// One output of this process. Text waits in memory until the reader takes it,
// so a pager that stands still never holds up the runner. On a terminal one
// further text can stand below the lines, and is replaced in place.
class Sink {
 public:
  // Descriptor 1 or 2. Does not own it.
  Sink(int fd, bool terminal, int columns);

  void Append(absl::string_view text);
  // The text that stands below the lines; empty for none. Cut to the width.
  void SetStanding(std::string text);
  // Writes as much as the reader takes now.
  void Flush();

  bool Waiting() const { return !gone_ && !queue_.empty(); }
  // More waits than should; lines should be held back.
  bool Congested() const;
  // The reader is gone, so nothing can be shown any more.
  bool gone() const { return gone_; }
  bool terminal() const { return terminal_; }
  int columns() const { return columns_; }
  int fd() const { return own_fd_.open() ? own_fd_.get() : fd_; }

 private:
  void Erase();

  const int fd_;
  const bool terminal_;
  const int columns_;
  // The same file without blocking, where it can be opened anew.
  launch::UniqueFd own_fd_;
  std::string queue_;
  std::string standing_;
  bool standing_shown_ = false;
  size_t dropped_lines_ = 0;
  bool gone_ = false;
};

// What the user sees: the workers' lines, each with its rank, and the runner's
// own words, in the way of Cargo. Colour where the options or the terminal have
// it. Not thread-safe.
class Console {
 public:
  struct Options {
    ColorMode color = ColorMode::kAuto;
    bool timestamps = false;
    ConsoleRanks ranks;
    OutputFormat format = OutputFormat::kHuman;
  };

  Console(const Options& options, const launch::Env& env);

  enum class Mood { kGood, kWarning, kBad };
  // "     Running 2 workers", on stderr.
  void Say(absl::string_view verb, absl::string_view text,
           Mood mood = Mood::kGood);
  // "error: …" and "warning: …", on stderr. Further lines of the message that
  // begin with "help:" stand out too.
  void Error(absl::string_view message);
  void Warning(absl::string_view message);
  // A line as it is, on stderr.
  void Line(absl::string_view text);
  // What the four above have said since the last call, without colours.
  std::string TakeSaid();

  // A line of event_log.h, on stdout; only in the JSON format.
  void Event(absl::string_view line);

  // What a worker wrote; nothing where its rank is not shown. In the JSON
  // format each line is an event "output" with its rank, stream and text.
  void Output(int rank, launch::Stream stream, absl::string_view bytes);
  void OutputEnded(int rank, launch::Stream stream);
  bool Takes(int rank, launch::Stream stream) const;
  bool Shows(int rank) const { return options_.ranks.Shows(rank); }

  // Width that a worker's lines have, behind the prefix; 0 where no terminal
  // shows them.
  int WorkerColumns(int rank, launch::Stream stream) const;
  bool StderrIsTerminal() const { return err_->terminal(); }

  void AddPollFds(std::vector<pollfd>* fds) const;
  void Flush();
  // Waits until all is read or the reader is gone.
  void Finish();
  // Whether stdout's reader went away.
  bool OutputGone() const { return out_->gone(); }

 private:
  using Source = std::pair<int, launch::Stream>;

  void Message(absl::string_view label, absl::string_view color,
               absl::string_view message);
  std::string Prefix(const Source& source) const;
  std::string Colored(absl::string_view text, absl::string_view color,
                      const Sink& sink) const;
  Sink& SinkOf(launch::Stream stream) const;
  launch::LineSplitter::Sink LinesOf(const Source& source);

  const Options options_;
  bool color_allowed_;
  std::string said_;
  std::shared_ptr<Sink> out_;
  std::shared_ptr<Sink> err_;  // The same where both are one file.
  std::map<Source, launch::LineSplitter> splitters_;
  Source standing_source_ = {-1, launch::Stream::kStdout};
};

// `text` without escape sequences.
std::string WithoutColors(absl::string_view text);

// The first `columns` columns of `text`; escape sequences take none, and bytes
// of one UTF-8 character count once.
std::string CutToColumns(absl::string_view text, int columns);

}  // namespace mir::tools

#endif  // MIR_TOOLS_TRAIN_CONSOLE_H_
