#include "mir/checkpoint/pickle.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/pickle_samples.h"
#include "mir/checkpoint/unpickle.h"
#include "mir/checkpoint/value.h"
#include "mir/checkpoint/value_text.h"
#include "mir/testing/status_matchers.h"

namespace mir::checkpoint {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::IsOkAndHolds;
using ::mir::testing::StatusIs;
using ::testing::HasSubstr;

// A storage of the claimed size whose bytes count up.
absl::StatusOr<at::Storage> Counting(const StorageRecord& record) {
  const at::Tensor bytes = at::empty({record.nbytes}, at::kByte);
  for (int64_t i = 0; i < record.nbytes; ++i) {
    bytes.mutable_data_ptr<uint8_t>()[i] = static_cast<uint8_t>(i);
  }
  return bytes.storage();
}

absl::StatusOr<Value> Load(const std::string& bytes,
                           const UnpickleOptions& options = {}) {
  MIR_ASSIGN_OR_RETURN(const ParsedPickle parsed, ParsePickle(bytes, options));
  return parsed.Build(Counting);
}

std::string Bytes(absl::string_view hex) { return absl::HexStringToBytes(hex); }

// ValueText of what the bytes hold, or the error.
std::string Read(const std::string& bytes) {
  const absl::StatusOr<Value> value = Load(bytes);
  return value.ok() ? ValueText(*value) : value.status().ToString();
}
std::string ReadHex(absl::string_view hex) { return Read(Bytes(hex)); }

// Writes and reads again.
absl::StatusOr<Value> RoundTrip(const Value& value) {
  MIR_ASSIGN_OR_RETURN(const Pickled pickled, Pickle(value));
  MIR_ASSIGN_OR_RETURN(const ParsedPickle parsed, ParsePickle(pickled.bytes));
  return parsed.Build(
      [&](const StorageRecord& record) -> absl::StatusOr<at::Storage> {
        const size_t key = std::stoul(record.key);
        EXPECT_EQ(record.nbytes, pickled.storages[key].nbytes);
        EXPECT_EQ(record.location, "cpu");
        return pickled.storages[key].storage;
      });
}

std::string AgainText(const Value& value) {
  const absl::StatusOr<Value> again = RoundTrip(value);
  return again.ok() ? ValueText(*again) : again.status().ToString();
}

TEST(UnpickleTest, ReadsScalarsOfEveryProtocol) {
  EXPECT_EQ(ReadHex(samples::kListOfScalars),
            "[None, True, False, 0, 255, 65535, -1, 2147483648, "
            "-1099511627776, 9223372036854775807, -9223372036854775808, 1.5]");
  EXPECT_EQ(ReadHex(samples::kListOfScalars4),
            "[None, True, -9223372036854775808, 1.5]");
  EXPECT_EQ(ReadHex(samples::kText2),
            "['plain', '\xc3\xa9', '\xf0\x9d\x84\x9e', 'lone \xed\xa0\x80']");
  EXPECT_EQ(ReadHex(samples::kText4), "['plain', '\xc3\xa9']");
  EXPECT_EQ(ReadHex(samples::kBytes2), "b'ab\\xff\\x00'");
  EXPECT_EQ(ReadHex(samples::kBytes4), "b'ab\\xff\\x00'");
  EXPECT_EQ(ReadHex(samples::kByteArray2), "b'ab'");
  EXPECT_EQ(ReadHex(samples::kByteArray5), "b'ab'");
  EXPECT_EQ(Read("\x80\x02"
                 "c__builtin__\nbytes\n)R."),
            "b''");
}

TEST(UnpickleTest, KeepsIntsBeyond64BitsExactly) {
  EXPECT_EQ(ReadHex(samples::kBigInts),
            "[builtins.int(b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x00'), "
            "builtins.int(b'\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x7f\\xff'), "
            "builtins.int(b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01')]");
}

TEST(UnpickleTest, ReadsContainersOfEveryProtocol) {
  EXPECT_EQ(ReadHex(samples::kOrdered), "OrderedDict{'a': 1, 'b': 2}");
  EXPECT_EQ(ReadHex(samples::kOrdered4), "OrderedDict{'a': 1, 'b': 2}");
  EXPECT_EQ(ReadHex(samples::kDefaultDict), "{'a': 1}");
  EXPECT_EQ(ReadHex(samples::kCounter), "{'a': 2}");
  for (const auto set : {samples::kSet2, samples::kSet4}) {
    EXPECT_EQ(ReadHex(set), "builtins.set([7])");
  }
  for (const auto set : {samples::kFrozenSet2, samples::kFrozenSet4}) {
    EXPECT_EQ(ReadHex(set), "builtins.frozenset([7])");
  }
  // As Python 2 pickled OrderedDict([('a', 1)]): a list of pairs.
  EXPECT_EQ(Read("\x80\x02"
                 "ccollections\nOrderedDict\n(](U\x01"
                 "aK\x01tatR."),
            "OrderedDict{'a': 1}");
}

TEST(UnpickleTest, ReadsTorchAndPythonObjects) {
  EXPECT_EQ(ReadHex(samples::kDevice), "torch.device(('cuda', 1))");
  EXPECT_EQ(ReadHex(samples::kSize), "(2, 3)");
  EXPECT_EQ(ReadHex(samples::kDtype), "torch.bfloat16");
  EXPECT_EQ(ReadHex(samples::kComplex), "builtins.complex((1, 2))");
}

TEST(UnpickleTest, ReadsNumpyScalarsAndArrays) {
  EXPECT_EQ(ReadHex(samples::kNumpyScalars2),
            "[0.753, 0.5, 0.25, -5, 200, builtins.int("
            "b'\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00'), True]");
  EXPECT_EQ(ReadHex(samples::kNumpyScalars4), "[0.753, -5]");
  for (const auto array :
       {samples::kNumpyArray2, samples::kNumpyArray4, samples::kNumpyArray5}) {
    EXPECT_EQ(ReadHex(array), "float32[2, 3](0 1 2 3 4 5)");
  }
  EXPECT_EQ(ReadHex(samples::kNumpyBigEndian), "float32[3](0 1 2)");
  for (const auto array : {samples::kNumpyFortran, samples::kNumpyFortran5}) {
    EXPECT_EQ(ReadHex(array), "int64[2, 3](0 1 2 3 4 5)");
  }
  EXPECT_EQ(ReadHex(samples::kNumpyEmpty), "float64[0, 3]()");
  const absl::StatusOr<Value> number = Load(Bytes(samples::kNumpyZeroD));
  ASSERT_THAT(number, IsOk());
  EXPECT_EQ(number->tensor()->scalar_type(), at::kUInt16);
  EXPECT_EQ(number->tensor()->dim(), 0);
}

TEST(UnpickleTest, RefusesNumpyTypesThatTensorsDoNotHave) {
  EXPECT_THAT(ReadHex(samples::kNumpyStrings), HasSubstr("'U1'"));
  EXPECT_THAT(ReadHex(samples::kNumpyObjects), HasSubstr("'O8'"));
  EXPECT_THAT(ReadHex(samples::kNumpyStructured), HasSubstr("structured"));
}

TEST(UnpickleTest, SharedContainersStayShared) {
  const absl::StatusOr<Value> value = Load(Bytes(samples::kSharedList));
  ASSERT_THAT(value, IsOk());
  ASSERT_EQ(ValueText(*value), "[[1, 2], [1, 2]]");
  EXPECT_EQ((*value->items())[0].identity(), (*value->items())[1].identity());
}

TEST(UnpickleTest, RefusesUnknownClassesByName) {
  EXPECT_THAT(Load(Bytes(samples::kNamespace)),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("'argparse.Namespace'")));
  for (const char* name :
       {"posix\nsystem", "os\nsystem", "builtins\neval", "builtins\ngetattr",
        "__builtin__\nexec", "subprocess\nPopen", "torch\nload",
        "torch.hub\nload", "numpy\nload", "torch.storage\n_load_from_bytes",
        "collections\nOrderedDict.clear", "torch\nFloatStorage.x"}) {
    EXPECT_THAT(Load(absl::StrCat("\x80\x02", "c", name, "\n)R.")),
                StatusIs(absl::StatusCode::kPermissionDenied,
                         HasSubstr("nothing is executed")))
        << name;
  }
  // Known, but not to be called.
  for (const char* name :
       {"builtins\nlist", "torch\nFloatStorage",
        "torch.nn.parameter\nParameter", "numpy\nndarray", "torch\nfloat32"}) {
    EXPECT_THAT(
        Load(absl::StrCat("\x80\x02", "c", name, "\n)R.")),
        StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("a call of")))
        << name;
  }
}

