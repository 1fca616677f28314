// Inference and a training step of whole models, under the names of the
// peer's: float32, one pair, noise images.

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <torch/optim/adamw.h>

#include <algorithm>
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

void Infer(benchmark::State& state, const Model& model, const Size& size) {
  const at::NoGradGuard no_grad;
  const at::Tensor moving = SmoothNoise(size, 1), fixed = SmoothNoise(size, 1);
  model->eval();
  model->Register(moving, fixed);  // Brings the memory.
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
  step();
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
  } benchmarks[] = {
      {"vxm_infer", VoxelMorph, Infer},
      {"vxm_train_step", VoxelMorph, TrainStep},
      {"transmorph_infer", TransMorph, Infer},
      {"transmorph_train_step", TransMorph, TrainStep},
      {"vfa_infer", Vfa, Infer},
      {"vfa_train_step", Vfa, TrainStep},
  };
  for (const auto& [name, build, run] : benchmarks) {
    for (const Size& size : kSizes) {
      benchmark::RegisterBenchmark(
          absl::StrCat(name, "/", absl::StrJoin(size, "x")).c_str(),
          [build = build, run = run, size](benchmark::State& state) {
            run(state, build(size), size);
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
