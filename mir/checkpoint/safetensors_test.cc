#include "mir/checkpoint/safetensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/value.h"
#include "mir/testing/status_matchers.h"

namespace mir::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Temporary(const std::string& name) {
  return ::testing::TempDir() + "safetensors_test_" + name;
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string WriteBytes(const std::string& name, const std::string& bytes) {
  fs::remove(Temporary(name));
  std::ofstream(Temporary(name), std::ios::binary) << bytes;
  return Temporary(name);
}

// A file of the format: the header's length, the header, the data.
std::string Bytes(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

TEST(ReadSafetensorsTest, ReadsWhatHuggingFacesSpecificationShows) {
  // Its header may end in spaces; the tensors come in any order.
  const std::string path = WriteBytes(
      "good",
      Bytes(R"({"b":{"dtype":"F16","shape":[1,2],"data_offsets":[4,8]},)"
            R"("__metadata__":{"format":"pt","\u00e9":"x"},)"
            R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"I32"},)"
            R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}}   )",
            std::string("\x01\x02\0\0\0\x3c\0\xc0", 8)));
  for (const bool map : {false, true}) {
    ReadOptions options;
    options.map = map;
    const absl::StatusOr<Safetensors> content = ReadSafetensors(path, options);
    ASSERT_THAT(content, IsOk());
    ASSERT_EQ(content->tensors.size(), 3);
    EXPECT_EQ(content->tensors[0].first, "b");
    EXPECT_TRUE(content->tensors[0].second.equal(
        at::arange(1, -5, -3, at::kHalf).view({1, 2})));
    EXPECT_EQ(content->tensors[1].second.scalar_type(), at::kInt);
    EXPECT_EQ(content->tensors[1].second.item().toInt(), 0x201);
    EXPECT_EQ(content->tensors[2].second.sizes(), at::IntArrayRef({0, 7}));
    EXPECT_EQ(content->metadata.at("format"), "pt");
    EXPECT_EQ(content->metadata.at("\u00e9"), "x");
  }
}

TEST(ReadSafetensorsTest, CheckpointReadersTakeItAsADictOfTensors) {
  Safetensors content;
  content.tensors = {{"z", at::arange(3)}, {"a", at::ones({2})}};
  const std::string path = Temporary("as_checkpoint");
  ASSERT_THAT(WriteSafetensors(path, content), IsOk());
  const absl::StatusOr<Value> value = ReadCheckpoint(path);
  ASSERT_THAT(value, IsOk());
  ASSERT_EQ(value->dict()->size(), 2);
  EXPECT_EQ(*value->dict()->entries()[0].first.string(), "z");
  EXPECT_TRUE(value->Find("a")->tensor()->equal(at::ones({2})));
}

