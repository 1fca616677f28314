// Runs the golden cases of a folder, each as a test of its name, and lists
// those that nothing runs yet. After the 16-bit cases (GoldensIn*) it prints a
// table of how far they are from float32, in per cent, beside the limits.
//
// Usage: goldens_test FOLDER/cases.tsv [GoogleTest's flags]
// MIR_GOLDENS_DIR names another folder instead.

#include <ATen/Parallel.h>
#include <c10/core/DeviceType.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/precision/autocast.h"
#include "mir/testing/golden_case.h"
#include "tests/goldens/golden_run.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

using ::mir::precision::Precision;
using ::mir::testing::GoldenCase;
using ::mir::testing::GoldenSet;

std::map<std::string, Handler> AllHandlers() {
  std::map<std::string, Handler> handlers;
  for (const HandlerTable& table :
       {GeometryHandlers(), LossHandlers(), MeasureHandlers(),
        ResamplingHandlers(), SwinHandlers(), TransMorphHandlers(),
        VfaHandlers(), VoxelMorphHandlers()}) {
    for (const auto& [name, handler] : table) handlers[name] = handler;
  }
  return handlers;
}

// An activation of these lies so close to its ReLU's kink that the float32
// convolutions of another CPU put it on the other side, and one element moves
// the gradient by more than the rule allows: MIR itself then misses its own
// reference. Or so does a coordinate beside the border of a voxel's cell, that
// our warp and MIR's round differently. Their gradients are compared in
// float64, within the same limits.
bool HasKinkWithinRounding(const std::string& name) {
  static const auto* const names = new std::set<std::string>{
      "vxm_default",         "hypervfaspr", "vfa_int2_skip1",
      "tm_tvf_addition_svf", "tm_tvfspr",   "tm_tvfspr_nosvf"};
  return names->count(name) != 0;
}

class CaseTest : public ::testing::Test {
 public:
  CaseTest(const GoldenSet& set, std::string name, Handler handler)
      : set_(set), name_(std::move(name)), handler_(std::move(handler)) {}

  void TestBody() override {
    const absl::StatusOr<GoldenCase> golden = set_.Read(name_);
    ASSERT_TRUE(golden.ok()) << golden.status();
    const bool kink = HasKinkWithinRounding(name_);
    GoldenRun run(*golden, /*gradients=*/!kink);
    handler_(run);
    run.Check();
    if (!kink) return;
    GoldenRun exact(*golden, /*gradients=*/true, at::kDouble);
    handler_(exact);
    exact.Check();
  }

 private:
  const GoldenSet& set_;
  const std::string name_;
  const Handler handler_;
};

// How far, in per cent, the worst output of MIR under CPU autocast is from
// float32 (relative L2).
struct SixteenBits {
  const char* name;
  double bfloat16;
  double float16;
};

constexpr SixteenBits kSixteenBits[] = {
    {"vxm_default", 1.0, 0.1},     {"vxm_bj", 0.7, 0.1},
    {"hyper_vxm", 0.3, 0.05},      {"vfa_default", 2.4, 0.3},
    {"vfaspr_svf_full", 2.3, 0.3}, {"hypervfa", 4.0, 0.5},
    {"hypervfaspr", 4.5, 0.5},     {"tm_3lvl", 2.4, 0.3},
    {"tm_3lvl_svf", 1.5, 0.2},     {"tm_dswin", 1.4, 0.2},
    {"tm_dswinv2", 1.5, 0.2},      {"tm_tvf", 2.4, 0.3},
    {"tm_tvfspr", 1.2, 0.2},       {"tm_affine_swin", 4.7, 0.4},
    {"tm_affine_dswin", 8.4, 0.5}, {"tm_tvf_autopet", 1.1, 0.1},
    {"hyper_tm_tvf", 6.9, 0.8},    {"transvfa_swin", 3.0, 0.5},
    {"transvfa_dswin", 2.9, 0.3},
};

// The rule's margin over MIR's difference, and its floors, in per cent.
constexpr double kMargin = 1.3, kLeastBFloat16 = 1, kLeastFloat16 = 0.2;

// The largest difference that passes, in per cent.
double Limit(const SixteenBits& row, Precision precision) {
  return precision == Precision::kBFloat16
             ? std::max(kMargin * row.bfloat16, kLeastBFloat16)
             : std::max(kMargin * row.float16, kLeastFloat16);
}

// What the runs below measured: the case, and the per cent of each precision.
std::map<std::string, std::map<Precision, double>>& Measured() {
  static auto* const measured =
      new std::map<std::string, std::map<Precision, double>>;
  return *measured;
}

// A table for the README, of the cases that ran.
void PrintSixteenBits() {
  if (Measured().empty()) return;
  std::printf(
      "\n| case | bf16 | at most | fp16 | at most |\n|---|---|---|---|---|\n");
  for (const SixteenBits& row : kSixteenBits) {
    const auto found = Measured().find(row.name);
    if (found == Measured().end()) continue;
    std::printf("| %s |", row.name);
    for (const Precision precision :
         {Precision::kBFloat16, Precision::kFloat16}) {
      const auto ours = found->second.find(precision);
      ours == found->second.end() ? std::printf(" - |")
                                  : std::printf(" %.2f |", ours->second);
      std::printf(" %.2f |", Limit(row, precision));
    }
    std::printf("\n");
  }
}

