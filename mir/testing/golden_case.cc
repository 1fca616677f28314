#include "mir/testing/golden_case.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kFactor = 10;
constexpr double kFloor = 1e-6;
constexpr double kUnknownFigure = 1e-5;
constexpr double kGradientCap = 0.05;
constexpr double kTies = 0.001;
constexpr double kMeanVoxels = 0.5;
constexpr double kElementTolerance = 0.1, kElementShare = 0.7;

using Row = std::map<std::string, std::string>;

absl::StatusOr<std::string> ReadText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path.string()));
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::Status Malformed(const fs::path& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", what));
}

// The rows of a tab separated file as column -> text. `columns` must be there.
absl::StatusOr<std::vector<Row>> ReadTable(
    const fs::path& path, const std::vector<std::string>& columns) {
  MIR_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  std::vector<std::string> header;
  std::vector<Row> rows;
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    if (header.empty()) {
      header = fields;
      for (const std::string& column : columns) {
        if (std::find(header.begin(), header.end(), column) == header.end()) {
          return Malformed(path, absl::StrCat("no column '", column, "'"));
        }
      }
      continue;
    }
    if (fields.size() != header.size()) {
      return Malformed(
          path, absl::StrCat("a line with ", fields.size(), " fields, not ",
                             header.size(), ": ", line));
    }
    Row row;
    for (size_t i = 0; i < header.size(); ++i) row[header[i]] = fields[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

// The number in `text`; none for `-` and `nan`.
absl::StatusOr<absl::optional<double>> ParseFigure(const fs::path& path,
                                                   const std::string& text) {
  double value = 0;
  if (text == "-" || text == "nan") return absl::optional<double>();
  if (!absl::SimpleAtod(text, &value)) {
    return Malformed(path, absl::StrCat("not a number: ", text));
  }
  return absl::optional<double>(value);
}

absl::StatusOr<at::ScalarType> ParseDtype(const fs::path& path,
                                          const std::string& text) {
  if (text == "float32") return at::kFloat;
  if (text == "float64") return at::kDouble;
  if (text == "int64") return at::kLong;
  return Malformed(path, absl::StrCat("unknown dtype ", text));
}

absl::StatusOr<std::vector<int64_t>> ParseShape(const fs::path& path,
                                                const std::string& text) {
  std::vector<int64_t> shape;
  if (text == "scalar") return shape;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size)) {
      return Malformed(path, absl::StrCat("not a shape: ", text));
    }
    shape.push_back(size);
  }
  return shape;
}

absl::StatusOr<std::vector<GoldenEntry>> ReadManifest(const fs::path& path) {
  MIR_ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      ReadTable(path, {"name", "dtype", "shape", "action", "kind", "gain"}));
  std::vector<GoldenEntry> entries;
  for (const Row& row : rows) {
    GoldenEntry entry;
    entry.name = row.at("name");
    MIR_ASSIGN_OR_RETURN(entry.dtype, ParseDtype(path, row.at("dtype")));
    MIR_ASSIGN_OR_RETURN(entry.shape, ParseShape(path, row.at("shape")));
    entry.filled = row.at("action") == "filled";
    entry.parameter = row.at("kind") == "parameter";
    MIR_ASSIGN_OR_RETURN(const absl::optional<double> gain,
                         ParseFigure(path, row.at("gain")));
    if (entry.filled && !gain.has_value()) {
      return Malformed(path, absl::StrCat(entry.name,
                                          " is filled, but has no "
                                          "gain"));
    }
    entry.gain = gain.value_or(0);
    entries.push_back(std::move(entry));
  }
  return entries;
}

