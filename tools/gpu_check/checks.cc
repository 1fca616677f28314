#include "tools/gpu_check/checks.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/base/catch_torch.h"
#include "mir/distributed/collectives.h"
#include "mir/distributed/ddp.h"
#include "mir/geometry/jacobian.h"
#include "mir/geometry/vec_int.h"
#include "mir/geometry/warp.h"
#include "mir/losses/factory.h"
#include "mir/models/model_list.h"
#include "mir/models/registry.h"
#include "mir/precision/autocast.h"
#include "mir/precision/grad_scaler.h"
#include "mir/precision/precision.h"

namespace mir::tools {
namespace {

using precision::Precision;
using Model = std::shared_ptr<models::RegistrationModel>;

constexpr int64_t kSide = 32;
constexpr double kLossScale = 1024;
constexpr Precision kPrecisions[] = {Precision::kFloat32, Precision::kFloat16,
                                     Precision::kBFloat16};

at::ScalarType TypeOf(Precision precision) {
  switch (precision) {
    case Precision::kFloat16:
      return at::kHalf;
    case Precision::kBFloat16:
      return at::kBFloat16;
    default:
      return at::kFloat;
  }
}

// Sums of a few thousand terms in another order, and one rounding to the
// precision's type.
double LimitOf(Precision precision) {
  switch (precision) {
    case Precision::kFloat16:
      return 2e-3;
    case Precision::kBFloat16:
      return 1e-2;
    default:
      return 1e-3;
  }
}

// What autocast may change in a network's output.
double AutocastLimitOf(Precision precision) {
  switch (precision) {
    case Precision::kFloat16:
      return 1e-2;
    case Precision::kBFloat16:
      return 6e-2;
    default:
      return 1e-3;
  }
}

at::Tensor Average(const at::Tensor& noise) {
  return at::avg_pool3d(noise, /*kernel_size=*/5, /*stride=*/1, /*padding=*/2);
}

at::Tensor Image(int64_t batch = 1) {
  return Average(at::rand({batch, 1, kSide, kSide, kSide}));
}

at::Tensor Field() {
  return Average(at::randn({1, 3, kSide, kSide, kSide})).mul_(8);
}

Check NewCheck(const std::string& group, const std::string& name,
               const std::string& precision, double limit) {
  Check check;
  check.group = group;
  check.name = name;
  check.precision = precision;
  check.limit = limit;
  return check;
}

double RelativeL2(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor a = actual.detach().to(at::kCPU, at::kDouble);
  const at::Tensor b = expected.detach().to(at::kCPU, at::kDouble);
  const double size = b.norm().item<double>();
  const double difference = (a - b).norm().item<double>();
  return size > 0 ? difference / size : difference;
}

// Runs `measure`, which sets the check's error; what it throws is its fault.
Check Run(Check check, const std::function<void(Check& check)>& measure) {
  const absl::Status status = CatchTorch([&] {
    measure(check);
    return absl::OkStatus();
  });
  if (!status.ok()) {
    check.fault = std::string(status.message());
  } else if (!std::isfinite(check.error)) {
    check.fault = "not finite";
  }
  return check;
}

using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

struct ValueAndGradients {
  at::Tensor value;
  std::vector<at::Tensor> gradients;  // Of the inputs that are floating.
};

ValueAndGradients Differentiate(const Function& function,
                                const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().clone());
    if (input.is_floating_point()) leaves.back().requires_grad_();
  }
  ValueAndGradients result;
  result.value = function(leaves);
  if (result.value.requires_grad()) {
    // Scaled as training does it: a mean's gradients vanish in float16.
    result.value.backward(at::full_like(result.value, kLossScale));
  }
  for (const at::Tensor& leaf : leaves) {
    if (leaf.grad().defined()) result.gradients.push_back(leaf.grad());
  }
  return result;
}