TEST(UnpickleTest, KeepsUnknownClassesWhereAsked) {
  UnpickleOptions options;
  options.keep_unknown_classes = true;
  const absl::StatusOr<Value> value = Load(Bytes(samples::kNamespace), options);
  ASSERT_THAT(value, IsOk());
  EXPECT_THAT(ValueText(*value), HasSubstr("argparse.Namespace"));
  EXPECT_THAT(ValueText(*value), HasSubstr("{'lr': 1}"));
  EXPECT_THAT(Load("\x80\x02"
                   "cposix\nsystem\nU\x02ls\x85R.",
                   options),
              IsOk());
}

TEST(UnpickleTest, RefusesModulesAndOldViews) {
  // The persistent id of torch.save(model) before torch 1.6.
  EXPECT_THAT(Read("\x80\x02(U\x06moduleK\x01tQ."), HasSubstr("state_dict()"));
  EXPECT_THAT(Read("\x80\x02((U\x07storagectorch\nFloatStorage\nU\x01"
                   "0U\x03"
                   "cpuK\x01(U\x01"
                   "1K\x01K\x01ttQ."),
              HasSubstr("before torch 0.4"));
}

// The pickle of one tensor, with these parts.
std::string TensorPickle(const std::string& storage_count,
                         const std::string& offset, const std::string& sizes,
                         const std::string& strides) {
  return absl::StrCat(
      "\x80\x02"
      "ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\n"
      "U\x01"
      "0U\x03"
      "cpu",
      storage_count, "tQ", offset, "(", sizes, "t(", strides,
      "t\x89"
      "ccollections\nOrderedDict\n)RtR.");
}
std::string One(int value) {
  return absl::StrCat("K", std::string(1, static_cast<char>(value)));
}
std::string Eight(int64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return absl::StrCat("\x8a\x08", bytes);
}

