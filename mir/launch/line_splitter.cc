#include "mir/launch/line_splitter.h"

#include <algorithm>
#include <utility>

namespace mir::launch {

void LineSplitter::Add(absl::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    if (std::exchange(after_carriage_return_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      sink(std::exchange(replaceable_, ""), End::kNewline);
      continue;
    }
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    const size_t taken = std::min(end, longest_ - text_.size());
    text_.append(bytes.data(), taken);
    bytes.remove_prefix(taken);
    if (taken < end) {
      sink(text_, End::kTooLong);
      text_.clear();
      continue;
    }
    if (!text_.empty()) replaceable_.clear();
    if (bytes.empty()) return;
    const char ending = bytes.front();
    bytes.remove_prefix(1);
    if (ending == '\n' || (!bytes.empty() && bytes.front() == '\n')) {
      if (ending == '\r') bytes.remove_prefix(1);
      sink(text_, End::kNewline);
      replaceable_.clear();
      text_.clear();
      continue;
    }
    after_carriage_return_ = true;
    if (text_.empty()) continue;
    sink(text_, End::kCarriageReturn);
    replaceable_ = std::exchange(text_, "");
  }
}

void LineSplitter::Finish(const Sink& sink) {
  const std::string left = text_.empty() ? std::exchange(replaceable_, "")
                                         : std::exchange(text_, "");
  if (!left.empty()) sink(left, End::kEndOfStream);
  after_carriage_return_ = false;
}

absl::string_view LineSplitter::Pending() const {
  return text_.empty() ? replaceable_ : text_;
}

}  // namespace mir::launch
