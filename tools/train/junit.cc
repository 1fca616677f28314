#include "tools/train/junit.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mir::tools {
namespace {

// `bytes` with U+FFFD for what is no UTF-8.
std::string Utf8(const std::string& bytes) {
  return nlohmann::json::parse(nlohmann::json(bytes).dump(
                                   /*indent=*/-1, ' ', /*ensure_ascii=*/false,
                                   nlohmann::json::error_handler_t::replace))
      .get<std::string>();
}

// As the text or the quoted attribute of an element.
std::string Escaped(const std::string& bytes) {
  std::string escaped;
  for (const char c : Utf8(bytes)) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') {
      escaped += '?';
    } else {
      escaped += c;
    }
  }
  return escaped;
}

int64_t Count(const std::vector<JunitCase>& cases, JunitCase::Result result) {
  return std::count_if(
      cases.begin(), cases.end(),
      [result](const JunitCase& one) { return one.result == result; });
}

// What stands in a case that did not pass.
std::string Finding(const JunitCase& one) {
  const std::string message = Escaped(one.message);
  switch (one.result) {
    case JunitCase::Result::kPassed:
      return "";
    case JunitCase::Result::kSkipped:
      return absl::StrCat("<skipped message=\"", message, "\"/>");
    case JunitCase::Result::kFailed:
    case JunitCase::Result::kError:
      break;
  }
  const absl::string_view element =
      one.result == JunitCase::Result::kFailed ? "failure" : "error";
  return absl::StrCat("<", element, " message=\"", message, "\">",
                      Escaped(one.output), "</", element, ">");
}

}  // namespace

std::string JunitReport(absl::string_view suite,
                        const std::vector<JunitCase>& cases) {
  const std::string name = Escaped(std::string(suite));
  double seconds = 0;
  for (const JunitCase& one : cases) seconds = std::max(seconds, one.seconds);
  std::string report = absl::StrFormat(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
      "  <testsuite name=\"%s\" tests=\"%d\" failures=\"%d\" errors=\"%d\" "
      "skipped=\"%d\" time=\"%.3f\">\n",
      name, cases.size(), Count(cases, JunitCase::Result::kFailed),
      Count(cases, JunitCase::Result::kError),
      Count(cases, JunitCase::Result::kSkipped), seconds);
  for (const JunitCase& one : cases) {
    absl::StrAppendFormat(
        &report,
        "    <testcase classname=\"%s\" name=\"%s\" time=\"%.3f\">%s"
        "</testcase>\n",
        name, Escaped(one.name), one.seconds, Finding(one));
  }
  return report + "  </testsuite>\n</testsuites>\n";
}

absl::Status WriteJunitReport(const std::string& path, absl::string_view suite,
                              const std::vector<JunitCase>& cases) {
  std::ofstream file(path, std::ios::binary);
  file << JunitReport(suite, cases);
  file.close();
  if (file) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot write the report ", path, ": ", std::strerror(errno),
                   "\nhelp: --junit names a file in a folder that is there"));
}

}  // namespace mir::tools
