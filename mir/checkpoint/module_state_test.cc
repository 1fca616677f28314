#include "mir/checkpoint/module_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/state_dict.h"
#include "mir/checkpoint/value.h"
#include "mir/testing/status_matchers.h"

namespace mir::checkpoint {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

// The module of tests/checkpoints.
struct Small : torch::nn::Module {
  Small() {
    // Registered before the buffer, which stands first in a state_dict.
    conv = register_module(
        "conv", torch::nn::Conv3d(torch::nn::Conv3dOptions(2, 4, 3)));
    norm = register_module("norm", torch::nn::BatchNorm3d(4));
    head = register_module("head", torch::nn::Linear(4, 3));
    index = register_buffer("relative_position_index",
                            torch::zeros({4, 4}, torch::kLong));
  }
  torch::nn::Conv3d conv{nullptr};
  torch::nn::BatchNorm3d norm{nullptr};
  torch::nn::Linear head{nullptr};
  torch::Tensor index;
};

absl::StatusOr<StateDict> Weights(const std::string& file) {
  auto value = ReadCheckpoint("tests/checkpoints/" + file);
  if (!value.ok()) return value.status();
  return FindStateDict(*value);
}

// All entries but those named have the values that all files hold, which may
// have gone through another dtype.
void ExpectLoaded(const Small& module, const std::vector<std::string>& but = {},
                  at::ScalarType through = at::kFloat) {
  const auto expected =
      ReadCheckpoint("tests/checkpoints/expected_plain_dict.pt");
  ASSERT_THAT(expected, IsOk());
  for (const auto& [name, entry] : ModuleState(module).entries) {
    if (std::find(but.begin(), but.end(), name) != but.end()) continue;
    const Value* value = expected->Find(absl::StrCat("expected/", name));
    ASSERT_NE(value, nullptr) << name;
    at::Tensor wanted = *value->tensor();
    if (wanted.is_floating_point()) wanted = wanted.to(through).to(at::kFloat);
    EXPECT_TRUE(entry.equal(wanted)) << name;
  }
}

TEST(ModuleStateTest, HasPythonsOrderNamesAndVersions) {
  const auto python = Weights("state_dict.pth");
  ASSERT_THAT(python, IsOk());
  const StateDict own = ModuleState(Small());
  ASSERT_EQ(own.entries.size(), python->entries.size());
  for (size_t i = 0; i < own.entries.size(); ++i) {
    EXPECT_EQ(own.entries[i].first, python->entries[i].first);
    EXPECT_EQ(own.entries[i].second.sizes(), python->entries[i].second.sizes());
    EXPECT_EQ(own.entries[i].second.dtype(), python->entries[i].second.dtype());
    EXPECT_FALSE(own.entries[i].second.requires_grad());
  }
  EXPECT_EQ(own.versions, python->versions);
}

TEST(ModuleStateTest, KeepsSharedParametersAndLeavesOutAbsentOnes) {
  struct Shares : torch::nn::Module {
    Shares() {
      weight = register_parameter("weight", torch::ones({2}));
      register_parameter("bias", torch::Tensor(), /*requires_grad=*/false);
      auto child = std::make_shared<torch::nn::Module>("child");
      child->register_parameter("weight", weight);
      register_module("child", child);
    }
    torch::Tensor weight;
  };
  const StateDict state = ModuleState(Shares());
  EXPECT_THAT(state.entries, ElementsAre(Pair("weight", ::testing::_),
                                         Pair("child.weight", ::testing::_)));
  EXPECT_TRUE(state.entries[0].second.is_alias_of(state.entries[1].second));
}

TEST(LoadStateDictTest, LoadsEveryGoodFileStrictly) {
  for (const char* file :
       {"state_dict.pth", "state_dict_legacy_nonzip.pth", "training.pth.tar",
        "model_state_dict.pth", "numpy_scalar.pth", "voxelmorph_style.pth",
        "saved_on_cuda.pth"}) {
    Small module;
    const auto state = Weights(file);
    ASSERT_THAT(state, IsOk()) << file;
    const auto report = LoadStateDict(module, *state, /*strict=*/true);
    ASSERT_THAT(report, IsOk()) << file;
    EXPECT_EQ(report->loaded.size(), state->entries.size());
    EXPECT_THAT(report->missing, IsEmpty());
    ExpectLoaded(module);
  }
}

TEST(LoadStateDictTest, ConvertsOtherPrecisions) {
  for (const auto& [file, dtype] :
       std::vector<std::pair<std::string, at::ScalarType>>{
           {"half.pth", at::kHalf},
           {"bfloat16.pth", at::kBFloat16},
           {"double.pth", at::kDouble}}) {
    Small module;
    const auto state = Weights(file);
    ASSERT_THAT(state, IsOk());
    EXPECT_THAT(LoadStateDict(module, *state, /*strict=*/true), IsOk());
    EXPECT_EQ(module.head->weight.scalar_type(), at::kFloat);
    EXPECT_TRUE(module.head->weight.requires_grad());
    ExpectLoaded(module, {}, dtype);
  }
}

TEST(LoadStateDictTest, PrefixesMustBeStrippedFirst) {
  for (const char* file : {"module_prefix.pth", "compiled_in_ddp_prefix.pth"}) {
    Small module;
    const auto state = Weights(file);
    ASSERT_THAT(state, IsOk());
    EXPECT_THAT(LoadStateDict(module, *state, /*strict=*/true),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("head.bias"),
                               HasSubstr("StripModulePrefix"))));
    const auto stripped = StripModulePrefix(*state);
    ASSERT_THAT(stripped, IsOk());
    EXPECT_THAT(LoadStateDict(module, *stripped, /*strict=*/true), IsOk());
    ExpectLoaded(module);
  }
}

