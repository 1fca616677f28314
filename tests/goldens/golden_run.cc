#include "tests/goldens/golden_run.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "mir/models/manifest.h"
#include "mir/testing/fill.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::goldens {
namespace {

using ::mir::models::EntryKind;
using ::mir::models::ManifestEntry;
using ::mir::testing::GoldenEntry;
using ::mir::testing::GoldenFigure;
using ::mir::testing::GoldenParameterGradient;

// Norms of parameter gradients have no figure of their own. They are summed
// over all voxels, and so are at least as exact as the gradients by the inputs,
// whose figure stands for theirs; these are its bounds.
constexpr double kFactor = 10, kLeast = 1e-4, kMost = 0.05;
// Of the largest norm: what rounding makes of a gradient that is zero.
constexpr double kNoise = 1e-6;

GoldenFigure FigureOf(const testing::GoldenCase& golden,
                      const std::string& key) {
  const auto found = golden.figures.find(key);
  return found == golden.figures.end() ? GoldenFigure() : found->second;
}

std::string Line(const std::string& name, at::ScalarType dtype,
                 const std::vector<int64_t>& shape, bool parameter) {
  std::ostringstream line;
  line << name << " " << dtype << " " << at::IntArrayRef(shape)
       << (parameter ? " parameter" : " buffer");
  return line.str();
}

std::vector<std::string> Lines(const std::vector<ManifestEntry>& manifest) {
  std::vector<std::string> lines;
  for (const ManifestEntry& entry : manifest) {
    lines.push_back(Line(entry.name, entry.dtype, entry.shape,
                         entry.kind == EntryKind::kParameter));
  }
  return lines;
}

std::vector<std::string> Lines(const std::vector<GoldenEntry>& manifest) {
  std::vector<std::string> lines;
  for (const GoldenEntry& entry : manifest) {
    lines.push_back(
        Line(entry.name, entry.dtype, entry.shape, entry.parameter));
  }
  return lines;
}

}  // namespace

at::Tensor GoldenRun::In(const std::string& name) {
  for (const auto& [known, tensor] : inputs_) {
    if (known == name) return tensor;
  }
  at::Tensor input = golden_.Find("in/" + name);
  if (!input.defined()) {
    ADD_FAILURE() << golden_.name << " has no input " << name;
    return at::zeros({});
  }
  if (input.is_floating_point()) input = input.to(dtype_);
  if (gradients_ && golden_.Find("grad/" + name).defined()) {
    input = input.clone().requires_grad_();
  }
  inputs_.emplace_back(name, input);
  return input;
}

at::Tensor GoldenRun::Arg(const std::string& name) const {
  const at::Tensor value = golden_.Find("arg/" + name);
  if (value.defined()) return value;
  ADD_FAILURE() << golden_.name << " has no setting " << name;
  return at::zeros({});
}

void GoldenRun::CheckLayout(const torch::nn::Module& module) {
  layout_checked_ = true;
  const std::vector<std::string> ours = Lines(models::Manifest(module));
  const std::vector<std::string> theirs = Lines(golden_.manifest);
  EXPECT_EQ(ours.size(), theirs.size()) << "entries of the state_dict";
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    ASSERT_EQ(ours[i], theirs[i]) << "entry " << i << " of the state_dict";
  }
}

void GoldenRun::CheckPublished(const torch::nn::Module& module) {
  CheckLayout(module);
  ASSERT_TRUE(golden_.published.has_value())
      << golden_.name << " is not in models.tsv";
  int64_t parameters = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    parameters += parameter.numel();
  }
  EXPECT_EQ(parameters, golden_.published->parameters);
  EXPECT_EQ(models::Manifest(module).size(), golden_.published->entries);
}

void GoldenRun::Fill(const std::shared_ptr<torch::nn::Module>& module) {
  module_ = module;
  ASSERT_NO_FATAL_FAILURE(CheckLayout(*module));
  const auto parameters = module->named_parameters();
  const auto buffers = module->named_buffers();
  for (const GoldenEntry& entry : golden_.manifest) {
    if (!entry.filled) continue;
    const at::Tensor* const target = entry.parameter
                                         ? parameters.find(entry.name)
                                         : buffers.find(entry.name);
    ASSERT_NE(target, nullptr) << entry.name;
    target->detach().copy_(
        testing::FillValues(entry.name, entry.shape, entry.gain, golden_.seed));
  }
  module->to(dtype_);
  for (const auto& item : parameters) item.value().requires_grad_(gradients_);
  module->eval();
}

