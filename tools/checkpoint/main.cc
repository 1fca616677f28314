// //tools:checkpoint: looks into checkpoints, compares and converts them.

#include <algorithm>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "mir/base/command_line.h"
#include "mir/base/exit_status.h"
#include "mir/base/nearest.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/read_options.h"
#include "mir/checkpoint/value.h"
#include "mir/launch/exit_codes.h"
#include "tools/checkpoint/check.h"
#include "tools/checkpoint/convert.h"
#include "tools/checkpoint/diff.h"
#include "tools/checkpoint/inspect.h"
#include "tools/checkpoint/weights_file.h"
#include "tools/command/run_command.h"

ABSL_FLAG(bool, json, false, "Print the result as JSON.");
ABSL_FLAG(bool, strip_prefix, false,
          "Remove `module.` and `_orig_mod.`, which wrappers put before names "
          "(diff, convert; check always does).");
ABSL_FLAG(bool, check_crc, true,
          "Refuse a file whose checksums are wrong; --no-check-crc reads it.");
ABSL_FLAG(bool, keep_unknown, false,
          "Keep what is of a class that is not known instead of refusing the "
          "file (inspect, diff, check). Nothing of it is run in either case.");
ABSL_FLAG(std::string, dtype, "",
          "What floating weights become: float16, bfloat16, float32 or float64 "
          "(convert).");
ABSL_FLAG(bool, for_mir, false,
          "Add the sampling grids that MIR's strict loading wants (convert).");
ABSL_FLAG(std::string, model, "",
          "Which model the weights are for (check, convert --for-mir); what "
          "the file says, unless told.");
ABSL_FLAG(std::string, config, "",
          "Its configuration: a name, or a .json file; what the file says, "
          "else `default`.");
ABSL_FLAG(std::string, set, "",
          "Changes to the configuration: KEY=VALUE[;KEY=VALUE...].");

namespace mir::tools {
namespace {

constexpr char kUsage[] =
    "Usage: checkpoint inspect FILE [options]\n"
    "       checkpoint diff FILE FILE [options]\n"
    "       checkpoint convert FILE OUT [options]\n"
    "       checkpoint check FILE --model NAME [--config NAME] [options]\n\n"
    "Looks into checkpoints (.pth, .pt, .pth.tar, .safetensors): what one "
    "holds, how two\ndiffer, in another format or dtype, and whether it fits "
    "a model. Nothing in a file\nis executed. diff ends with 1 where the files "
    "differ, check with 12 where the\nweights do not fit.";

using Arguments = std::vector<std::string>;

checkpoint::ReadOptions Options() {
  checkpoint::ReadOptions options;
  options.check_crc = absl::GetFlag(FLAGS_check_crc);
  options.keep_unknown_classes = absl::GetFlag(FLAGS_keep_unknown);
  return options;
}

void Print(const Report& report, const std::string& text) {
  std::cout << (absl::GetFlag(FLAGS_json)
                    ? report.dump(2, ' ', /*ensure_ascii=*/false,
                                  Report::error_handler_t::replace) +
                          "\n"
                    : text)
            << std::flush;
}

ModelChoice Choice() {
  ModelChoice choice;
  choice.model = absl::GetFlag(FLAGS_model);
  choice.configuration = absl::GetFlag(FLAGS_config);
  choice.changes =
      absl::StrSplit(absl::GetFlag(FLAGS_set), ';', absl::SkipEmpty());
  return choice;
}

absl::Status RunInspect(const Arguments& files) {
  MIR_ASSIGN_OR_RETURN(const Report report, Inspect(files[0], Options()));
  Print(report, InspectText(report));
  return absl::OkStatus();
}

absl::Status RunDiff(const Arguments& files) {
  const bool strip = absl::GetFlag(FLAGS_strip_prefix);
  MIR_ASSIGN_OR_RETURN(const WeightsFile a,
                       OpenWeights(files[0], Options(), strip));
  MIR_ASSIGN_OR_RETURN(const WeightsFile b,
                       OpenWeights(files[1], Options(), strip));
  MIR_ASSIGN_OR_RETURN(const Report report, Diff(a, b));
  Print(report, DiffText(report));
  if (report["same"].get<bool>()) return absl::OkStatus();
  return WithExitCode(absl::FailedPreconditionError(
                          absl::StrCat(files[0], " and ", files[1], " differ")),
                      launch::kOther);
}

absl::Status RunConvert(const Arguments& files) {
  ConvertOptions options;
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  if (!dtype.empty()) {
    const std::vector<std::string> names = {"float16", "bfloat16", "float32",
                                            "float64"};
    if (std::find(names.begin(), names.end(), dtype) == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--dtype ", dtype, " is none of ",
                       absl::StrJoin(names, ", "), DidYouMean(dtype, names)));
    }
    options.dtype = checkpoint::DtypeFromName(dtype);
  }
  MIR_ASSIGN_OR_RETURN(
      const WeightsFile file,
      OpenWeights(files[0], Options(), absl::GetFlag(FLAGS_strip_prefix)));
  ChosenModel chosen;
  if (absl::GetFlag(FLAGS_for_mir)) {
    MIR_ASSIGN_OR_RETURN(chosen, BuildChosen(Choice(), file));
    options.for_mir = chosen.model.get();
    const Report check = Check(file, chosen);
    if (!check["fits"].get<bool>()) {
      return AtFile(file.path, absl::InvalidArgumentError(CheckVerdict(check)));
    }
  }
  MIR_ASSIGN_OR_RETURN(const Report report, Convert(file, files[1], options));
  for (const Report& warning : report["warnings"]) {
    std::cerr << "warning: " << files[0] << ": " << warning.get<std::string>()
              << std::endl;
  }
  if (absl::GetFlag(FLAGS_json)) {
    Print(report, "");
  } else {
    Say("Converted", ConvertText(report));
  }
  return absl::OkStatus();
}