TEST(LoadStateDictTest, IgnoresIdentityGridsAndSaysSo) {
  Small module;
  const auto state = Weights("with_grid_buffers.pth");
  ASSERT_THAT(state, IsOk());
  const auto report = LoadStateDict(module, *state, /*strict=*/true);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->ignored_grids,
              ElementsAre("spatial_trans.grid", "vec_int.transformer.grid"));
  EXPECT_THAT(report->unexpected, IsEmpty());
  EXPECT_THAT(report->Describe(), HasSubstr("2 grids ignored"));
  ExpectLoaded(module);

  // One that the module has is weights like any other.
  struct HasGrid : torch::nn::Module {
    HasGrid() { grid = register_buffer("grid", torch::zeros({2})); }
    torch::Tensor grid;
  } has_grid;
  StateDict ones;
  ones.entries = {{"grid", torch::ones({2})}};
  EXPECT_THAT(LoadStateDict(has_grid, ones, /*strict=*/true), IsOk());
  EXPECT_EQ(has_grid.grid.sum().item<float>(), 2);
}

TEST(LoadStateDictTest, StrictNamesAllThatDoesNotFitAndChangesNothing) {
  Small module;
  const at::Tensor before = module.conv->weight.detach().clone();
  const auto extra = Weights("missing_and_extra.pth");
  ASSERT_THAT(extra, IsOk());
  EXPECT_THAT(
      LoadStateDict(module, *extra, /*strict=*/true),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("1 missing in the weights: head.bias"),
                     HasSubstr("1 unexpected in the weights: extra.weight"),
                     Not(HasSubstr("StripModulePrefix")))));
  const auto shape = Weights("wrong_shape.pth");
  ASSERT_THAT(shape, IsOk());
  EXPECT_THAT(LoadStateDict(module, *shape, /*strict=*/true),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("head.weight: [3, 5] in the weights, [3, 4] "
                                 "in the module")));
  EXPECT_TRUE(module.conv->weight.equal(before));
}

TEST(LoadStateDictTest, PartialLoadsTheRestAndReports) {
  Small module;
  const at::Tensor bias = module.head->bias.detach().clone();
  const at::Tensor weight = module.head->weight.detach().clone();
  const auto extra = Weights("missing_and_extra.pth");
  ASSERT_THAT(extra, IsOk());
  auto report = LoadStateDict(module, *extra, /*strict=*/false);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->missing, ElementsAre("head.bias"));
  EXPECT_THAT(report->unexpected, ElementsAre("extra.weight"));
  ExpectLoaded(module, {"head.bias"});
  EXPECT_TRUE(module.head->bias.equal(bias));

  Small other;
  const auto shape = Weights("wrong_shape.pth");
  ASSERT_THAT(shape, IsOk());
  report = LoadStateDict(other, *shape, /*strict=*/false);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->mismatched,
              ElementsAre("head.weight: [3, 5] in the weights, [3, 4] in the "
                          "module"));
  EXPECT_THAT(report->loaded, SizeIs(shape->entries.size() - 1));
  ExpectLoaded(other, {"head.weight"});
}

// What DataParallel, DDP and the like look like from here.
struct Wrapper : torch::nn::Module {
  explicit Wrapper(const std::shared_ptr<torch::nn::Module>& model) {
    register_module("module", model);
  }
};

