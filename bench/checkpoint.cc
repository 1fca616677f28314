// Loading and saving a state_dict, for bench/compare_checkpoint.py, which times
// Python on the same files. MIR_BENCH_FOLDER says where they go (default /tmp).

#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/value.h"

namespace mir::checkpoint {
namespace {

// 64 tensors that are `megabytes` (MiB) together.
Value StateDictOf(int64_t megabytes) {
  constexpr int64_t kTensors = 64;
  Dict dict(/*ordered=*/true);
  for (int64_t i = 0; i < kTensors; ++i) {
    dict.Set(absl::StrCat("layer", i, ".weight"),
             at::randn({megabytes * (1 << 18) / kTensors}));
  }
  return dict;
}

// A file of that size, written once and removed at the end.
class File {
 public:
  File(benchmark::State& state, const std::string& name) {
    const char* const folder = std::getenv("MIR_BENCH_FOLDER");
    path_ = absl::StrCat(folder == nullptr ? "/tmp" : folder,
                         "/mir_bench_checkpoint_", name);
    Check(state, WriteCheckpoint(path_, StateDictOf(state.range(0))));
  }
  ~File() { std::filesystem::remove(path_); }
  static void Check(benchmark::State& state, const absl::Status& status) {
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  // Writing leaves it out of the system's cache.
  void BringIntoCache(benchmark::State& state) const {
    Check(state, ReadCheckpoint(path_).status());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void Report(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * (1 << 20));
}

void BM_Load(benchmark::State& state) {
  const File file(state, "load.pth");
  file.BringIntoCache(state);
  for (auto _ : state) {
    const absl::StatusOr<Value> value = ReadCheckpoint(file.path());
    File::Check(state, value.status());
    benchmark::DoNotOptimize(value.ok());
  }
  Report(state);
}

void BM_Save(benchmark::State& state) {
  const File file(state, "save.pth");
  const Value value = StateDictOf(state.range(0));
  for (auto _ : state) File::Check(state, WriteCheckpoint(file.path(), value));
  Report(state);
}

// Opens the file and uses one tensor of it.
void BM_FirstTensor(benchmark::State& state) {
  const File file(state, "first.pth");
  file.BringIntoCache(state);
  ReadOptions options;
  options.map = true;
  for (auto _ : state) {
    const absl::StatusOr<Value> value = ReadCheckpoint(file.path(), options);
    File::Check(state, value.status());
    if (!value.ok()) break;
    benchmark::DoNotOptimize(
        value->Find("layer63.weight")->tensor()->sum().item().toDouble());
  }
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("MiB")->Arg(16)->Arg(1024)->UseRealTime()->Unit(
      benchmark::kMillisecond);
}
BENCHMARK(BM_Load)->Apply(Sizes);
BENCHMARK(BM_Save)->Apply(Sizes);
BENCHMARK(BM_FirstTensor)->Apply(Sizes);

}  // namespace
}  // namespace mir::checkpoint