absl::Status RunCheck(const Arguments& files) {
  checkpoint::ReadOptions options = Options();
  options.device = c10::kMeta;  // Names and shapes are enough.
  MIR_ASSIGN_OR_RETURN(const WeightsFile file,
                       OpenWeights(files[0], options, /*strip_prefix=*/true));
  MIR_ASSIGN_OR_RETURN(const ChosenModel chosen, BuildChosen(Choice(), file));
  const Report report = Check(file, chosen);
  const std::string verdict = CheckVerdict(report);
  const bool fits = report["fits"].get<bool>();
  Print(report, CheckText(report) +
                    (fits ? absl::StrCat(files[0], " ", verdict, "\n") : ""));
  if (fits) return absl::OkStatus();
  return WithExitCode(
      absl::InvalidArgumentError(absl::StrCat(files[0], " ", verdict)),
      launch::kCheckpoint);
}

struct Command {
  const char* name;
  size_t files;
  std::set<std::string> flags;  // Those that mean something to it.
  absl::Status (*run)(const Arguments&);
};

const std::vector<Command>& Commands() {
  static const auto* const commands = new std::vector<Command>{
      {"inspect", 1, {"json", "check_crc", "keep_unknown"}, RunInspect},
      {"diff",
       2,
       {"json", "check_crc", "keep_unknown", "strip_prefix"},
       RunDiff},
      {"convert",
       2,
       {"json", "check_crc", "strip_prefix", "dtype", "for_mir", "model",
        "config", "set"},
       RunConvert},
      {"check",
       1,
       {"json", "check_crc", "keep_unknown", "model", "config", "set"},
       RunCheck},
  };
  return *commands;
}

absl::Status Run(const CommandLine& line) {
  std::vector<std::string> names;
  for (const Command& command : Commands()) names.push_back(command.name);
  if (line.arguments.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "wanted a command: ", absl::StrJoin(names, ", "), " (--help)"));
  }
  const std::string& name = line.arguments[0];
  const auto command =
      std::find_if(Commands().begin(), Commands().end(),
                   [&](const Command& known) { return name == known.name; });
  if (command == Commands().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", name, "' is no command; there are ",
                     absl::StrJoin(names, ", "), DidYouMean(name, names)));
  }
  const Arguments files(line.arguments.begin() + 1, line.arguments.end());
  if (files.size() != command->files) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " wants ", command->files == 1 ? "one file" : "two files",
        ", got ", files.size(), " (--help shows its use)"));
  }
  for (const std::string& flag : line.given) {
    if (command->flags.count(flag) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", absl::StrReplaceAll(flag, {{"_", "-"}}),
                       " means nothing to ", name, " (--help)"));
    }
  }
  const bool chooses = absl::GetFlag(FLAGS_for_mir) || name == "check";
  if (!chooses &&
      (line.given.count("model") > 0 || line.given.count("config") > 0 ||
       line.given.count("set") > 0)) {
    return absl::InvalidArgumentError(
        "--model, --config and --set go with convert --for-mir");
  }
  return command->run(files);
}

}  // namespace
}  // namespace mir::tools

int main(int argc, char** argv) {
  return mir::tools::RunCommandWithArguments(argc, argv, mir::tools::kUsage,
                                             mir::tools::Run);
}