absl::StatusOr<std::vector<GoldenParameterGradient>> ReadParameterGradients(
    const fs::path& path) {
  MIR_ASSIGN_OR_RETURN(const std::vector<Row> rows,
                       ReadTable(path, {"name", "l2", "max_abs"}));
  std::vector<GoldenParameterGradient> gradients;
  for (const Row& row : rows) {
    GoldenParameterGradient gradient;
    gradient.name = row.at("name");
    gradient.reached = row.at("l2") != "none";
    if (gradient.reached &&
        (!absl::SimpleAtod(row.at("l2"), &gradient.l2) ||
         !absl::SimpleAtod(row.at("max_abs"), &gradient.max_abs))) {
      return Malformed(path,
                       absl::StrCat("not a number: line of ", gradient.name));
    }
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

absl::StatusOr<std::vector<std::pair<std::string, at::Tensor>>> ReadTensors(
    const fs::path& path) {
  MIR_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  const absl::Status status = CatchTorch([&] {
    const c10::IValue value =
        torch::jit::pickle_load(std::vector<char>(text.begin(), text.end()));
    for (const auto& item : value.toGenericDict()) {
      tensors.emplace_back(item.key().toStringRef(), item.value().toTensor());
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return Malformed(path, status.message());
  return tensors;
}

absl::StatusOr<uint64_t> ReadSeed(const fs::path& path) {
  constexpr absl::string_view kLabel = "Seed of this folder: ";
  MIR_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  const size_t start = text.find(std::string(kLabel));
  uint64_t seed = 0;
  if (start == std::string::npos ||
      !absl::SimpleAtoi(
          absl::string_view(text).substr(
              start + kLabel.size(),
              text.find_first_not_of("0123456789", start + kLabel.size()) -
                  (start + kLabel.size())),
          &seed)) {
    return Malformed(path, "does not say \"Seed of this folder: N\"");
  }
  return seed;
}

::testing::AssertionResult Verdict(bool passes, const Difference& difference,
                                   absl::string_view limit) {
  return (passes ? ::testing::AssertionSuccess()
                 : ::testing::AssertionFailure())
         << Describe(difference) << "; " << limit;
}

}  // namespace

at::Tensor GoldenCase::Find(const std::string& key) const {
  for (const auto& [name, tensor] : tensors) {
    if (name == key) return tensor;
  }
  return at::Tensor();
}

std::vector<std::string> GoldenCase::Names(const std::string& prefix) const {
  std::vector<std::string> names;
  for (const auto& [key, tensor] : tensors) {
    if (absl::StartsWith(key, prefix))
      names.push_back(key.substr(prefix.size()));
  }
  return names;
}

absl::StatusOr<GoldenSet> GoldenSet::Open(const std::string& folder) {
  GoldenSet set;
  set.folder_ = folder;
  const fs::path root(folder);
  MIR_ASSIGN_OR_RETURN(set.seed_, ReadSeed(root / "README.md"));

  std::set<std::string> listed;
  MIR_ASSIGN_OR_RETURN(const std::vector<Row> cases,
                       ReadTable(root / "cases.tsv", {"case"}));
  for (const Row& row : cases) listed.insert(row.at("case"));
  MIR_ASSIGN_OR_RETURN(const std::vector<Row> models,
                       ReadTable(root / "models.tsv",
                                 {"id", "parameters", "state_dict_entries"}));
  for (const Row& row : models) {
    const std::string name = absl::StrCat(row.at("id"), "@published");
    GoldenModel& model = set.models_[name];
    if (!absl::SimpleAtoi(row.at("parameters"), &model.parameters) ||
        !absl::SimpleAtoi(row.at("state_dict_entries"), &model.entries)) {
      return Malformed(root / "models.tsv",
                       absl::StrCat("not a number: line of ", row.at("id")));
    }
    listed.insert(name);
  }
  set.listed_.assign(listed.begin(), listed.end());

  const fs::path tolerances = root / "tolerances.tsv";
  MIR_ASSIGN_OR_RETURN(
      const std::vector<Row> figures,
      ReadTable(tolerances, {"case", "tensor", "max_abs", "rel_l2"}));
  for (const Row& row : figures) {
    GoldenFigure& figure = set.figures_[row.at("case")][row.at("tensor")];
    MIR_ASSIGN_OR_RETURN(figure.max_abs,
                         ParseFigure(tolerances, row.at("max_abs")));
    MIR_ASSIGN_OR_RETURN(figure.rel_l2,
                         ParseFigure(tolerances, row.at("rel_l2")));
  }

  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (fs::exists(entry.path() / "case.pt") ||
        fs::exists(entry.path() / "manifest.tsv")) {
      set.present_.push_back(entry.path().filename());
    }
  }
  std::sort(set.present_.begin(), set.present_.end());
  return set;
}

absl::StatusOr<GoldenCase> GoldenSet::Read(const std::string& name) const {
  const fs::path root = fs::path(folder_) / name;
  GoldenCase result;
  result.name = name;
  result.seed = seed_;
  if (!absl::EndsWith(name, "@published")) {
    MIR_ASSIGN_OR_RETURN(result.tensors, ReadTensors(root / "case.pt"));
  }
  if (fs::exists(root / "manifest.tsv")) {
    MIR_ASSIGN_OR_RETURN(result.manifest, ReadManifest(root / "manifest.tsv"));
  }
  if (fs::exists(root / "paramgrad.tsv")) {
    MIR_ASSIGN_OR_RETURN(result.parameter_gradients,
                         ReadParameterGradients(root / "paramgrad.tsv"));
  }
  if (const auto found = figures_.find(name); found != figures_.end()) {
    result.figures = found->second;
  }
  if (const auto found = models_.find(name); found != models_.end()) {
    result.published = found->second;
  }
  return result;
}

::testing::AssertionResult OutputPasses(const at::Tensor& actual,
                                        const at::Tensor& expected,
                                        const GoldenFigure& figure) {
  const Difference difference = Compare(actual, expected);
  if (!difference.comparable) return Verdict(false, difference, "other shapes");
  if (!expected.is_floating_point()) {
    const int64_t other = actual.ne(expected).sum().item<int64_t>();
    return Verdict(other <= kTies * expected.numel(), difference,
                   absl::StrCat(other, " of ", expected.numel(),
                                " integers differ, 0.1 % may"));
  }
  const double limit =
      std::max(figure.max_abs.has_value()
                   ? kFactor * *figure.max_abs
                   : kFactor * kUnknownFigure * difference.max_expected,
               kFloor * difference.max_expected);
  return Verdict(difference.finite && difference.max_abs <= limit, difference,
                 absl::StrCat("at most ", limit, " apart passes"));
}

::testing::AssertionResult GradientPasses(const at::Tensor& actual,
                                          const at::Tensor& expected,
                                          const GoldenFigure& figure) {
  const Difference difference = Compare(actual, expected);
  if (!difference.comparable) return Verdict(false, difference, "other shapes");
  const double limit =
      std::max(kFactor * figure.rel_l2.value_or(kUnknownFigure), kFloor);
  if (limit <= kGradientCap || difference.rel_l2 <= kGradientCap) {
    const double capped = std::min(limit, kGradientCap);
    return Verdict(difference.finite && difference.rel_l2 <= capped, difference,
                   absl::StrCat("a relative L2 of ", capped, " passes"));
  }
  const at::Tensor close =
      (actual.to(at::kDouble) - expected.to(at::kDouble))
          .abs()
          .le(expected.to(at::kDouble).abs() * kElementTolerance);
  const double share = close.sum().item<double>() / close.numel();
  return Verdict(difference.finite && share >= kElementShare, difference,
                 absl::StrCat(100 * share,
                              " % of the elements are within 10 "
                              "%, 70 % pass"));
}

::testing::AssertionResult DisplacementPasses(const at::Tensor& actual,
                                              const at::Tensor& expected) {
  const Difference difference = Compare(actual, expected);
  if (!difference.comparable) return Verdict(false, difference, "other shapes");
  const double mean =
      at::linalg_vector_norm(actual.to(at::kDouble) - expected.to(at::kDouble),
                             /*ord=*/2, /*dim=*/1)
          .mean()
          .item<double>();
  return Verdict(
      difference.finite && mean <= kMeanVoxels, difference,
      absl::StrCat(mean, " voxels apart on average, ", kMeanVoxels, " pass"));
}

}  // namespace mir::testing
