#include "mir/training/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mir::training {
namespace {

std::string Clock(double seconds) {
  const int64_t whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) {
    return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60,
                           whole % 60);
  }
  return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
}

std::string Rate(double rate) {
  return rate >= 1 ? absl::StrFormat("%.1f steps/s", rate)
                   : absl::StrFormat("%.1f s/step", 1 / rate);
}

std::string Tail(int64_t step, int64_t steps, double loss, double rate) {
  std::string tail = absl::StrFormat("%d/%d  loss %.4f", step, steps, loss);
  if (rate > 0) {
    absl::StrAppend(&tail, "  ", Rate(rate), "  ", Clock((steps - step) / rate),
                    " left");
  }
  return tail;
}

}  // namespace

std::string ProgressBar(int64_t step, int64_t steps, double loss, double rate,
                        int width) {
  const std::string tail = Tail(step, steps, loss, rate);
  // Verbs end at column 12, as Cargo's do.
  const std::string head = "    Training [";
  const int room = width - 1 - static_cast<int>(head.size() + 2 + tail.size());
  if (room < 8) return absl::StrCat("    Training ", tail);
  const int cells = std::min(room, 30);
  const int done = steps == 0 ? cells : static_cast<int>(step * cells / steps);
  std::string bar(cells, ' ');
  std::fill_n(bar.begin(), done, '=');
  if (done < cells) bar[done] = '>';
  return absl::StrCat(head, bar, "] ", tail);
}

std::string ProgressLine(int64_t step, int64_t steps, double loss,
                         double rate) {
  return absl::StrCat("    Training ", Tail(step, steps, loss, rate));
}

Progress::Progress(const Options& options, std::FILE* stream)
    : options_(options), stream_(stream) {}

void Progress::SetSteps(int64_t first_step, int64_t steps) {
  options_.first_step = first_step;
  options_.steps = steps;
}

void Progress::Show(int64_t step, double loss, absl::Time now) {
  if (began_ == absl::InfinitePast()) {
    // The first step warms up; the rate counts from its end.
    began_ = now;
  }
  const double seconds = absl::ToDoubleSeconds(now - began_);
  const double rate =
      seconds > 0 ? (step - options_.first_step - 1) / seconds : 0;
  if (options_.terminal) {
    Clear();
    std::fputs(
        ProgressBar(step, options_.steps, loss, rate, options_.width).c_str(),
        stream_);
    std::fflush(stream_);
    bar_shown_ = true;
    return;
  }
  if (now - last_line_ < options_.between_lines && step != options_.steps) {
    return;
  }
  last_line_ = now;
  Say(ProgressLine(step, options_.steps, loss, rate));
}

void Progress::Say(absl::string_view line) {
  Clear();
  std::fwrite(line.data(), 1, line.size(), stream_);
  std::fputc('\n', stream_);
  std::fflush(stream_);
}

void Progress::Finish() {
  if (bar_shown_) std::fputc('\n', stream_);
  bar_shown_ = false;
  std::fflush(stream_);
}

void Progress::Clear() {
  if (bar_shown_) std::fputs("\r\033[K", stream_);
  bar_shown_ = false;
}

}  // namespace mir::training
