#ifndef MIR_TRAINING_PROGRESS_H_
#define MIR_TRAINING_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace mir::training {

// How a run shows its progress: on a terminal one bar that is redrawn in place,
// elsewhere a plain line now and then.
//
//   Training [=====>      ] 120/200  loss -0.4312  2.1 steps/s  0:38 left
//
// Not thread-safe.
class Progress {
 public:
  struct Options {
    int64_t first_step = 0;  // Already done when this process began.
    int64_t steps = 0;       // Of the whole run.
    bool terminal = false;
    int width = 80;  // Columns of the terminal.
    absl::Duration between_lines = absl::Seconds(10);  // Off a terminal.
  };

  // `stream` must outlive the object.
  Progress(const Options& options, std::FILE* stream);

  // Where a resumed run begins and where it ends, if the options did not say.
  void SetSteps(int64_t first_step, int64_t steps);

  // Shows that `step` steps are done.
  void Show(int64_t step, double loss, absl::Time now);

  // Writes a line of its own, above the bar.
  void Say(absl::string_view line);

  // Leaves the terminal on a fresh line.
  void Finish();

 private:
  void Clear();

  Options options_;
  std::FILE* const stream_;
  absl::Time began_ = absl::InfinitePast();
  absl::Time last_line_ = absl::InfinitePast();
  bool bar_shown_ = false;
};

// The text of a bar or a line; `rate` in steps per second, 0 where unknown.
std::string ProgressBar(int64_t step, int64_t steps, double loss, double rate,
                        int width);
std::string ProgressLine(int64_t step, int64_t steps, double loss, double rate);

}  // namespace mir::training

#endif  // MIR_TRAINING_PROGRESS_H_
