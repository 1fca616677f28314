#include "bench/operation.h"

#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <utility>

namespace mir::bench {
namespace {

constexpr Size kSizes[] = {{16, 16, 16}, {96, 96, 96}, {160, 192, 224}};

std::string Text(const Size& size) {
  return std::to_string(size[0]) + "x" + std::to_string(size[1]) + "x" +
         std::to_string(size[2]);
}

int64_t Voxels(const Size& size) { return size[0] * size[1] * size[2]; }

Operation Copy(const Size& size) {
  const at::Tensor source = SmoothField(size);
  const at::Tensor target = at::empty_like(source);
  return {[=] { target.copy_(source); }, 2 * 3 * 4 * Voxels(size)};
}

// Bytes per second, read and written, of the fastest of a few copies.
double CopySpeed(const Size& size) {
  using Clock = std::chrono::steady_clock;
  const Operation copy = Copy(size);
  copy.run();
  double seconds = std::numeric_limits<double>::infinity();
  for (int repetition = 0; repetition < 5; ++repetition) {
    const Clock::time_point start = Clock::now();
    copy.run();
    seconds = std::min(
        seconds, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return copy.bytes / seconds;
}

// A line of /proc/self/status, in MiB.
double StatusMib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == key && status >> kib) return kib / 1024;
  }
  return 0;
}

void Measure(benchmark::State& state, const Size& size,
             const std::function<Operation(const Size&)>& make,
             const char* label) {
  const double copy_speed = CopySpeed(size);
  const Operation operation = make(size);
  const double peak = PeakMib(operation.run);  // Brings the memory.
  for (auto _ : state) operation.run();
  const double bytes =
      static_cast<double>(state.iterations()) * operation.bytes;
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
  state.counters["of_copy"] =
      benchmark::Counter(bytes / copy_speed, benchmark::Counter::kIsRate);
  state.counters["peak_MiB"] = peak;
  state.SetLabel(label);
}

void RegisterLabelled(const std::string& name,
                      const std::function<Operation(const Size&)>& make,
                      const char* label) {
  for (const Size& size : kSizes) {
    benchmark::RegisterBenchmark(
        (name + "/" + Text(size)).c_str(),
        [=](benchmark::State& state) { Measure(state, size, make, label); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

int KeepMemoryAndRegisterCopy() {
  mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  RegisterLabelled("copy", Copy, "output reused");
  return 0;
}

at::Tensor Average(const at::Tensor& noise) {
  return at::avg_pool3d(noise, /*kernel_size=*/5, /*stride=*/1, /*padding=*/2);
}

}  // namespace

int Register(const std::string& name,
             std::function<Operation(const Size&)> make) {
  static const int once = KeepMemoryAndRegisterCopy();
  RegisterLabelled(name, std::move(make), "fresh outputs, pages kept");
  return once;
}

double PeakMib(const std::function<void()>& run) {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // Forgets the peak so far.
  const double before = StatusMib("VmRSS:");
  run();
  return StatusMib("VmHWM:") - before;
}

at::Tensor SmoothNoise(const Size& size, int64_t channels) {
  return Average(at::rand({1, channels, size[0], size[1], size[2]}));
}

at::Tensor SmoothField(const Size& size) {
  return Average(at::randn({1, 3, size[0], size[1], size[2]})).mul_(4);
}

void RunWithGradient(
    const std::function<at::Tensor(const at::Tensor&)>& function,
    const at::Tensor& input) {
  const at::Tensor leaf = input.detach().requires_grad_();
  function(leaf).sum().backward();
  benchmark::DoNotOptimize(leaf.grad());
}

}  // namespace mir::bench