TEST(UnpickleTest, ReadsViewsOfAStorage) {
  const absl::StatusOr<Value> value =
      Load(TensorPickle(One(24), One(8), One(2) + One(3), One(6) + One(1)));
  ASSERT_THAT(value, IsOk());
  const at::Tensor& tensor = *value->tensor();
  EXPECT_EQ(tensor.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(tensor.strides(), at::IntArrayRef({6, 1}));
  EXPECT_EQ(tensor.storage_offset(), 8);
  EXPECT_EQ(tensor.storage().nbytes(), 96);
  EXPECT_FALSE(tensor.requires_grad());
}

TEST(UnpickleTest, RefusesTensorsBeyondTheirStorage) {
  const int64_t huge = int64_t{1} << 40;
  const int64_t top = std::numeric_limits<int64_t>::max();
  for (const std::string& bytes : {
           TensorPickle(One(4), One(0), One(5), One(1)),
           TensorPickle(One(4), One(1), One(4), One(1)),
           TensorPickle(One(4), One(0), One(2), One(4)),
           TensorPickle(One(4), One(5), One(0), One(1)),
           TensorPickle(One(4), Eight(-1), One(1), One(1)),
           TensorPickle(One(4), One(0), Eight(-1), One(1)),
           TensorPickle(One(4), One(0), One(2), Eight(-1)),
           TensorPickle(One(4), One(0), Eight(huge), One(1)),
           TensorPickle(One(4), One(0), Eight(top) + Eight(top),
                        One(0) + One(0)),
           TensorPickle(One(4), One(0), Eight(top), Eight(top)),
           TensorPickle(One(4), Eight(top), One(2), Eight(top)),
           TensorPickle(One(4), One(0), One(2) + One(2), One(1)),
           // Expanded to four terabytes.
           TensorPickle(One(4), One(0), Eight(huge), One(0)),
           TensorPickle(Eight(-1), One(0), One(1), One(1)),
           TensorPickle(Eight(top), One(0), One(1), One(1)),
       }) {
    EXPECT_THAT(ParsePickle(bytes),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("")));
  }
  // A claim that only the bytes of the storage can refute: no memory yet.
  const auto claim =
      ParsePickle(TensorPickle(Eight(huge), One(0), Eight(huge), One(1)));
  ASSERT_THAT(claim, IsOk());
  EXPECT_EQ(claim->storages()[0].nbytes, 4 * huge);
  EXPECT_THAT(claim->Build([](const StorageRecord&) {
    return absl::DataLossError("no such storage");
  }),
              StatusIs(absl::StatusCode::kDataLoss, "no such storage"));
}

