#include "mir/checkpoint/value.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace mir::checkpoint {
namespace {

TEST(ValueTest, HoldsEachKindAndNoOther) {
  EXPECT_TRUE(Value().is_none());
  EXPECT_EQ(Value(true).boolean(), true);
  EXPECT_FALSE(Value(true).integer().has_value());
  EXPECT_EQ(Value(3).integer(), 3);
  EXPECT_EQ(Value(3).number(), 3.0);
  EXPECT_EQ(Value(0.5).number(), 0.5);
  EXPECT_FALSE(Value(0.5).integer().has_value());
  EXPECT_EQ(*Value("text").string(), "text");
  EXPECT_EQ(Value("text").bytes(), nullptr);
  EXPECT_EQ(*Value::Bytes("raw").bytes(), "raw");
  EXPECT_EQ(Value::Bytes("raw").string(), nullptr);
  EXPECT_EQ(Value(at::kHalf).dtype(), at::kHalf);
  EXPECT_EQ(Value(at::ones({2})).tensor()->numel(), 2);
  EXPECT_EQ(Value::List({1, 2}).items()->size(), 2);
  EXPECT_EQ(Value::List().kind(), Value::Kind::kList);
  EXPECT_EQ(Value::Tuple().kind(), Value::Kind::kTuple);
  EXPECT_EQ(Value(Dict()).kind(), Value::Kind::kDict);
  EXPECT_EQ(Value(Object{"a.B", {}, {}}).object()->class_name, "a.B");
  EXPECT_EQ(Value(3).Find("key"), nullptr);
}

TEST(ValueTest, UnsignedIntegersKeepTheirValue) {
  const uint64_t large = std::numeric_limits<uint64_t>::max() - 1;
  EXPECT_FALSE(Value(large).integer().has_value());
  EXPECT_EQ(Value(large).unsigned_integer(), large);
  EXPECT_EQ(Value(uint64_t{7}).integer(), 7);
  EXPECT_EQ(Value(uint64_t{7}).unsigned_integer(), 7);
  EXPECT_FALSE(Value(-7).unsigned_integer().has_value());
}

TEST(ValueTest, CopiesAreIndependent) {
  Dict dict;
  ASSERT_TRUE(dict.Set("inner", Value::List({1})));
  const Value before(dict);
  Value after = before;
  ASSERT_TRUE(after.mutable_dict()->Set("added", 2));
  EXPECT_EQ(before.dict()->size(), 1);
  EXPECT_EQ(after.dict()->size(), 2);

  Value list = *before.Find("inner");
  list.mutable_items()->push_back(2);
  EXPECT_EQ(before.Find("inner")->items()->size(), 1);
  EXPECT_EQ(list.items()->size(), 2);
}

TEST(DictTest, KeepsOrderAndReplacesEqualKeys) {
  Dict dict;
  ASSERT_TRUE(dict.Set("b", 1));
  ASSERT_TRUE(dict.Set("a", 2));
  ASSERT_TRUE(dict.Set(7, 3));
  ASSERT_TRUE(dict.Set("b", 4));
  ASSERT_EQ(dict.size(), 3);
  EXPECT_EQ(*dict.entries()[0].first.string(), "b");
  EXPECT_EQ(dict.Find("b")->integer(), 4);
  EXPECT_EQ(dict.Find(7)->integer(), 3);
  EXPECT_EQ(dict.Find("7"), nullptr);
  EXPECT_EQ(dict.DescribeKeys(), "'b', 'a', the int 7");
}

TEST(DictTest, KeysAreEqualAsInPython) {
  Dict dict;
  ASSERT_TRUE(dict.Set(1, "int"));
  ASSERT_TRUE(dict.Set(1.0, "float"));
  ASSERT_TRUE(dict.Set(true, "bool"));
  EXPECT_EQ(dict.size(), 1);
  ASSERT_TRUE(dict.Set("1", "string"));
  ASSERT_TRUE(dict.Set(Value::Bytes("1"), "bytes"));
  ASSERT_TRUE(dict.Set(1.5, "half"));
  ASSERT_TRUE(dict.Set(Value(), "none"));
  ASSERT_TRUE(dict.Set(Value::Tuple({1, "a"}), "tuple"));
  ASSERT_TRUE(dict.Set(Value::Tuple({"1", "a"}), "other tuple"));
  ASSERT_TRUE(dict.Set(at::kFloat, "dtype"));
  EXPECT_EQ(dict.size(), 8);
  EXPECT_EQ(*dict.Find(1)->string(), "bool");
  EXPECT_EQ(*dict.FindKey(Value::Tuple({1, "a"}))->string(), "tuple");
}

TEST(DictTest, FindsAmongManyKeys) {
  Dict dict;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(dict.Set(i, i));
    ASSERT_TRUE(dict.Set(std::to_string(i), -i));
  }
  ASSERT_TRUE(dict.Set(500.0, "replaced"));
  ASSERT_EQ(dict.size(), 2000);
  EXPECT_EQ(*dict.Find(500)->string(), "replaced");
  EXPECT_EQ(dict.Find("999")->integer(), -999);
  EXPECT_EQ(dict.Find(1000), nullptr);
  const Dict copy = dict;
  EXPECT_EQ(copy.Find("7")->integer(), -7);
}

TEST(DictTest, RefusesWhatCannotBeAKey) {
  Dict dict;
  EXPECT_FALSE(dict.Set(Value::List(), 1));
  EXPECT_FALSE(dict.Set(Value(Dict()), 1));
  EXPECT_FALSE(dict.Set(at::ones({1}), 1));
  EXPECT_FALSE(dict.Set(Value(Object{"builtins.set", {}, {}}), 1));
  EXPECT_FALSE(dict.Set(Value::Tuple({Value::List()}), 1));
  EXPECT_FALSE(dict.Set(std::string(100'000, 'k'), 1));
  // Two to the power of 60 leaves that share their parts.
  Value tower = Value::Tuple();
  for (int i = 0; i < 60; ++i) tower = Value::Tuple({tower, tower});
  EXPECT_FALSE(dict.Set(tower, 1));
  EXPECT_EQ(dict.size(), 0);
}

TEST(DictTest, DescribesManyKeysShortly) {
  Dict dict;
  EXPECT_EQ(dict.DescribeKeys(), "none");
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(dict.Set(i, i));
  EXPECT_NE(dict.DescribeKeys().find("(20 in all)"), std::string::npos);
}

TEST(ValueTest, DescribesItself) {
  EXPECT_EQ(Value().Describe(), "None");
  EXPECT_EQ(Value(at::ones({2, 3})).Describe(), "a float32 tensor [2, 3]");
  EXPECT_EQ(Value(at::Tensor()).Describe(), "an undefined tensor");
  EXPECT_EQ(Value(at::kBFloat16).Describe(), "torch.bfloat16");
  EXPECT_EQ(Value::Tuple({1, 2}).Describe(), "a tuple of 2");
  EXPECT_EQ(Value("x").Describe(), "a str");
}

TEST(DtypeTest, NamesGoBothWays) {
  for (const at::ScalarType dtype :
       {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
        at::kFloat, at::kDouble, at::kBool, at::kBFloat16, at::kComplexFloat,
        at::kUInt16, at::kFloat8_e5m2}) {
    EXPECT_EQ(DtypeFromName(DtypeName(dtype)), dtype);
  }
  EXPECT_EQ(DtypeName(at::kFloat), "float32");
  EXPECT_FALSE(DtypeFromName("Float").has_value());
}

}  // namespace
}  // namespace mir::checkpoint