void GoldenRun::Out(const std::string& name, const at::Tensor& value) {
  outputs_.emplace_back(name, value);
}

at::Tensor GoldenRun::Output(const std::string& name) const {
  for (const auto& [known, value] : outputs_) {
    if (known == name) return value;
  }
  return at::Tensor();
}

double GoldenRun::WorstOutput() const {
  double worst = 0;
  for (const std::string& name : golden_.Names("out/")) {
    const testing::Difference difference =
        testing::Compare(Output(name), golden_.Find("out/" + name));
    if (!difference.comparable || !difference.finite) return INFINITY;
    worst = std::max(worst, difference.rel_l2);
  }
  return worst;
}

void GoldenRun::Check() {
  for (const GoldenEntry& entry : golden_.manifest) {
    // Functions stand for modules that hold nothing but an identity grid.
    EXPECT_TRUE(layout_checked_ || !entry.filled)
        << "the handler did not use " << entry.name;
  }
  for (const auto& [name, value] : outputs_) {
    EXPECT_TRUE(golden_.Find("out/" + name).defined())
        << "the case has no output " << name;
  }
  for (const std::string& name : golden_.Names("out/")) {
    const std::string key = "out/" + name;
    at::Tensor output = Output(name);
    if (output.defined() && output.is_floating_point() &&
        dtype_ == at::kDouble) {
      output = output.detach().to(at::kFloat);
    }
    EXPECT_TRUE(testing::OutputPasses(output, golden_.Find(key),
                                      FigureOf(golden_, key)))
        << key;
  }
  if (gradients_ && !::testing::Test::HasFailure()) CheckGradients();
}

void GoldenRun::CheckGradients() {
  if (golden_.Names("grad/").empty() && golden_.parameter_gradients.empty()) {
    return;
  }
  torch::autograd::variable_list outputs, cotangents;
  for (const auto& [name, value] : outputs_) {
    if (!value.requires_grad()) continue;
    outputs.push_back(value);
    cotangents.push_back(
        testing::Cotangent(name, value.sizes().vec(), golden_.seed)
            .to(value.scalar_type()));
  }
  ASSERT_FALSE(outputs.empty()) << "no output is differentiable";
  torch::autograd::backward(outputs, cotangents);

  for (const std::string& name : golden_.Names("grad/")) {
    const std::string key = "grad/" + name;
    const at::Tensor expected = golden_.Find(key);
    const at::Tensor gradient = In(name).grad();
    EXPECT_TRUE(testing::GradientPasses(
        gradient.defined() ? gradient : at::zeros_like(expected), expected,
        FigureOf(golden_, key)))
        << key;
  }
  if (module_ != nullptr) CheckParameterGradients();
}

void GoldenRun::CheckParameterGradients() const {
  double figure = 0, largest = 0;
  for (const std::string& name : golden_.Names("grad/")) {
    figure =
        std::max(figure, FigureOf(golden_, "grad/" + name).rel_l2.value_or(0));
  }
  for (const GoldenParameterGradient& expected : golden_.parameter_gradients) {
    largest = std::max(largest, expected.l2);
  }
  const double limit = std::min(std::max(kFactor * figure, kLeast), kMost);

  const auto parameters = module_->named_parameters();
  EXPECT_EQ(golden_.parameter_gradients.size(), parameters.size());
  for (const GoldenParameterGradient& expected : golden_.parameter_gradients) {
    const at::Tensor* const parameter = parameters.find(expected.name);
    ASSERT_NE(parameter, nullptr) << expected.name;
    const at::Tensor gradient = parameter->grad();
    if (!expected.reached) {
      EXPECT_TRUE(!gradient.defined() || !gradient.any().item<bool>())
          << expected.name << " has a gradient, and none in MIR";
      continue;
    }
    ASSERT_TRUE(gradient.defined()) << expected.name << " has no gradient";
    const at::Tensor exact = gradient.to(at::kDouble);
    EXPECT_NEAR(exact.norm().item<double>(), expected.l2,
                limit * expected.l2 + kNoise * largest)
        << "L2 norm of the gradient by " << expected.name;
    // One element is less exact than the norm over all.
    EXPECT_NEAR(exact.abs().max().item<double>(), expected.max_abs,
                kFactor * limit * expected.max_abs + kNoise * largest)
        << "largest gradient by " << expected.name;
  }
}

}  // namespace mir::goldens