TEST(UnpickleTest, EveryPrefixEndsEarly) {
  for (const auto hex :
       {samples::kListOfScalars, samples::kNumpyArray2, samples::kNumpyArray5,
        samples::kOrdered4, samples::kNumpyScalars2}) {
    const std::string whole = Bytes(hex);
    for (size_t size = 0; size < whole.size(); ++size) {
      EXPECT_THAT(ParsePickle(whole.substr(0, size)),
                  StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("early")));
    }
    const auto parsed = ParsePickle(whole + "rest");
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(parsed->size(), whole.size());
  }
}

TEST(UnpickleTest, RefusesMalformedPickles) {
  using std::string_literals::operator""s;
  const std::pair<std::string, const char*> cases[] = {
      {"\x80\x06.", "protocol 6"},
      {"."s, "stack is empty"},
      {"0"s, "stack is empty"},
      {"2"s, "stack is empty"},
      {"1"s, "no mark"},
      {"t"s, "no mark"},
      {"\x85"s, "stack is empty"},
      {"Nh\x07."s, "back reference"},
      {"Nj\xff\xff\xff\xff."s, "back reference"},
      {"q\x01"s, "stack is empty"},
      {"(q\x01"s, "stack is empty"},
      {"NNa"s, "no list"},
      {"NNNs"s, "no dict"},
      {"}(Nu."s, "no dict"},
      {"N(N\x90"s, "no set"},
      {"NN\x93"s, "no string"},
      {"NNR"s, "no class"},
      {"ccollections\nOrderedDict\nNR"s, "no tuple"},
      {"ccollections\nOrderedDict\nK\x01\x85R"s, "unexpected arguments"},
      {"ccollections\nOrderedDict\n]Na\x85R"s, "no pairs"},
      {"]Nb"s, "a state"},
      {"}}b"s, "a state"},
      {"NQ"s, "no storage"},
      {")Q"s, "no storage"},
      {"X\x01\0\0\0\x80."s, "UTF-8"},
      {"}]Ns."s, "as the key"},
      {"I01\n."s, "opcode 0x49"},
      {"\x82\x01."s, "opcode 0x82"},
      {"\x97."s, "opcode 0x97"},
      {"c_codecs\nencode\nU\x01"
       "aU\x05utf-8\x86R"s,
       "unexpected arguments"},
      {"ctorch._utils\n_rebuild_tensor_v2\n)R"s, "unexpected arguments"},
      {"ctorch._utils\n_rebuild_parameter\nN\x85R"s, "unexpected arguments"},
      {"cnumpy\ndtype\nN\x85R"s, "unexpected arguments"},
      {"cnumpy._core.multiarray\nscalar\nNN\x86R"s, "unexpected arguments"},
      {"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x85R."s,
       "without data"},
      {absl::StrCat("c", std::string(600, 'x'), "\ny\n."), "no name"},
  };
  for (const auto& [bytes, message] : cases) {
    EXPECT_THAT(Load(bytes), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr(message)))
        << absl::CHexEscape(bytes);
  }
}

// Claims of lengths that the input does not have.
TEST(UnpickleTest, HugeLengthsNeedNoMemory) {
  using std::string_literals::operator""s;
  for (const std::string& bytes :
       {"X\xff\xff\xff\xff"s, "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s,
        "B\xff\xff\xff\xff"s, "\x8e\xff\xff\xff\xff\xff\xff\xff\x7f"s,
        "\x96\0\0\0\0\0\1\0\0"s, "\x8b\xff\xff\xff\x7f"s,
        "T\xff\xff\xff\x7f"s}) {
    EXPECT_THAT(ParsePickle(bytes),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("early")));
  }
  // A memo index is a number, not a size.
  EXPECT_THAT(Load("Nr\xff\xff\xff\xff."), IsOk());
}