// `function` on the device in each precision against the CPU in float32.
void CompareWithCpu(const char* group, const std::string& name,
                    const at::Device& device,
                    const std::vector<at::Tensor>& inputs,
                    const Function& function, std::vector<Check>* checks) {
  for (const Precision precision : kPrecisions) {
    const Check check =
        NewCheck(group, name, std::string(precision::PrecisionName(precision)),
                 LimitOf(precision));
    checks->push_back(Run(check, [&](Check& check) {
      std::vector<at::Tensor> there, here;
      for (const at::Tensor& input : inputs) {
        const bool rounds = input.is_floating_point();
        const at::Tensor rounded = rounds ? input.to(TypeOf(precision)) : input;
        there.push_back(rounded.to(device));
        here.push_back(rounds ? rounded.to(at::kFloat) : rounded);
      }
      const ValueAndGradients actual = Differentiate(function, there);
      const ValueAndGradients expected = Differentiate(function, here);
      TORCH_CHECK(actual.gradients.size() == expected.gradients.size(),
                  "gradients of ", actual.gradients.size(), " inputs, not of ",
                  expected.gradients.size());
      check.error = RelativeL2(actual.value, expected.value);
      for (size_t i = 0; i < actual.gradients.size(); ++i) {
        check.error = std::max(check.error, RelativeL2(actual.gradients[i],
                                                       expected.gradients[i]));
      }
    }));
  }
}

// The same weights whenever it is called.
Model Tiny(const std::string& name) {
  torch::manual_seed(7);
  const Model model =
      models::BuildModel(name, models::ModelConfig(name, "tiny").value())
          .value();
  model->eval();
  return model;
}

at::Tensor Displacement(const Model& model, const at::Device& device,
                        Precision precision, const at::Tensor& moving,
                        const at::Tensor& fixed) {
  const at::NoGradGuard no_grad;
  model->to(device);
  const precision::Autocast autocast(device.type(), precision);
  return model->Register(moving.to(device), fixed.to(device)).displacement;
}

// TF32 has the precision of float16; what is checked here is float32.
class WithoutTf32 {
 public:
  WithoutTf32() : convolutions_(at::globalContext().allowTF32CuDNN()) {
    at::globalContext().setAllowTF32CuDNN(false);
  }
  ~WithoutTf32() { at::globalContext().setAllowTF32CuDNN(convolutions_); }
  WithoutTf32(const WithoutTf32&) = delete;
  WithoutTf32& operator=(const WithoutTf32&) = delete;

 private:
  const bool convolutions_;
};

}  // namespace

std::vector<Check> CheckLosses(const at::Device& device) {
  torch::manual_seed(1);
  const at::Tensor fixed = Image(), moving = Image(), field = Field();
  std::vector<Check> checks;
  for (const std::string& name : losses::SimilarityNames()) {
    const losses::Similarity loss = losses::MakeSimilarity(name).value();
    CompareWithCpu(
        "loss", name, device, {fixed, moving},
        [&](const std::vector<at::Tensor>& in) { return loss(in[0], in[1]); },
        &checks);
  }
  for (const std::string& name : losses::RegularizerNames()) {
    const losses::Regularizer loss = losses::MakeRegularizer(name).value();
    CompareWithCpu(
        "regularizer", name, device, {field},
        [&](const std::vector<at::Tensor>& in) { return loss(in[0]); },
        &checks);
  }
  return checks;
}

std::vector<Check> CheckGeometry(const at::Device& device) {
  torch::manual_seed(2);
  const at::Tensor image = Image(), field = Field();
  const at::Tensor labels =
      at::randint(/*high=*/30, {1, 1, kSide, kSide, kSide}, at::kInt);
  std::vector<Check> checks;
  const auto add = [&](const std::string& name,
                       const std::vector<at::Tensor>& inputs,
                       const Function& function) {
    CompareWithCpu("geometry", name, device, inputs, function, &checks);
  };
  using geometry::Outside;
  for (const auto& [name, outside] :
       {std::make_pair("warp", Outside::kZero),
        std::make_pair("warp_edge", Outside::kNearestEdge),
        std::make_pair("warp_reflect", Outside::kReflect),
        std::make_pair("warp_constant", Outside::kConstant)}) {
    for (const bool mir : {false, true}) {
      geometry::WarpOptions options;
      options.outside = outside;
      options.constant = -1;
      options.convention = mir ? geometry::WarpConvention::kMirCompatible
                               : geometry::WarpConvention::kExact;
      add(absl::StrCat(name, mir ? "_mir" : ""), {image, field},
          [options](const std::vector<at::Tensor>& in) {
            return geometry::Warp(in[0], in[1], options);
          });
    }
  }
  add("warp_labels", {labels, field}, [](const std::vector<at::Tensor>& in) {
    return geometry::WarpLabels(in[0], in[1]);
  });
  add("vec_int", {field}, [](const std::vector<at::Tensor>& in) {
    return geometry::VecInt(in[0]);
  });
  add("jacobian", {field}, [](const std::vector<at::Tensor>& in) {
    return geometry::JacobianDeterminant(in[0]);
  });
  return checks;
}

