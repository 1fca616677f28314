#include "tools/train/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace mir::tools {

std::string EventLine(absl::string_view event, const nlohmann::json& fields) {
  nlohmann::ordered_json json = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(),
                                absl::UTCTimeZone())},
      {"event", std::string(event)}};
  for (const auto& [name, value] : fields.items()) json[name] = value;
  return json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false,
                   nlohmann::json::error_handler_t::replace) +
         "\n";
}

EventLog::EventLog(const std::string& path,
                   std::function<void(absl::string_view line)> listener)
    : file_(
          open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)),
      listener_(std::move(listener)) {
  if (!file_.open()) fault_ = std::strerror(errno);
}

void EventLog::Add(absl::string_view event, const nlohmann::json& fields) {
  if (!file_.open() && listener_ == nullptr) return;
  const std::string line = EventLine(event, fields);
  if (listener_ != nullptr) listener_(line);
  // One write, so that lines of two runners in one folder do not mix.
  if (file_.open() && write(file_.get(), line.data(), line.size()) < 0 &&
      fault_.empty()) {
    fault_ = std::strerror(errno);
  }
}

void EventLog::Enter(absl::string_view state) {
  if (state == state_) return;
  state_ = std::string(state);
  Add("state", {{"state", state_}});
}

}  // namespace mir::tools