TEST(UnpickleTest, RefusesDeepNesting) {
  std::string lists(100'000, ']');
  lists += std::string(99'999, 'a') + ".";
  EXPECT_THAT(Load(lists), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("nested deeper")));
  std::string tuples = "N" + std::string(100'000, '\x85') + ".";
  EXPECT_THAT(Load(tuples), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("nested deeper")));
  // Deep only by way of parts that were built before: each list holds the
  // earlier ones, the shallow first.
  std::string chain = "]](";
  for (int i = 0; i < 5; ++i) {
    if (i > 0) absl::StrAppend(&chain, "h", std::string(1, char(i - 1)));
    if (i == 0) chain += "N";
    chain += std::string(150, '\x85');
    absl::StrAppend(&chain, "q", std::string(1, char(i)));
  }
  chain += "ea.";
  EXPECT_THAT(Load(chain), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("nested deeper")));
  std::string fine = "N" + std::string(kMaxNesting, '\x85') + ".";
  EXPECT_THAT(Load(fine), IsOk());
}

TEST(UnpickleTest, RefusesCycles) {
  EXPECT_THAT(Load(Bytes(samples::kCycle)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("contains itself")));
  EXPECT_THAT(Load("}q\x01U\x01"
                   "ah\x01s."),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("contains itself")));
}

