#ifndef TESTS_GOLDENS_GOLDEN_RUN_H_
#define TESTS_GOLDENS_GOLDEN_RUN_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mir/testing/golden_case.h"

namespace torch::nn {
class Module;
}

namespace mir::goldens {

// One golden case while its handler runs: hands out the inputs, takes the
// outputs, and then compares everything that the case holds. Faults are
// GoogleTest failures.
class GoldenRun {
 public:
  // `golden` must outlive the run. Without `gradients` nothing requires one,
  // and Check compares outputs alone. `dtype` is float32, or float64 to widen
  // inputs and weights.
  explicit GoldenRun(const testing::GoldenCase& golden, bool gradients = true,
                     at::ScalarType dtype = at::kFloat)
      : golden_(golden), gradients_(gradients), dtype_(dtype) {}

  // The input or setting of that name. An input whose gradient the case holds
  // is a leaf that requires it. A missing name is a failure, and a zero.
  at::Tensor In(const std::string& name);
  at::Tensor Arg(const std::string& name) const;

  // Compares the module's state_dict layout with the manifest (names, order,
  // shapes, dtypes, parameters or buffers), then fills it by the rule and puts
  // it into evaluation mode. Its parameter gradients are compared by Check.
  void Fill(const std::shared_ptr<torch::nn::Module>& module);

  // For a published layout: compares it, and the numbers of parameters and
  // entries with models.tsv.
  void CheckPublished(const torch::nn::Module& module);

  // Gives what was computed for `out/<name>`.
  void Out(const std::string& name, const at::Tensor& value);

  // Compares outputs, then the gradients of sum(output * cotangent) by inputs
  // and parameters.
  void Check();

  // The largest relative L2 difference of an output, where every one is there.
  double WorstOutput() const;

  const testing::GoldenCase& golden() const { return golden_; }

 private:
  void CheckLayout(const torch::nn::Module& module);
  void CheckGradients();
  void CheckParameterGradients() const;
  at::Tensor Output(const std::string& name) const;

  const testing::GoldenCase& golden_;
  const bool gradients_;
  const at::ScalarType dtype_;
  std::vector<std::pair<std::string, at::Tensor>> inputs_, outputs_;
  std::shared_ptr<torch::nn::Module> module_;
  bool layout_checked_ = false;
};

// Computes a case: takes inputs from the run and gives outputs to it.
using Handler = std::function<void(GoldenRun& run)>;

// The cases of a family of rooms, each by the name of its folder.
using HandlerTable = std::vector<std::pair<std::string, Handler>>;

}  // namespace mir::goldens

#endif  // TESTS_GOLDENS_GOLDEN_RUN_H_
