#include "mir/training/schedule.h"

#include <cmath>

namespace mir::training {
namespace {

constexpr double kPower = 0.9;
const double kPi = std::acos(-1.0);

}  // namespace

std::vector<std::string> ScheduleNames() {
  return {"constant", "poly", "cosine"};
}

double LearningRateAt(const std::string& schedule, double rate, int64_t step,
                      int64_t steps) {
  const double done = static_cast<double>(step) / static_cast<double>(steps);
  if (schedule == "poly") return rate * std::pow(1 - done, kPower);
  if (schedule == "cosine") return rate * (1 + std::cos(kPi * done)) / 2;
  return rate;
}

}  // namespace mir::training
