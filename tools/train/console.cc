#include "tools/train/console.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "mir/launch/terminal.h"
#include "tools/train/event_log.h"

namespace mir::tools {
namespace {

using launch::LineSplitter;
using launch::Stream;

constexpr size_t kCongestedBytes = 1 << 20;
constexpr size_t kMostBytes = 4 << 20;
// Writes of this size do not block where poll says that one byte would not.
constexpr size_t kPieceBytes = 4096;

constexpr absl::string_view kGreen = "\033[1;32m";
constexpr absl::string_view kYellow = "\033[1;33m";
constexpr absl::string_view kRed = "\033[1;31m";
constexpr absl::string_view kCyan = "\033[36m";
constexpr absl::string_view kDimRed = "\033[2;31m";
constexpr absl::string_view kPlain = "\033[0m";
constexpr absl::string_view kEraseLine = "\r\033[K";

bool SameFile(int a, int b) {
  struct stat file_a;
  struct stat file_b;
  return fstat(a, &file_a) == 0 && fstat(b, &file_b) == 0 &&
         file_a.st_dev == file_b.st_dev && file_a.st_ino == file_b.st_ino;
}

bool Allowed(ColorMode mode, const launch::Env& env) {
  switch (mode) {
    case ColorMode::kAlways:
      return true;
    case ColorMode::kNever:
      return false;
    case ColorMode::kAuto:
      return !launch::Has(env, "NO_COLOR") &&
             launch::Get(env, "TERM") != "dumb";
  }
  return false;
}

}  // namespace

std::string WithoutColors(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != 0x1b) {
      plain.push_back(text[i]);
      continue;
    }
    while (i < text.size() && !absl::ascii_isalpha(text[i])) ++i;
  }
  return plain;
}

std::string CutToColumns(absl::string_view text, int columns) {
  std::string cut;
  int used = 0;
  bool escape = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = text[i];
    if (c == 0x1b && i + 1 < text.size() && text[i + 1] == '[') {
      escape = true;
      cut.push_back(c);
      cut.push_back('[');
      ++i;
      continue;
    }
    if (escape) {
      escape = !(c >= 0x40 && c <= 0x7e);
    } else if (c >= 0x20 && (c & 0xc0) != 0x80) {
      if (used == columns) break;
      ++used;
    }
    cut.push_back(c);
  }
  return cut;
}