TEST(ReadSafetensorsTest, RefusesHostileHeadersByName) {
  const auto tensor = [](const std::string& rest) {
    return absl::StrCat(R"({"w":{)", rest, "}}");
  };
  const std::string eight(8, '\0');
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  struct Case {
    std::string bytes;
    const char* message;
  };
  const std::vector<Case> cases = {
      {Bytes("[]", ""), "does not begin with {"},
      {Bytes("", ""), "does not begin with {"},
      {Bytes("{", ""), "no JSON"},
      {Bytes("{}}", ""), "no JSON"},
      {Bytes("{\"\xff\":{}}", ""), "no JSON"},
      {Bytes(R"({"w":1})", ""), "has a number where there must be none"},
      {Bytes(R"({"w":[]})", ""), "has a list where"},
      {Bytes(R"({"w":"x"})", ""), "has a string where"},
      {Bytes(R"({"w":null})", ""), "has null where"},
      {Bytes(tensor(""), ""), "lacks its dtype"},
      {Bytes(tensor(good + R"(,"x":1)"), eight), "'x' is unknown there"},
      {Bytes(tensor(good + R"(,"dtype":"F32")"), eight), "stands twice"},
      {Bytes(tensor(good + R"(,"shape":[2])"), eight), "stands twice"},
      {Bytes(tensor(R"("shape":{})"), ""), "has an object where"},
      {Bytes(tensor(R"("shape":[[1]])"), ""), "has a list where"},
      {Bytes(tensor(R"("shape":[-1])"), ""), "has a negative number where"},
      {Bytes(tensor(R"("shape":[1.0])"), ""), "has a fraction where"},
      {Bytes(tensor(R"("shape":[true])"), ""), "has a boolean where"},
      {Bytes(tensor(R"("shape":["F32"])"), ""), "has a string where"},
      {Bytes(tensor(R"("dtype":4)"), ""), "has a number where"},
      {Bytes(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), eight),
       "not two numbers"},
      {Bytes(tensor(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])"),
             eight),
       "has the dtype 'f32', which is not supported"},
      {Bytes(tensor(R"("dtype":"F64","shape":[2],"data_offsets":[0,8])"),
             eight),
       "'w' has 8 bytes, which is not what F64 [2] needs"},
      {Bytes(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"),
             eight),
       "lies at bytes 8 to 0 of 8"},
      {Bytes(tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,12])"),
             eight),
       "lies at bytes 0 to 12 of 8"},
      // Products that overflow to something small, or to zero.
      {Bytes(tensor(R"("dtype":"F32","shape":[4611686018427387904,4],)"
                    R"("data_offsets":[0,0])"),
             ""),
       "is not what F32"},
      {Bytes(tensor(R"("dtype":"U8","shape":[18446744073709551615,0],)"
                    R"("data_offsets":[0,0])"),
             ""),
       "is not what U8"},
      {Bytes(tensor(R"("dtype":"U8","shape":[18446744073709551616],)"
                    R"("data_offsets":[0,0])"),
             ""),
       "has a fraction where"},
      {Bytes(absl::StrCat(R"({"w":{)", good, R"(},"w":{)", good, "}}"), eight),
       "'w' stands twice"},
      {Bytes(R"({"__metadata__":{"a":"b","a":"c"}})", ""), "stands twice"},
      {Bytes(R"({"__metadata__":{},"__metadata__":{}})", ""), "stands twice"},
      {Bytes(R"({"__metadata__":{"a":1}})", ""), "has a number where"},
      // Overlapping, and with a gap.
      {Bytes(absl::StrCat(R"({"w":{)", good, R"(},"v":{)", good, "}}"), eight),
       "begins at byte 0 of the data, the one before it ends at 8"},
      {Bytes(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"),
             eight),
       "begins at byte 4 of the data, the one before it ends at 0"},
      {Bytes(tensor(absl::StrCat(R"("dtype":"U8","data_offsets":[0,1],)"
                                 R"("shape":[1)",
                                 [] {
                                   std::string ones;
                                   for (int i = 0; i < 64; ++i) ones += ",1";
                                   return ones;
                                 }(),
                                 "]")),
             "x"),
       "more than 64 numbers"},
      // A header that claims more than there can be.
      {"\xff\xff\xff\xff\xff\xff\xff\x7f{}", "claims a header of"},
  };
  for (const auto& [bytes, message] : cases) {
    EXPECT_THAT(
        ReadSafetensors(WriteBytes("hostile", bytes)),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(Temporary("hostile")), HasSubstr(message))));
  }
  for (const auto& [bytes, message] : std::vector<Case>{
           {"", "ends within 8 bytes"},
           {"1234567", "ends within 8 bytes"},
           {std::string("\x03\0\0\0\0\0\0\0{}", 10), "longer than the file"},
           {Bytes(tensor(good), eight + "x"), "take 8 bytes, it has 9"},
           {Bytes("{}", "x"), "take 0 bytes, it has 1"},
       }) {
    EXPECT_THAT(
        ReadSafetensors(WriteBytes("cut", bytes)),
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr(Temporary("cut")), HasSubstr(message))));
  }
  EXPECT_THAT(ReadSafetensors(Temporary("absent")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
}

TEST(ReadSafetensorsTest, EveryTruncationIsRefused) {
  Safetensors content;
  content.tensors = {{"w", at::ones({3, 2})}, {"n", at::ones({}, at::kLong)}};
  const std::string path = Temporary("whole");
  ASSERT_THAT(WriteSafetensors(path, content), IsOk());
  const std::string whole = Content(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(
        ReadSafetensors(WriteBytes("part", whole.substr(0, size))).ok())
        << size;
  }
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(ReadSafetensorsTest, AMappedFileCostsOnlyWhatIsUsed) {
  // One GiB that takes no room on the disk.
  constexpr uint64_t kSize = uint64_t{1} << 30;
  const std::string path = WriteBytes(
      "large",
      Bytes(
          absl::StrCat(R"({"large":{"dtype":"U8","shape":[)", kSize - 8,
                       R"(],"data_offsets":[0,)", kSize - 8, "]},",
                       R"("last":{"dtype":"F64","shape":[1],"data_offsets":[)",
                       kSize - 8, ",", kSize, "]}}    "),
          ""));
  fs::resize_file(path, fs::file_size(path) + kSize);
  const size_t before = ResidentBytes();
  ReadOptions options;
  options.map = true;
  const absl::StatusOr<Safetensors> content = ReadSafetensors(path, options);
  ASSERT_THAT(content, IsOk());
  EXPECT_EQ(content->tensors[1].second.sum().item().toDouble(), 0);
  EXPECT_LT(ResidentBytes() - before, size_t{64} << 20);
  fs::remove(path);
}

TEST(WriteSafetensorsTest, EveryDtypeComesBackBitEqual) {
  Safetensors content;
  content.metadata = {{"format", "pt"}};
  const at::Tensor bits = at::arange(64, at::kByte).mul(37);
  for (const at::ScalarType dtype :
       {at::kByte, at::kChar, at::kUInt16, at::kShort, at::kUInt32, at::kInt,
        at::kUInt64, at::kLong, at::kFloat8_e4m3fn, at::kFloat8_e5m2,
        at::kFloat8_e8m0fnu, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
        at::kComplexFloat}) {
    content.tensors.emplace_back(c10::toString(dtype), bits.view(dtype));
  }
  // Three bytes, in front of larger elements unless the writer sorts.
  content.tensors.insert(content.tensors.begin(),
                         {"bool", at::ones({3}, at::kBool)});
  content.tensors.emplace_back("empty", at::empty({0, 3}));
  content.tensors.emplace_back("scalar", at::ones({}));
  const std::string path = Temporary("dtypes");
  ASSERT_THAT(WriteSafetensors(path, content), IsOk());
  for (const bool map : {false, true}) {
    ReadOptions options;
    options.map = map;
    const absl::StatusOr<Safetensors> again = ReadSafetensors(path, options);
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(again->metadata, content.metadata);
    ASSERT_EQ(again->tensors.size(), content.tensors.size());
    for (size_t i = 0; i < content.tensors.size(); ++i) {
      const at::Tensor& actual = again->tensors[i].second;
      const at::Tensor& expected = content.tensors[i].second;
      EXPECT_EQ(again->tensors[i].first, content.tensors[i].first);
      ASSERT_EQ(actual.scalar_type(), expected.scalar_type());
      ASSERT_EQ(actual.sizes(), expected.sizes());
      if (expected.numel() == 0) continue;
      EXPECT_EQ(std::memcmp(actual.const_data_ptr(), expected.const_data_ptr(),
                            expected.nbytes()),
                0);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(actual.const_data_ptr()) %
                    expected.element_size(),
                0);
    }
  }
}

TEST(WriteSafetensorsTest, ViewsAreWrittenAsTheirValues) {
  const at::Tensor base = at::arange(6, at::kFloat).view({2, 3});
  Safetensors content;
  content.tensors = {{"t", base.t()}, {"row", base[1]}, {"base", base}};
  const std::string path = Temporary("views");
  ASSERT_THAT(WriteSafetensors(path, content), IsOk());
  const absl::StatusOr<Safetensors> again = ReadSafetensors(path);
  ASSERT_THAT(again, IsOk());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(again->tensors[i].second.equal(content.tensors[i].second));
    EXPECT_TRUE(again->tensors[i].second.is_contiguous());
  }
}

