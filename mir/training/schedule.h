#ifndef MIR_TRAINING_SCHEDULE_H_
#define MIR_TRAINING_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace mir::training {

// How the learning rate goes over a run, by name.
//
//   constant  rate
//   poly      rate (1 - step / steps)^0.9, as in MIR's training programs, which
//             change it once an epoch (Liu et al., "ParseNet", 2015)
//   cosine    rate (1 + cos(pi step / steps)) / 2 (Loshchilov and Hutter,
//             "SGDR", 2017)
std::vector<std::string> ScheduleNames();

// The rate of `step`, which counts from 0, of `steps`; it is above 0 for each.
// A function of its arguments alone, so that a resumed run goes on with it.
double LearningRateAt(const std::string& schedule, double rate, int64_t step,
                      int64_t steps);

}  // namespace mir::training

#endif  // MIR_TRAINING_SCHEDULE_H_
