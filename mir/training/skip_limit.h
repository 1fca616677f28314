#ifndef MIR_TRAINING_SKIP_LIMIT_H_
#define MIR_TRAINING_SKIP_LIMIT_H_

#include <cstdint>

namespace mir::training {

// Says when a run whose losses or gradients are not finite has to stop.
//
// Without a gradient scaler so many steps may be skipped in the whole run as
// the user allowed. An active scaler skips steps until its scale is low enough;
// 32 more than that in a row, a scale 2^-32 of what it was, show that no scale
// will do.
class SkipLimit {
 public:
  static constexpr int64_t kSkipsInARow = 32;

  explicit SkipLimit(int64_t allowed) : allowed_(allowed) {}

  // Takes note of a step: whether its loss and gradients were finite, whether
  // the weights moved, and whether a scaler is active. True: stop.
  bool Exceeded(bool finite, bool updated, bool scaler_active) {
    if (!scaler_active) return !finite && ++skipped_ > allowed_;
    in_a_row_ = finite && updated ? 0 : in_a_row_ + 1;
    return in_a_row_ > allowed_ + kSkipsInARow;
  }

 private:
  const int64_t allowed_;
  int64_t skipped_ = 0;
  int64_t in_a_row_ = 0;
};

}  // namespace mir::training

#endif  // MIR_TRAINING_SKIP_LIMIT_H_