class SixteenBitsTest : public ::testing::Test {
 public:
  // Passes where the worst output is within `limit`, relative L2.
  SixteenBitsTest(const GoldenSet& set, std::string name, Handler handler,
                  Precision precision, double limit)
      : set_(set),
        name_(std::move(name)),
        handler_(std::move(handler)),
        precision_(precision),
        limit_(limit) {}

  void TestBody() override {
    const absl::StatusOr<GoldenCase> golden = set_.Read(name_);
    ASSERT_TRUE(golden.ok()) << golden.status();
    GoldenRun run(*golden, /*gradients=*/false);
    {
      const precision::Autocast autocast(c10::DeviceType::CPU, precision_);
      handler_(run);
    }
    const double worst = run.WorstOutput();
    RecordProperty("worst_output", std::to_string(worst));
    Measured()[name_][precision_] = 100 * worst;
    EXPECT_LE(worst, limit_);
    EXPECT_GT(worst, 0) << "nothing ran in 16 bits";
  }

 private:
  const GoldenSet& set_;
  const std::string name_;
  const Handler handler_;
  const Precision precision_;
  const double limit_;
};

void Register(const char* suite, const std::string& name,
              const std::function<::testing::Test*()>& make) {
  ::testing::RegisterTest(suite, name.c_str(), nullptr, nullptr, __FILE__,
                          __LINE__, make);
}

void RegisterAll(const GoldenSet& set,
                 const std::map<std::string, Handler>& handlers) {
  const std::vector<std::string>& present = set.present();
  const auto runs = [&](const std::string& name) {
    return handlers.count(name) != 0 &&
           std::binary_search(present.begin(), present.end(), name);
  };
  for (const std::string& name : present) {
    if (!runs(name)) continue;
    Register("Goldens", name, [&set, name, handler = handlers.at(name)] {
      return new CaseTest(set, name, handler);
    });
  }
  for (const SixteenBits& row : kSixteenBits) {
    const std::string name = row.name;
    if (!runs(name)) continue;
    for (const auto& [suite, precision] :
         {std::pair("GoldensInBFloat16", Precision::kBFloat16),
          std::pair("GoldensInFloat16", Precision::kFloat16)}) {
      Register(
          suite, name,
          [&set, name, precision = precision,
           limit = Limit(row, precision) / 100, handler = handlers.at(name)] {
            return new SixteenBitsTest(set, name, handler, precision, limit);
          });
    }
  }
}

void Print(const char* what, const std::vector<std::string>& names) {
  std::cout << "[ NOT RUN  ] " << names.size() << " cases " << what << "\n";
  for (const std::string& name : names) {
    std::cout << "[ NOT RUN  ]   " << name << "\n";
  }
}

// What no test above stands for.
void PrintNotRun(const GoldenSet& set,
                 const std::map<std::string, Handler>& handlers) {
  const std::vector<std::string>& present = set.present();
  std::vector<std::string> all, unhandled, absent;
  std::set_union(present.begin(), present.end(), set.listed().begin(),
                 set.listed().end(), std::back_inserter(all));
  for (const std::string& name : all) {
    if (handlers.count(name) == 0) {
      unhandled.push_back(name);
    } else if (!std::binary_search(present.begin(), present.end(), name)) {
      absent.push_back(name);
    }
  }
  if (!absent.empty()) {
    Print("are not in this folder (MIR_GOLDENS_DIR names another):", absent);
  }
  if (!unhandled.empty()) Print("that nothing computes yet:", unhandled);
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // As the reference: another number sums convolutions in another order.
  at::set_num_threads(2);
  const char* const other = std::getenv("MIR_GOLDENS_DIR");
  std::filesystem::path path;
  if (other != nullptr && *other != '\0') {
    path = other;
  } else if (argc == 2) {
    path = std::filesystem::path(argv[1]).parent_path();
  } else {
    std::cerr << "usage: " << argv[0] << " FOLDER/cases.tsv\n";
    return 2;
  }
  const std::string folder = path.string();
  const absl::StatusOr<GoldenSet> set = GoldenSet::Open(folder);
  if (!set.ok()) {
    std::cerr << "no golden cases: " << set.status() << "\n";
    return 1;
  }
  const std::map<std::string, Handler> handlers = AllHandlers();
  RegisterAll(*set, handlers);
  std::cout << "Golden cases of " << folder << "\n";
  const int result = RUN_ALL_TESTS();
  PrintSixteenBits();
  if (!::testing::GTEST_FLAG(list_tests)) PrintNotRun(*set, handlers);
  if (::testing::UnitTest::GetInstance()->total_test_count() == 0) {
    std::cerr << folder << " holds no case that can be run\n";
    return 1;
  }
  return result;
}

}  // namespace
}  // namespace mir::goldens

int main(int argc, char** argv) { return mir::goldens::Main(argc, argv); }
