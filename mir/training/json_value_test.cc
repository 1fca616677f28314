#include "mir/training/json_value.h"

#include <gtest/gtest.h>

namespace mir::training {
namespace {

TEST(JsonValueTest, DocumentsComeBack) {
  const nlohmann::json document = nlohmann::json::parse(R"({
      "model": "voxelmorph", "sizes": [160, 192, -224], "lr": 1e-4,
      "nothing": null, "yes": true, "nested": {"empty": {}, "list": []}})");
  EXPECT_EQ(JsonFromValue(ValueFromJson(document)), document);
}

TEST(JsonValueTest, NumbersKeepTheirKind) {
  EXPECT_EQ(ValueFromJson(nlohmann::json(2)).kind(),
            checkpoint::Value::Kind::kInt);
  EXPECT_EQ(ValueFromJson(nlohmann::json(2.0)).kind(),
            checkpoint::Value::Kind::kFloat);
}

TEST(JsonValueTest, PythonsOwnKindsBecomeJsonsNearest) {
  checkpoint::Dict dict;
  dict.Set(checkpoint::Value(7),
           checkpoint::Value::Tuple({checkpoint::Value(1), {}}));
  EXPECT_EQ(JsonFromValue(checkpoint::Value(dict)),
            nlohmann::json::parse(R"({"7": [1, null]})"));
}

}  // namespace
}  // namespace mir::training
