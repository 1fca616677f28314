#include "mir/base/command_line.h"

#include <algorithm>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "mir/base/nearest.h"

namespace mir {
namespace {

// Abseil's own flags (--flagfile, --fromenv, ...) are not the program's.
bool IsOurs(const absl::CommandLineFlag& flag) {
  return !absl::StrContains(flag.Filename(), "absl/flags");
}

std::map<std::string, absl::CommandLineFlag*> OurFlags() {
  std::map<std::string, absl::CommandLineFlag*> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsOurs(*flag)) flags.emplace(std::string(name), flag);
  }
  return flags;
}

std::string Dashed(absl::string_view name) {
  return absl::StrReplaceAll(name, {{"_", "-"}});
}

// The text of a line that is too long, broken at blanks.
std::string Wrapped(absl::string_view text, size_t width,
                    absl::string_view indent) {
  std::string out;
  size_t column = 0;
  for (const absl::string_view word :
       absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column > 0 && column + 1 + word.size() > width) {
      absl::StrAppend(&out, "\n");
      column = 0;
    }
    absl::StrAppend(&out, column == 0 ? indent : " ", word);
    column += word.size() + (column == 0 ? 0 : 1);
  }
  return out;
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc,
                                             const char* const* argv) {
  const std::map<std::string, absl::CommandLineFlag*> flags = OurFlags();
  CommandLine line;
  bool flags_ended = false;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (flags_ended || !absl::StartsWith(argument, "-") || argument == "-") {
      line.arguments.emplace_back(argument);
      continue;
    }
    if (argument == "--") {
      flags_ended = true;
      continue;
    }
    if (argument == "--help" || argument == "-h") {
      line.help = true;
      continue;
    }
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(argument, absl::MaxSplits('=', 1));
    const bool has_value = absl::StrContains(argument, "=");
    const absl::string_view spelled = parts.first;
    std::string name = absl::StrReplaceAll(
        spelled.substr(absl::StartsWith(spelled, "--") ? 2 : 1), {{"-", "_"}});

    auto found = flags.find(name);
    bool negated = false;
    if (found == flags.end() && absl::StartsWith(name, "no")) {
      const size_t prefix = absl::StartsWith(name, "no_") ? 3 : 2;
      found = flags.find(name.substr(prefix));
      negated = found != flags.end();
    }
    if (found == flags.end()) {
      std::vector<std::string> names;
      for (const auto& [known, flag] : flags) {
        names.push_back(absl::StrCat("--", Dashed(known)));
      }
      return absl::InvalidArgumentError(
          absl::StrCat("unknown option ", spelled,
                       DidYouMean(absl::StrCat("--", Dashed(name)), names),
                       " (--help lists all)"));
    }
    absl::CommandLineFlag& flag = *found->second;
    line.given.insert(found->first);
    const bool is_bool = flag.IsOfType<bool>();
    if (negated && (!is_bool || has_value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          spelled,
          " is wrong: only a switch can be turned off, without a value"));
    }

    std::string value;
    if (has_value) {
      value = std::string(parts.second);
    } else if (is_bool) {
      value = negated ? "false" : "true";
    } else if (i + 1 < argc && !absl::StartsWith(argv[i + 1], "--")) {
      value = argv[++i];
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(spelled, " wants a value (", flag.Help(), ")"));
    }
    std::string error;
    if (!flag.ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(
          absl::StrCat(spelled, "=", value, " is wrong; wanted: ", flag.Help(),
                       error.empty() ? "" : absl::StrCat(" (", error, ")")));
    }
  }
  return line;
}

std::map<std::string, std::string> FlagValues() {
  std::map<std::string, std::string> values;
  for (const auto& [name, flag] : OurFlags()) {
    values[name] = flag->CurrentValue();
  }
  return values;
}

absl::Status SetFlagsNotGiven(const std::map<std::string, std::string>& values,
                              const CommandLine& line) {
  const std::map<std::string, absl::CommandLineFlag*> flags = OurFlags();
  for (const auto& [name, value] : values) {
    if (line.given.count(name) > 0) continue;
    const auto found = flags.find(name);
    std::string error;
    if (found == flags.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no option is named --", Dashed(name)));
    }
    if (!found->second->ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", Dashed(name), "=", value, " is wrong: ", error));
    }
  }
  return absl::OkStatus();
}

std::string CommandLineHelp(absl::string_view usage) {
  std::string help = absl::StrCat(usage, "\n\nOptions:\n");
  for (const auto& [name, flag] : OurFlags()) {
    const std::string value = flag->DefaultValue();
    const bool plain = value.empty() || flag->IsOfType<bool>();
    absl::StrAppend(
        &help, "  --", Dashed(name), "\n",
        Wrapped(absl::StrCat(flag->Help(),
                             plain ? "" : absl::StrCat(" Default: ", value)),
                72, "      "),
        "\n");
  }
  absl::StrAppend(&help, "  --help\n      Print this and stop.\n");
  return help;
}

}  // namespace mir
