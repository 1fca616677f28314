#include "mir/models/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mir/testing/status_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Settings {
  bool flag = false;
  int64_t count = 1;
  double rate = 0.5;
  std::vector<int64_t> sizes = {1, 2};
  std::string kind = "plain";
};

absl::Status ReadAll(const json& config, Settings* settings) {
  ConfigReader reader("Net", config,
                      {"flag", "count", "rate", "sizes", "kind"});
  reader.Read("flag", &settings->flag);
  reader.Read("count", &settings->count, 1, 9);
  reader.Read("rate", &settings->rate, 0, 1);
  reader.Read("sizes", &settings->sizes, 1, 99);
  reader.Read("kind", &settings->kind, {"plain", "deep"});
  reader.Check("sizes", settings->sizes.size() == 2, "a pair");
  return reader.status();
}

TEST(ConfigReaderTest, ReadsWhatIsThereAndLeavesTheRest) {
  Settings settings;
  ASSERT_THAT(ReadAll({{"count", 3}, {"sizes", {4, 5}}}, &settings), IsOk());
  EXPECT_EQ(settings.count, 3);
  EXPECT_THAT(settings.sizes, ElementsAre(4, 5));
  EXPECT_EQ(settings.rate, 0.5);
  ASSERT_THAT(
      ReadAll({{"flag", true}, {"rate", 1}, {"kind", "deep"}}, &settings),
      IsOk());
  EXPECT_TRUE(settings.flag);
  EXPECT_EQ(settings.rate, 1);
  EXPECT_EQ(settings.kind, "deep");
}

TEST(ConfigReaderTest, NamesTheSettingThatIsWrong) {
  const struct {
    json config;
    const char* message;
  } cases[] = {
      {json::array(), "Net wants a configuration object, not []"},
      {{{"counts", 3}}, "Net has no setting 'counts'; did you mean count?"},
      {{{"flag", 1}}, "Net wants flag to be true or false, not 1"},
      {{{"count", 10}}, "count to be a whole number from 1 to 9, not 10"},
      {{{"count", 1.5}}, "count to be a whole number from 1 to 9, not 1.5"},
      {{{"rate", -1}}, "rate to be a number from 0 to 1, not -1"},
      {{{"rate", "x"}}, "rate to be a number from 0 to 1, not \"x\""},
      {{{"sizes", 3}}, "sizes to be a list of whole numbers from 1 to 99"},
      {{{"sizes", {1, 0}}}, "sizes to be a list of whole numbers from 1 to 99"},
      {{{"sizes", {1, 2, 3}}}, "sizes to be a pair, not [1,2,3]"},
      {{{"kind", "wide"}}, "kind to be one of plain, deep, not \"wide\""},
  };
  for (const auto& [config, message] : cases) {
    Settings settings;
    EXPECT_THAT(
        ReadAll(config, &settings),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
}

}  // namespace
}  // namespace mir::models