TEST(UnpickleTest, TellsTheLengthOfAKeyThatIsTooLong) {
  const std::string key(70000, 'k');
  const std::string dict = std::string("}X\x70\x11\x01\x00", 6) + key + "Ns.";
  EXPECT_THAT(Load(dict),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a string of 70000 bytes as the key")));
}

// Small inputs that unfold: sharing must keep them small.
TEST(UnpickleTest, MemoBombsStaySmall) {
  // Lists that hold the one before twice: 2^150 leaves.
  std::string doubling = "Nq\x01";
  for (int i = 0; i < 150; ++i) doubling += "0h\x01h\x01\x86q\x01";
  EXPECT_THAT(Load(doubling + "."), IsOk());
  // The same as the key of a dict.
  EXPECT_THAT(
      Load("}" + doubling + "Ns."),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("as the key")));
  // A string of 1 MB, named 500,000 times, also as keys of small dicts.
  std::string text = "X" + std::string("\0\0\x10\0", 4) +
                     std::string(1 << 20, 'x') + "q\x01" + "0](";
  for (int i = 0; i < 500'000; ++i) text += "h\x01";
  EXPECT_THAT(Load(text + "e."), IsOk());
  std::string keys = "X" + std::string("\0\xf0\0\0", 4) +
                     std::string(0xf000, 'x') + "q\x01" + "0](";
  for (int i = 0; i < 100'000; ++i) keys += "}h\x01Ns";
  EXPECT_THAT(Load(keys + "e."), IsOk());
  // Copies by call: bytes, dicts and arrays made again and again from one.
  std::string encoded =
      "c_codecs\nencode\nq\x02"
      "0X" +
      std::string("\0\0\x10\0", 4) + std::string(1 << 20, 'x') + "q\x01" +
      "0U\x06latin1q\x03"
      "0](";
  for (int i = 0; i < 10'000; ++i) encoded += "h\x02h\x01h\x03\x86R";
  EXPECT_THAT(Load(encoded + "e."),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("far more than its size")));
  std::string dicts =
      "ccollections\nOrderedDict\nq\x02"
      "0](";
  for (int i = 0; i < 10'000; ++i) dicts += "NN\x86";
  dicts +=
      "e\x85q\x01"
      "0](";
  for (int i = 0; i < 10'000; ++i) dicts += "h\x02h\x01R";
  EXPECT_THAT(Load(dicts + "e."),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("far more than its size")));
}

TEST(UnpickleTest, RandomDamageNeverCrashes) {
  std::mt19937 random(7);
  int accepted = 0;
  for (const auto hex :
       {samples::kListOfScalars, samples::kNumpyArray2, samples::kNumpyArray5,
        samples::kOrdered4, samples::kNumpyScalars2, samples::kSet4,
        samples::kNamespace, samples::kCounter, samples::kSharedList}) {
    const std::string whole = Bytes(hex);
    for (int i = 0; i < 4000; ++i) {
      std::string damaged = whole;
      for (int k = random() % 3; k >= 0; --k) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      UnpickleOptions options;
      options.keep_unknown_classes = random() % 2 == 0;
      if (Load(damaged, options).ok()) ++accepted;
    }
  }
  const std::string tensor =
      TensorPickle(One(24), One(8), One(2) + One(3), One(6) + One(1));
  for (int i = 0; i < 10'000; ++i) {
    std::string damaged = tensor;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto parsed = ParsePickle(damaged);
    if (parsed.ok() && parsed->storages().size() == 1 &&
        parsed->storages()[0].nbytes < 1 << 20) {
      if (parsed->Build(Counting).ok()) ++accepted;
    }
  }
  EXPECT_GT(accepted, 100);  // Much of the damage is in a value.
}

TEST(PickleTest, ValuesComeBack) {
  Dict state(/*ordered=*/true);
  state.Set("weight", 1);
  Dict metadata;
  metadata.Set("_metadata", Value(Dict(/*ordered=*/true)));
  state.set_attributes(metadata);
  Dict dict;
  dict.Set("epoch", 3);
  dict.Set(-7, Value::Tuple({1, 2.5, "three", Value()}));
  dict.Set(2.5, Value::List({true, false, Value::Bytes("\x00\xff raw")}));
  dict.Set("ints", Value::List({0, 255, 256, 65535, 65536, -1, -70000,
                                std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max()}));
  dict.Set("tuples",
           Value::List({Value::Tuple(), Value::Tuple({1}), Value::Tuple({1, 2}),
                        Value::Tuple({1, 2, 3}), Value::Tuple({1, 2, 3, 4})}));
  dict.Set("dtype", at::kBFloat16);
  dict.Set("state", state);
  dict.Set("\xc3\xa9", std::numeric_limits<double>::infinity());
  const Value value(dict);
  EXPECT_EQ(AgainText(value), ValueText(value));
}

TEST(PickleTest, HarmlessObjectsComeBack) {
  for (const auto hex : {samples::kBigInts, samples::kSet2, samples::kComplex,
                         samples::kDevice}) {
    const absl::StatusOr<Value> value = Load(Bytes(hex));
    ASSERT_THAT(value, IsOk());
    EXPECT_EQ(AgainText(*value), ValueText(*value));
  }
}

TEST(PickleTest, ManyEntriesAreWrittenInBatches) {
  Dict dict;
  std::vector<Value> list;
  for (int i = 0; i < 2500; ++i) {
    dict.Set(absl::StrCat("key", i), i);
    list.push_back(absl::StrCat("item", i));
  }
  dict.Set("list", Value::List(list));
  const Value value(dict);
  EXPECT_EQ(AgainText(value), ValueText(value));
}

TEST(PickleTest, SharedContainersAreWrittenOnce) {
  const Value shared = Value::List({1, 2});
  Value tower = Value::List({shared, shared});
  for (int i = 0; i < 100; ++i) tower = Value::List({tower, tower});
  const absl::StatusOr<Pickled> pickled = Pickle(tower);
  ASSERT_THAT(pickled, IsOk());
  EXPECT_LT(pickled->bytes.size(), 1000);
  const absl::StatusOr<Value> again = RoundTrip(Value::List({shared, shared}));
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ((*again->items())[0].identity(), (*again->items())[1].identity());
}

TEST(PickleTest, TensorsKeepStridesAndSharing) {
  const at::Tensor base = at::arange(24, at::kFloat);
  Dict dict;
  dict.Set("base", base);
  dict.Set("view", base.view({4, 6}).slice(1, 2, 5));
  dict.Set("transposed", base.view({4, 6}).t());
  dict.Set("expanded", base.slice(0, 0, 3).expand({4, 3}));
  dict.Set("scalar", at::ones({}));
  dict.Set("empty", at::empty({0, 3}));
  dict.Set("gradient", at::ones({2}).requires_grad_(true));
  const Value value(dict);
  const absl::StatusOr<Pickled> pickled = Pickle(value);
  ASSERT_THAT(pickled, IsOk());
  EXPECT_EQ(pickled->storages.size(), 4);
  const absl::StatusOr<Value> again = RoundTrip(value);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(ValueText(*again), ValueText(value));
  EXPECT_EQ(again->Find("transposed")->tensor()->strides(),
            at::IntArrayRef({1, 6}));
  EXPECT_EQ(again->Find("view")->tensor()->storage_offset(), 2);
  EXPECT_TRUE(again->Find("view")->tensor()->is_alias_of(
      *again->Find("base")->tensor()));
  EXPECT_FALSE(again->Find("gradient")->tensor()->requires_grad());
}

TEST(PickleTest, EveryDtypeComesBack) {
  for (const at::ScalarType dtype :
       {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
        at::kFloat, at::kDouble, at::kBool, at::kBFloat16, at::kComplexFloat,
        at::kComplexDouble, at::kComplexHalf, at::kUInt16, at::kUInt32,
        at::kUInt64, at::kFloat8_e5m2, at::kFloat8_e4m3fn}) {
    const at::Tensor tensor = at::zeros({2, 3}, dtype);
    static_cast<char*>(tensor.mutable_data_ptr())[tensor.nbytes() - 1] = 1;
    const absl::StatusOr<Value> again = RoundTrip(tensor);
    ASSERT_THAT(again, IsOk()) << DtypeName(dtype);
    EXPECT_EQ(again->tensor()->scalar_type(), dtype);
    EXPECT_EQ(again->tensor()->sizes(), tensor.sizes());
    EXPECT_EQ(std::memcmp(again->tensor()->const_data_ptr(),
                          tensor.const_data_ptr(), tensor.nbytes()),
              0);
  }
}

TEST(PickleTest, TwoDtypesOnOneStorageGetACopyEach) {
  const at::Tensor floats = at::ones({4});
  const Value value =
      Value::List({floats, floats.view(at::kInt), floats.view(at::kUInt32)});
  const absl::StatusOr<Pickled> pickled = Pickle(value);
  ASSERT_THAT(pickled, IsOk());
  EXPECT_EQ(pickled->storages.size(), 3);
  EXPECT_THAT(AgainText(value), HasSubstr("int32[4](1.06535e+09 1.06535e+09"));
}

TEST(PickleTest, NamesWhatItCannotSave) {
  Dict inner;
  inner.Set("bad", at::Tensor());
  Dict outer;
  outer.Set("optimizer", Value::List({1, inner}));
  EXPECT_THAT(Pickle(Value(outer)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("['optimizer'][1]['bad']: the tensor is "
                                 "undefined")));
  const std::pair<Value, const char*> cases[] = {
      {at::ones({2, 2}).to_sparse(), "dense"},
      {at::empty({2}, at::TensorOptions(at::kMeta)), "dense"},
      {at::ones({2}, at::kComplexFloat).conj(), "conjugate"},
      {"\xff", "UTF-8"},
      {at::ScalarType::QInt8, "dtype"},
      {Object{"argparse.Namespace", Value::Tuple(), {}}, "argparse.Namespace"},
      {Object{"builtins.frozenset", Value::List(), {}}, "frozenset"},
      {Object{"builtins.int", 3, {}}, "builtins.int"},
      {Object{"torch.device", Value::Tuple({"cpu"}), 3}, "torch.device"},
  };
  for (const auto& [value, message] : cases) {
    EXPECT_THAT(Pickle(value), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr(message)));
  }
  Dict odd(/*ordered=*/true);
  odd.set_attributes(3);
  EXPECT_THAT(Pickle(odd), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("attributes")));
  Value deep;
  for (int i = 0; i <= kMaxNesting; ++i) deep = Value::List({deep});
  EXPECT_THAT(Pickle(deep), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("nested deeper")));
}

}  // namespace
}  // namespace mir::checkpoint
