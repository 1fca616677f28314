#include "mir/checkpoint/state_dict.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "mir/checkpoint/value.h"
#include "mir/checkpoint/value_text.h"
#include "mir/testing/status_matchers.h"

namespace mir::checkpoint {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Dict Weights(const std::vector<std::string>& names) {
  Dict dict(/*ordered=*/true);
  for (const std::string& name : names) dict.Set(name, at::ones({2}));
  return dict;
}

StateDict State(const std::vector<std::string>& names) {
  StateDict state;
  for (const std::string& name : names) {
    state.entries.emplace_back(name, at::ones({2}));
  }
  return state;
}

std::vector<std::string> Names(const StateDict& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state.entries) names.push_back(name);
  return names;
}

TEST(FindStateDictTest, FindsWeightsWhereTrainersPutThem) {
  for (const char* name : {"state_dict", "model_state_dict", "model_state"}) {
    Dict checkpoint;
    checkpoint.Set("epoch", 3);
    checkpoint.Set(name, Weights({"b", "a"}));
    checkpoint.Set("optimizer", Dict());
    const auto state = FindStateDict(Value(checkpoint));
    ASSERT_THAT(state, IsOk()) << name;
    EXPECT_THAT(Names(*state), ElementsAre("b", "a"));
  }
  const auto top = FindStateDict(Value(Weights({"b", "a"})));
  ASSERT_THAT(top, IsOk());
  EXPECT_THAT(Names(*top), ElementsAre("b", "a"));
  EXPECT_NE(top->Find("a"), nullptr);
  EXPECT_EQ(top->Find("c"), nullptr);
}

TEST(FindStateDictTest, ReadsVersionsAndLeavesOutExtraState) {
  Dict weights = Weights({"norm.weight"});
  weights.Set("norm._extra_state", Value::List({1}));
  Dict version;
  version.Set("version", 2);
  Dict metadata;
  metadata.Set("", Dict());
  metadata.Set("norm", version);
  Dict attributes;
  attributes.Set("_metadata", metadata);
  weights.set_attributes(attributes);
  const auto state = FindStateDict(Value(weights));
  ASSERT_THAT(state, IsOk());
  EXPECT_THAT(Names(*state), ElementsAre("norm.weight"));
  EXPECT_THAT(state->versions, ElementsAre(Pair("norm", 2)));
}

TEST(FindStateDictTest, SaysWhatIsThereWhereThereAreNoWeights) {
  Dict nested;
  nested.Set("model", Weights({"a"}));
  nested.Set("epoch", 3);
  EXPECT_THAT(FindStateDict(Value(nested)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'model', 'epoch'"),
                             HasSubstr("'model_state_dict'"))));
  Dict wrong;
  wrong.Set("state_dict", nested);
  EXPECT_THAT(FindStateDict(Value(wrong)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'state_dict' holds no weights: its entry "
                                 "'model' is a dict of 1")));
  Dict empty;
  empty.Set("state_dict", Dict());
  EXPECT_THAT(FindStateDict(Value(empty)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("holds no weights")));
  EXPECT_THAT(FindStateDict(Value(3)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the checkpoint is the int 3")));
}

TEST(StripModulePrefixTest, StripsWrappersInAnyOrder) {
  const auto stripped = StripModulePrefix(
      State({"module.a.weight", "module._orig_mod.b", "_orig_mod.module.c",
             "module.module.d", "plain.e", "enc._orig_mod.f", "modules.g",
             "x.module.h", "module", "_orig_mod"}));
  ASSERT_THAT(stripped, IsOk());
  EXPECT_THAT(Names(*stripped),
              ElementsAre("a.weight", "b", "c", "d", "plain.e", "enc.f",
                          "modules.g", "x.module.h", "module", "_orig_mod"));
}

TEST(StripModulePrefixTest, StripsTheNamesOfModulesToo) {
  StateDict state = State({"module._orig_mod.norm.weight"});
  state.versions = {{"", 1},
                    {"module", 1},
                    {"module._orig_mod", 3},
                    {"module._orig_mod.norm", 2}};
  const auto stripped = StripModulePrefix(state);
  ASSERT_THAT(stripped, IsOk());
  EXPECT_THAT(stripped->versions, ElementsAre(Pair("", 3), Pair("norm", 2)));
}

TEST(StripModulePrefixTest, RefusesTwoNamesThatBecomeOne) {
  EXPECT_THAT(StripModulePrefix(State({"module.a", "a"})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("two names become 'a'")));
}

TEST(ToValueTest, IsAnOrderedDictWithMetadata) {
  StateDict state = State({"b", "a"});
  EXPECT_EQ(ValueText(ToValue(state)),
            "OrderedDict{'b': float32[2](1 1), 'a': float32[2](1 1)}");
  state.versions = {{"", 1}, {"norm", 2}};
  EXPECT_EQ(ValueText(ToValue(state)),
            "OrderedDict{'b': float32[2](1 1), 'a': float32[2](1 1)}"
            "<{'_metadata': OrderedDict{'': {'version': 1}, "
            "'norm': {'version': 2}}}>");
  const auto again = FindStateDict(ToValue(state));
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->versions, state.versions);
}

}  // namespace
}  // namespace mir::checkpoint