TEST(UnwrapModelTest, FindsTheModelInsideItsWrappers) {
  const auto small = std::make_shared<Small>();
  const Wrapper outer(std::make_shared<Wrapper>(small));
  EXPECT_EQ(&UnwrapModel(outer), small.get());
  EXPECT_EQ(&UnwrapModel(*small), small.get());
  const StateDict saved = StateDictForSaving(outer);
  const StateDict plain = ModuleState(*small);
  ASSERT_EQ(saved.entries.size(), plain.entries.size());
  EXPECT_EQ(saved.entries[0].first, plain.entries[0].first);
  EXPECT_EQ(saved.versions, plain.versions);

  // A model with a part of that name is no wrapper.
  Wrapper part(small);
  part.register_buffer("mean", torch::zeros({1}));
  EXPECT_EQ(&UnwrapModel(part), &part);
  Wrapper two(small);
  two.register_module("head", torch::nn::Linear(2, 2).ptr());
  EXPECT_EQ(&UnwrapModel(two), &two);
}

TEST(LoadPartialWeightsTest, StripsMixedPrefixesAndReportsTheRest) {
  const auto small = std::make_shared<Small>();
  Wrapper wrapped(small);
  for (const char* file : {"missing_and_extra.pth", "module_prefix.pth",
                           "compiled_in_ddp_prefix.pth", "state_dict.pth"}) {
    auto state = Weights(file);
    ASSERT_THAT(state, IsOk());
    state->entries[0].first = "module." + state->entries[0].first;
    const auto report = LoadPartialWeights(wrapped, *state);
    ASSERT_THAT(report, IsOk()) << file;
    const bool complete = std::string(file) != "missing_and_extra.pth";
    EXPECT_EQ(report->missing.empty(), complete) << report->Describe();
    EXPECT_EQ(report->unexpected.empty(), complete);
    ExpectLoaded(*small, complete ? std::vector<std::string>()
                                  : std::vector<std::string>{"head.bias"});
  }
  StateDict other;
  other.entries = {{"module.other", torch::ones({2})}};
  EXPECT_THAT(LoadPartialWeights(wrapped, other),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("1 unexpected in the weights: other")));
}

TEST(LoadStateDictTest, NotASingleNameIsAlwaysAnError) {
  Small module;
  StateDict other;
  other.entries = {{"quite.different", torch::ones({2})},
                   {"spatial_trans.grid", torch::ones({2})}};
  for (const bool strict : {false, true}) {
    EXPECT_THAT(LoadStateDict(module, other, strict),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("quite.different"),
                               HasSubstr("conv.weight"))));
  }
}

TEST(LoadStateDictTest, OldWeightsMayLackWhatDidNotExist) {
  Small module;
  auto state = Weights("state_dict.pth");
  ASSERT_THAT(state, IsOk());
  const auto is_count = [](const auto& entry) {
    return entry.first == "norm.num_batches_tracked";
  };
  state->entries.erase(
      std::remove_if(state->entries.begin(), state->entries.end(), is_count),
      state->entries.end());
  // Python's file says that its normalisation counts.
  EXPECT_THAT(LoadStateDict(module, *state, /*strict=*/true),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("norm.num_batches_tracked")));
  state->versions.clear();
  EXPECT_THAT(LoadStateDict(module, *state, /*strict=*/true), IsOk());
  state->versions = {{"norm", 1}};
  EXPECT_THAT(LoadStateDict(module, *state, /*strict=*/true), IsOk());
  // Before torch 0.4 a scalar had one dimension.
  state->entries.emplace_back("norm.num_batches_tracked",
                              torch::full({1}, 5, torch::kLong));
  EXPECT_THAT(LoadStateDict(module, *state, /*strict=*/true), IsOk());
  EXPECT_EQ(module.norm->num_batches_tracked.item<int64_t>(), 5);
}

TEST(LoadStateDictTest, ASavedModuleComesBack) {
  Small saved;
  const std::string path =
      ::testing::TempDir() + "module_state_test_round_trip.pth";
  ASSERT_THAT(WriteCheckpoint(path, ToValue(ModuleState(saved))), IsOk());
  const auto value = ReadCheckpoint(path);
  ASSERT_THAT(value, IsOk());
  const auto state = FindStateDict(*value);
  ASSERT_THAT(state, IsOk());
  Small loaded;
  ASSERT_THAT(LoadStateDict(loaded, *state, /*strict=*/true), IsOk());
  const torch::Tensor input = torch::randn({1, 2, 5, 5, 5});
  saved.eval();
  loaded.eval();
  EXPECT_TRUE(
      saved.norm(saved.conv(input)).equal(loaded.norm(loaded.conv(input))));
}

}  // namespace
}  // namespace mir::checkpoint