std::vector<Check> CheckModels(const at::Device& device) {
  const WithoutTf32 in_float32;
  std::vector<Check> checks;
  for (const std::string& name : models::RegisteredModels()) {
    torch::manual_seed(3);
    const at::Tensor moving = Image(), fixed = Image();
    at::Tensor expected;
    for (const Precision precision : kPrecisions) {
      const Check check = NewCheck(
          "model", name, std::string(precision::PrecisionName(precision)),
          AutocastLimitOf(precision));
      checks.push_back(Run(check, [&](Check& check) {
        if (!expected.defined()) {
          expected = Displacement(Tiny(name), at::kCPU, Precision::kFloat32,
                                  moving, fixed);
        }
        if (precision != Precision::kFloat32) {
          const at::Tensor here =
              Displacement(Tiny(name), at::kCPU, precision, moving, fixed);
          check.limit = std::max(check.limit, 2 * RelativeL2(here, expected));
        }
        check.error = RelativeL2(
            Displacement(Tiny(name), device, precision, moving, fixed),
            expected);
      }));
    }
  }
  return checks;
}

std::vector<Check> CheckScaler(const at::Device& device) {
  const Check check =
      NewCheck("scaler", "overflow_skips_the_step", "fp16", /*limit=*/0);
  return {Run(check, [&](Check& check) {
    torch::nn::Linear layer(2, 2);
    layer->to(device);
    torch::optim::SGD optimizer(layer->parameters(),
                                torch::optim::SGDOptions(0.1));
    precision::GradScalerOptions options;
    options.enabled = true;
    precision::GradScaler scaler(options);
    const double scale = scaler.scale();
    for (const bool overflows : {true, false}) {
      optimizer.zero_grad();
      const double factor =
          overflows ? std::numeric_limits<double>::infinity() : 1.0;
      scaler.Scale(layer(at::ones({1, 2}, device)).sum() * factor).backward();
      if (scaler.Step(optimizer) == overflows) {
        check.fault = overflows ? "stepped with infinite gradients"
                                : "did not step with finite ones";
      }
      scaler.Update();
      if (scaler.scale() != scale / 2) {
        check.fault =
            absl::StrCat("the scale is ", scaler.scale(), ", not ", scale / 2);
      }
    }
  })};
}

std::vector<Check> CheckRanks(const distributed::Context& context) {
  const WithoutTf32 in_float32;
  const int ranks = context.world.size;
  std::vector<Check> checks;
  const Check sum = NewCheck("ranks", absl::StrCat("sum_over_", ranks), "fp32",
                             /*limit=*/0);
  checks.push_back(Run(sum, [&](Check& check) {
    const at::Tensor own =
        at::full({1000}, context.world.rank + 1.0, at::device(context.device));
    const at::Tensor all = distributed::AllReduceSum(context, own).value();
    check.error = RelativeL2(all, at::full({1000}, ranks * (ranks + 1) / 2.0));
  }));
  const Check gradient = NewCheck(
      "ranks", absl::StrCat("gradient_over_", ranks), "fp32", /*limit=*/1e-3);
  checks.push_back(Run(gradient, [&](Check& check) {
    torch::manual_seed(4);
    const at::Tensor moving = Image(ranks).to(context.device);
    const at::Tensor fixed = Image(ranks).to(context.device);
    const auto loss = [](const Model& model, const at::Tensor& moving,
                         const at::Tensor& fixed) {
      const at::Tensor displacement =
          model->Register(moving, fixed).displacement;
      return (geometry::Warp(moving, displacement) - fixed).square().mean();
    };
    const Model joined = Tiny("voxelmorph"), own = Tiny("voxelmorph");
    joined->to(context.device);
    own->to(context.device);
    loss(joined, moving, fixed).backward();

    distributed::DistributedModel shared(*own, context);
    const int rank = context.world.rank;
    shared.BeforeForward();
    const at::Tensor part = loss(own, moving.slice(0, rank, rank + 1),
                                 fixed.slice(0, rank, rank + 1));
    shared.BeforeBackward({part});
    part.backward();
    shared.AfterBackward();
    std::vector<at::Tensor> actual, expected;
    for (const at::Tensor& parameter : own->parameters()) {
      actual.push_back(parameter.grad().flatten());
    }
    for (const at::Tensor& parameter : joined->parameters()) {
      expected.push_back(parameter.grad().flatten());
    }
    check.error = RelativeL2(at::cat(actual), at::cat(expected));
  }));
  return checks;
}

}  // namespace mir::tools
