// Inference and a training step of whole models, under the names of the
// peer's: float32, one pair, noise images.

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/record_function.h>
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/operation.h"
#include "mir/geometry/warp.h"
#include "mir/losses/gradient_penalty.h"
#include "mir/losses/local_ncc.h"
#include "mir/models/registry.h"
#include "mir/precision/autocast.h"

namespace mir::bench {
namespace {

using Model = std::shared_ptr<models::RegistrationModel>;

// 32: for the smoke test.
constexpr Size kSizes[] = {{32, 32, 32}, {96, 96, 96}};

Model Build(const std::string& name, const std::string& configuration,
            std::vector<std::string> overrides, const Size& size) {
  overrides.push_back(
      absl::StrCat("img_size=[", absl::StrJoin(size, ","), "]"));
  return models::BuildModel(
             name, models::ModelConfig(name, configuration, overrides).value())
      .value();
}

// get_VXM_1_config.
Model VoxelMorph(const Size& size) {
  return Build("voxelmorph", "1", {}, size);
}

// get_3DTransMorph3Lvl_config without integration, and with windows of at
// least 2 that grow with the volume.
Model TransMorph(const Size& size) {
  std::vector<int64_t> window;
  for (const int64_t side : size) {
    window.push_back(std::max<int64_t>(side / 64, 2));
  }
  return Build("transmorph", "default",
               {"SVF=false",
                absl::StrCat("window_size=[", absl::StrJoin(window, ","), "]")},
               size);
}

// get_VFA_default_config.
Model Vfa(const Size& size) { return Build("vfa", "default", {}, size); }

// Operations per second of a product of two float32 matrices of 4096 x 4096,
// the fastest of a few.
double MatmulPeak() {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kSide = 4096;
  const at::NoGradGuard no_grad;
  const at::Tensor a = at::rand({kSide, kSide}), b = at::rand({kSide, kSide});
  double seconds = std::numeric_limits<double>::infinity();
  for (int repetition = 0; repetition < 5; ++repetition) {
    const Clock::time_point start = Clock::now();
    benchmark::DoNotOptimize(at::mm(a, b));
    seconds = std::min(
        seconds, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return 2.0 * kSide * kSide * kSide / seconds;
}

thread_local double counted_operations;

// Adds what a convolution or a matrix product takes as it is written.
std::unique_ptr<at::ObserverContext> Count(const at::RecordFunction& function) {
  const std::string name = function.name();
  const auto inputs = function.inputs();
  if (name == "aten::convolution") {
    const at::Tensor &x = inputs[0].toTensor(), &weight = inputs[1].toTensor();
    const int64_t stride = inputs[3].toIntVector().front();
    const int64_t padding = inputs[4].toIntVector().front();
    double operations = 2.0 * x.size(0) * weight.numel();
    for (int64_t axis = 0; axis < x.dim() - 2; ++axis) {
      operations *=
          (x.size(2 + axis) + 2 * padding - weight.size(2 + axis)) / stride + 1;
    }
    counted_operations += operations;
  } else if (name == "aten::mm" || name == "aten::addmm" ||
             name == "aten::bmm") {
    const int64_t left = name == "aten::addmm" ? 1 : 0;
    counted_operations += 2.0 * inputs[left].toTensor().numel() *
                          inputs[left + 1].toTensor().size(-1);
  }
  return nullptr;
}

// Operations of one inference's convolutions and matrix products; their number
// is proportional to the voxels.
double OperationsOf(Model (*build)(const Size&), const Size& size) {
  constexpr Size kSmall = {32, 32, 32};
  const at::NoGradGuard no_grad;
  // So that all convolutions are LibTorch's, which the callback sees.
  const precision::Autocast autocast(at::kCPU, precision::Precision::kBFloat16);
  const Model model = build(kSmall);
  model->eval();
  counted_operations = 0;
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(Count).needsInputs(true).scopes(
          {at::RecordScope::FUNCTION}));
  model->Register(SmoothNoise(kSmall, 1), SmoothNoise(kSmall, 1));
  at::removeCallback(handle);
  return counted_operations * size[0] * size[1] * size[2] /
         (kSmall[0] * kSmall[1] * kSmall[2]);
}

void Infer(benchmark::State& state, const Model& model, const Size& size) {
  const at::NoGradGuard no_grad;
  const at::Tensor moving = SmoothNoise(size, 1), fixed = SmoothNoise(size, 1);
  model->eval();
  state.counters["peak_MiB"] =  // And brings the memory.
      PeakMib([&] { model->Register(moving, fixed); });
  for (auto _ : state) {
    benchmark::DoNotOptimize(model->Register(moving, fixed));
  }
}

// Forward, warp, local NCC, gradient penalty, backward, AdamW with amsgrad.
void TrainStep(benchmark::State& state, const Model& model, const Size& size) {
  const at::Tensor moving = SmoothNoise(size, 1), fixed = SmoothNoise(size, 1);
  const losses::LocalNcc ncc;
  const losses::GradientPenalty penalty;
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(1e-4).amsgrad(true));
  model->train();
  const auto step = [&] {
    const models::Registration result = model->Register(moving, fixed);
    const at::Tensor warped =
        geometry::Warp(moving, result.displacement,
                       {geometry::WarpConvention::kMirCompatible});
    optimizer.zero_grad();
    (ncc(fixed, warped) + penalty(result.regularized)).backward();
    optimizer.step();
  };
  state.counters["peak_MiB"] = PeakMib(step);
  for (auto _ : state) step();
}

using Run = void (*)(benchmark::State&, const Model&, const Size&);

int RegisterModels() {
  // As the training programs: freed memory stays with the process.
  mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  const struct {
    const char* name;
    Model (*build)(const Size&);
    Run run;
    int passes;  // A backward pass takes twice the operations of a forward one.
  } benchmarks[] = {
      {"vxm_infer", VoxelMorph, Infer, 1},
      {"vxm_train_step", VoxelMorph, TrainStep, 3},
      {"transmorph_infer", TransMorph, Infer, 1},
      {"transmorph_train_step", TransMorph, TrainStep, 3},
      {"vfa_infer", Vfa, Infer, 1},
      {"vfa_train_step", Vfa, TrainStep, 3},
  };
  for (const auto& [name, build, run, passes] : benchmarks) {
    for (const Size& size : kSizes) {
      benchmark::RegisterBenchmark(
          absl::StrCat(name, "/", absl::StrJoin(size, "x")).c_str(),
          [build = build, run = run, passes = passes,
           size](benchmark::State& state) {
            static const double peak = MatmulPeak();
            const double operations = passes * OperationsOf(build, size);
            run(state, build(size), size);
            state.counters["of_matmul_peak"] =
                benchmark::Counter(state.iterations() * operations / peak,
                                   benchmark::Counter::kIsRate);
            state.SetItemsProcessed(state.iterations() * size[0] * size[1] *
                                    size[2]);  // Voxels.
          })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  return 0;
}

[[maybe_unused]] const int registered = RegisterModels();

}  // namespace
}  // namespace mir::bench