Sink::Sink(int fd, bool terminal, int columns)
    : fd_(fd), terminal_(terminal), columns_(columns) {
  struct stat file;
  if (fstat(fd, &file) == 0 &&
      (S_ISFIFO(file.st_mode) || S_ISCHR(file.st_mode))) {
    // O_NONBLOCK on `fd` itself would be seen by all who share it.
    own_fd_ =
        launch::UniqueFd(open(absl::StrCat("/proc/self/fd/", fd).c_str(),
                              O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  }
}

bool Sink::Congested() const { return queue_.size() > kCongestedBytes; }

void Sink::Erase() {
  if (standing_shown_) queue_.append(kEraseLine.data(), kEraseLine.size());
  standing_shown_ = false;
}

void Sink::Append(absl::string_view text) {
  if (gone_) return;
  if (queue_.size() > kMostBytes) {
    ++dropped_lines_;
    return;
  }
  Erase();
  if (dropped_lines_ > 0) {
    absl::StrAppend(&queue_, "(", dropped_lines_,
                    " lines left out here; the logs have them)\n");
    dropped_lines_ = 0;
  }
  queue_.append(text.data(), text.size());
}

void Sink::SetStanding(std::string text) {
  if (!terminal_ || gone_ || text == standing_) return;
  Erase();
  standing_ = std::move(text);
}

void Sink::Flush() {
  while (!gone_) {
    if (queue_.empty() && !standing_.empty() && !standing_shown_) {
      queue_ = CutToColumns(standing_, columns_ - 1);
      standing_shown_ = true;
    }
    if (queue_.empty()) return;
    pollfd ready = {fd(), POLLOUT, 0};
    if (!own_fd_.open() && poll(&ready, 1, 0) == 0) return;
    const ssize_t written =
        write(fd(), queue_.data(), std::min(queue_.size(), kPieceBytes));
    if (written > 0) {
      queue_.erase(0, written);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      gone_ = true;
      queue_.clear();
    }
  }
}

Console::Console(const Options& options, const launch::Env& env)
    : options_(options), color_allowed_(Allowed(options.color, env)) {
  const launch::Terminal out = launch::TerminalOf(STDOUT_FILENO, env);
  const launch::Terminal err = launch::TerminalOf(STDERR_FILENO, env);
  out_ = std::make_shared<Sink>(STDOUT_FILENO, out.is_terminal, out.columns);
  err_ =
      SameFile(STDOUT_FILENO, STDERR_FILENO)
          ? out_
          : std::make_shared<Sink>(STDERR_FILENO, err.is_terminal, err.columns);
}

Sink& Console::SinkOf(Stream stream) const {
  return stream == Stream::kStdout ? *out_ : *err_;
}

std::string Console::Colored(absl::string_view text, absl::string_view color,
                             const Sink& sink) const {
  if (!color_allowed_ ||
      (options_.color == ColorMode::kAuto && !sink.terminal())) {
    return std::string(text);
  }
  return absl::StrCat(color, text, kPlain);
}

std::string Console::TakeSaid() { return std::exchange(said_, ""); }

void Console::Line(absl::string_view text) {
  absl::StrAppend(&said_, WithoutColors(text), "\n");
  err_->Append(absl::StrCat(text, "\n"));
}

void Console::Say(absl::string_view verb, absl::string_view text, Mood mood) {
  constexpr size_t kVerbColumns = 12;
  const absl::string_view color = mood == Mood::kGood      ? kGreen
                                  : mood == Mood::kWarning ? kYellow
                                                           : kRed;
  Line(absl::StrCat(
      std::string(kVerbColumns - std::min(kVerbColumns, verb.size()), ' '),
      Colored(verb, color, *err_), " ", text));
}

void Console::Message(absl::string_view label, absl::string_view color,
                      absl::string_view message) {
  std::vector<std::string> lines =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(message), '\n');
  Line(absl::StrCat(Colored(label, color, *err_), " ", lines.front()));
  for (size_t i = 1; i < lines.size(); ++i) {
    constexpr absl::string_view kHelp = "help:";
    Line(absl::StartsWith(lines[i], kHelp)
             ? absl::StrCat(Colored(kHelp, kCyan, *err_),
                            lines[i].substr(kHelp.size()))
             : lines[i]);
  }
}

void Console::Event(absl::string_view line) {
  if (options_.format == OutputFormat::kJson) out_->Append(line);
}

void Console::Error(absl::string_view message) {
  Message("error:", kRed, message);
}

void Console::Warning(absl::string_view message) {
  Message("warning:", kYellow, message);
}

std::string Console::Prefix(const Source& source) const {
  const auto& [rank, stream] = source;
  std::string prefix;
  if (options_.timestamps) {
    prefix =
        absl::FormatTime("%H:%M:%E3S ", absl::Now(), absl::LocalTimeZone());
  }
  absl::StrAppend(
      &prefix,
      Colored(absl::StrCat("[r", rank, "]"),
              stream == Stream::kStdout ? kCyan : kDimRed, SinkOf(stream)),
      " ");
  return prefix;
}

LineSplitter::Sink Console::LinesOf(const Source& source) {
  return [this, source](absl::string_view text, LineSplitter::End end) {
    // Where nothing can be replaced, what is to be replaced is not shown.
    if (end == LineSplitter::End::kCarriageReturn) return;
    if (options_.format == OutputFormat::kJson) {
      const auto& [rank, stream] = source;
      Event(EventLine(
          "output",
          {{"rank", rank},
           {"stream", stream == Stream::kStdout ? "stdout" : "stderr"},
           {"text", WithoutColors(text)}}));
      return;
    }
    SinkOf(source.second).Append(absl::StrCat(Prefix(source), text, "\n"));
  };
}

void Console::Output(int rank, Stream stream, absl::string_view bytes) {
  if (!Shows(rank)) return;
  const Source source = {rank, stream};
  LineSplitter& splitter = splitters_[source];
  splitter.Add(bytes, LinesOf(source));
  Sink& sink = SinkOf(stream);
  if (!sink.terminal() || options_.format == OutputFormat::kJson) return;
  const absl::string_view pending = splitter.Pending();
  if (!pending.empty()) {
    sink.SetStanding(absl::StrCat(Prefix(source), pending));
    standing_source_ = source;
  } else if (source == standing_source_) {
    sink.SetStanding("");
  }
}

void Console::OutputEnded(int rank, Stream stream) {
  const Source source = {rank, stream};
  const auto splitter = splitters_.find(source);
  if (splitter == splitters_.end()) return;
  splitter->second.Finish(LinesOf(source));
  splitters_.erase(splitter);
  if (source == standing_source_) SinkOf(stream).SetStanding("");
}

bool Console::Takes(int rank, Stream stream) const {
  return !Shows(rank) || !SinkOf(stream).Congested();
}

int Console::WorkerColumns(int rank, Stream stream) const {
  const Sink& sink = SinkOf(stream);
  if (!Shows(rank) || !sink.terminal() ||
      options_.format == OutputFormat::kJson) {
    return 0;
  }
  const int prefix = (options_.timestamps ? 13 : 0) +
                     static_cast<int>(absl::StrCat("[r", rank, "] ").size());
  return std::max(sink.columns() - prefix, 1);
}

void Console::AddPollFds(std::vector<pollfd>* fds) const {
  for (const auto& sink : {out_, err_}) {
    if (sink->Waiting()) fds->push_back({sink->fd(), POLLOUT, 0});
  }
}

void Console::Flush() {
  out_->Flush();
  err_->Flush();
}

void Console::Finish() {
  while (true) {
    Flush();
    std::vector<pollfd> fds;
    AddPollFds(&fds);
    if (fds.empty()) return;
    poll(fds.data(), fds.size(), /*timeout=*/-1);
  }
}

}  // namespace mir::tools