TEST(WriteSafetensorsTest, NamesWhatItCannotWrite) {
  const std::string path = Temporary("refused");
  fs::remove(path);
  const std::vector<std::pair<Safetensors, const char*>> cases = {
      {{{{"w", at::Tensor()}}, {}}, "tensor 'w' is undefined"},
      {{{{"w", at::ones({2}, at::kComplexDouble)}}, {}}, "'w' has the dtype"},
      {{{{"w", at::ones({2}).to_sparse()}}, {}}, "'w' is sparse"},
      {{{{"w", at::ones({2}, at::kMeta)}}, {}}, "'w' is sparse"},
      {{{{"w", at::ones({2})}, {"w", at::ones({2})}}, {}}, "'w' stands twice"},
      {{{{"__metadata__", at::ones({2})}}, {}}, "that the format reserves"},
      {{{{"\xff", at::ones({2})}}, {}}, "is not UTF-8"},
      {{{}, {{"a", "\xff"}}}, "is not UTF-8"},
  };
  for (const auto& [content, message] : cases) {
    EXPECT_THAT(WriteSafetensors(path, content),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(path), HasSubstr(message))));
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_THAT(WriteSafetensors(Temporary("absent/x"), Safetensors()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent/x")));
}

}  // namespace
}  // namespace mir::checkpoint
