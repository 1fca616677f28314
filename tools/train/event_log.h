#ifndef MIR_TOOLS_TRAIN_EVENT_LOG_H_
#define MIR_TOOLS_TRAIN_EVENT_LOG_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/string_view.h"
#include "mir/launch/spawn.h"

namespace mir::tools {

// An event now, with `fields` (an object), as a line that ends with \n. Bytes
// that are no UTF-8 become U+FFFD.
std::string EventLine(absl::string_view event, const nlohmann::json& fields);

// What happened in a run, for programs: one JSON object per line of a file that
// further starts of the run append to.
//
//   {"time":"2026-01-02T03:04:05.678Z","event":"started","rank":0,"pid":12}
//
// The runner passes through the states
//
//   spawn → rendezvous → running → drain | fail | hang → reap → restart | done
//
// of which each is an event "state". A file that cannot be written is no
// reason to stop: it is told once by `fault`.
class EventLog {
 public:
  EventLog() = default;  // Writes nowhere.
  // `listener` hears each line too, even where the file cannot be written.
  explicit EventLog(const std::string& path,
                    std::function<void(absl::string_view line)> listener = {});

  // Adds `fields` (an object) as an event of that name.
  void Add(absl::string_view event,
           const nlohmann::json& fields = nlohmann::json::object());
  // The state that is entered, unless it is the present one.
  void Enter(absl::string_view state);

  // Why it cannot be written; empty where it can.
  const std::string& fault() const { return fault_; }

 private:
  launch::UniqueFd file_;
  std::function<void(absl::string_view line)> listener_;
  std::string state_;
  std::string fault_;
};

}  // namespace mir::tools

#endif  // MIR_TOOLS_TRAIN_EVENT_LOG_H_
