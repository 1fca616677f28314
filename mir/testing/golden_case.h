#ifndef MIR_TESTING_GOLDEN_CASE_H_
#define MIR_TESTING_GOLDEN_CASE_H_

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"

// Reads golden cases: folders with what the Python package MIR computed once.
// tests/goldens/README.md describes the files and the rule.
namespace mir::testing {

// A line of manifest.tsv: an entry of the module's state_dict.
struct GoldenEntry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  bool filled = false;     // By the fill rule; else as the constructor made it.
  bool parameter = false;  // Else a buffer.
  double gain = 0;         // Of the fill rule.
};

// A line of paramgrad.tsv: the gradient of the case's scalar by a parameter.
struct GoldenParameterGradient {
  std::string name;
  bool reached = false;  // Else the parameter is not used.
  double l2 = 0;
  double max_abs = 0;
};

// A line of tolerances.tsv: how far Python's float32 is from its float64, for
// one tensor. What is not known is left out.
struct GoldenFigure {
  absl::optional<double> max_abs;
  absl::optional<double> rel_l2;
};

// A line of models.tsv: a model as published.
struct GoldenModel {
  int64_t parameters = 0;
  int64_t entries = 0;  // Of the state_dict.
};

struct GoldenCase {
  std::string name;
  uint64_t seed = 0;  // Of fill rule and cotangents.
  // `in/...`, `out/...`, `grad/...`, `arg/...`. None for a published layout.
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::vector<GoldenEntry> manifest;  // Empty where there is no state.
  std::vector<GoldenParameterGradient> parameter_gradients;
  std::map<std::string, GoldenFigure> figures;  // By key of `tensors`.
  absl::optional<GoldenModel> published;        // Of a published layout.

  // The tensor of that key; undefined where the case has none.
  at::Tensor Find(const std::string& key) const;
  // The names after `prefix`, which ends with a slash.
  std::vector<std::string> Names(const std::string& prefix) const;
};

// A folder of cases. A missing file or one in another format is NOT_FOUND or
// INVALID_ARGUMENT, and named.
class GoldenSet {
 public:
  // Reads the tables and the seed ("Seed of this folder: N" in README.md).
  static absl::StatusOr<GoldenSet> Open(const std::string& folder);

  // The cases that lie in the folder, sorted; published layouts (`@published`)
  // among them.
  const std::vector<std::string>& present() const { return present_; }
  // The cases that cases.tsv and models.tsv list, present or not, sorted.
  const std::vector<std::string>& listed() const { return listed_; }

  absl::StatusOr<GoldenCase> Read(const std::string& name) const;

 private:
  std::string folder_;
  uint64_t seed_ = 0;
  std::vector<std::string> present_, listed_;
  std::map<std::string, GoldenModel> models_;  // By name of the case.
  // By case, then by key.
  std::map<std::string, std::map<std::string, GoldenFigure>> figures_;
};

// Whether an output passes: floating values differ by at most 10 times the
// figure (1e-5 of the largest value where there is none), or 1e-6 of the
// largest value if that is more; integers are equal but for 0.1 %.
::testing::AssertionResult OutputPasses(const at::Tensor& actual,
                                        const at::Tensor& expected,
                                        const GoldenFigure& figure);

// Whether a gradient passes: by its relative L2 difference, at most 10 times
// the figure (1e-5 where there is none) or 1e-6. Where that is above 0.05, it
// may instead be right to 10 % in sign and magnitude on 70 % of the elements.
::testing::AssertionResult GradientPasses(const at::Tensor& actual,
                                          const at::Tensor& expected,
                                          const GoldenFigure& figure);

// Whether the final displacement of an iterative optimiser passes: its vectors
// (along axis 1) are off by 0.5 voxel on average at most.
::testing::AssertionResult DisplacementPasses(const at::Tensor& actual,
                                              const at::Tensor& expected);

}  // namespace mir::testing

#endif  // MIR_TESTING_GOLDEN_CASE_H_
