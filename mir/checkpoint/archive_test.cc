#include "mir/checkpoint/archive.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "mir/checkpoint/value.h"
#include "mir/checkpoint/value_text.h"
#include "mir/testing/status_matchers.h"

namespace mir::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Shared(const std::string& name) {
  return "tests/checkpoints/" + name;
}

std::string Temporary(const std::string& name) {
  return ::testing::TempDir() + "archive_test_" + name;
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string WriteBytes(const std::string& name, const std::string& bytes) {
  // Some file systems sync a file that is overwritten.
  fs::remove(Temporary(name));
  std::ofstream(Temporary(name), std::ios::binary) << bytes;
  return Temporary(name);
}

Value Load(const std::string& path) {
  absl::StatusOr<Value> value = ReadCheckpoint(path);
  EXPECT_THAT(value, IsOk()) << path;
  return value.ok() ? *std::move(value) : Value();
}

// The same numbers of the same dtype and shape.
void ExpectSame(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_EQ(actual.scalar_type(), expected.scalar_type());
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(actual.equal(expected));
}

// Every entry of the weights has the expected values, converted to its dtype.
void ExpectWeights(const Value* state, const std::string& prefix = "") {
  ASSERT_NE(state, nullptr);
  ASSERT_NE(state->dict(), nullptr);
  const Value expected = Load(Shared("expected_plain_dict.pt"));
  ASSERT_EQ(state->dict()->size(), expected.dict()->size());
  for (const auto& [key, value] : expected.dict()->entries()) {
    const std::string name = key.string()->substr(sizeof("expected/") - 1);
    const Value* actual = state->Find(prefix + name);
    ASSERT_NE(actual, nullptr) << name;
    ExpectSame(*actual->tensor(),
               value.tensor()->to(actual->tensor()->scalar_type()));
  }
}

TEST(ReadCheckpointTest, StateDictWithMetadata) {
  const Value state = Load(Shared("state_dict.pth"));
  ExpectWeights(&state);
  ASSERT_TRUE(state.dict()->ordered());
  EXPECT_EQ(*state.dict()->entries()[0].first.string(),
            "relative_position_index");
  const Value* metadata = state.dict()->attributes().Find("_metadata");
  ASSERT_NE(metadata, nullptr);
  EXPECT_EQ(metadata->Find("norm")->Find("version")->integer(), 2);
}

TEST(ReadCheckpointTest, FormatFromBeforeTorch16) {
  const Value state = Load(Shared("state_dict_legacy_nonzip.pth"));
  ExpectWeights(&state);
  EXPECT_FALSE(state.dict()->attributes().is_none());
}

TEST(ReadCheckpointTest, TrainingCheckpoints) {
  for (const auto& [file, key] :
       std::vector<std::pair<std::string, std::string>>{
           {"training.pth.tar", "state_dict"},
           {"model_state_dict.pth", "model_state_dict"}}) {
    const Value checkpoint = Load(Shared(file));
    ExpectWeights(checkpoint.Find(key));
    EXPECT_TRUE(checkpoint.Find("epoch")->integer().has_value());
    EXPECT_TRUE(checkpoint.Find("best_dsc")->number().has_value());
    const Value* first = checkpoint.Find("optimizer")->Find("state")->Find(0);
    ASSERT_NE(first, nullptr);
    EXPECT_NE(first->Find("max_exp_avg_sq")->tensor(), nullptr);
    EXPECT_NE(first->Find("step"), nullptr);
  }
}

TEST(ReadCheckpointTest, OddContents) {
  const Value scalar = Load(Shared("numpy_scalar.pth"));
  EXPECT_EQ(scalar.Find("best_dsc")->number(), 0.753);
  ExpectWeights(scalar.Find("state_dict"));
  const Value voxelmorph = Load(Shared("voxelmorph_style.pth"));
  ExpectWeights(voxelmorph.Find("model_state"));
  EXPECT_NE(voxelmorph.Find("config")->dict(), nullptr);
  const Value parameter = Load(Shared("parameter_objects.pth"));
  EXPECT_EQ(parameter.Find("weight")->tensor()->sizes(),
            at::IntArrayRef({2, 3}));
  EXPECT_FALSE(parameter.Find("weight")->tensor()->requires_grad());
  const Value prefixed = Load(Shared("module_prefix.pth"));
  ExpectWeights(&prefixed, "module.");
  const Value compiled = Load(Shared("compiled_in_ddp_prefix.pth"));
  ExpectWeights(&compiled, "module._orig_mod.");
}

TEST(ReadCheckpointTest, OtherPrecisions) {
  for (const auto& [file, dtype] :
       std::vector<std::pair<std::string, at::ScalarType>>{
           {"half.pth", at::kHalf},
           {"bfloat16.pth", at::kBFloat16},
           {"double.pth", at::kDouble}}) {
    const Value state = Load(Shared(file));
    EXPECT_EQ(state.Find("conv.weight")->tensor()->scalar_type(), dtype);
    ExpectWeights(&state);
  }
}

TEST(ReadCheckpointTest, ViewsAndSharedStorages) {
  const Value value = Load(Shared("strides_and_sharing.pth"));
  EXPECT_EQ(ValueText(*value.Find("view")), "float32[2, 3](8 9 10 14 15 16)");
  const at::Tensor& transposed = *value.Find("transposed")->tensor();
  EXPECT_EQ(transposed.strides(), at::IntArrayRef({1, 6}));
  EXPECT_TRUE(transposed.is_alias_of(*value.Find("view")->tensor()));
  int expanded = 0;
  int empty = 0;
  int scalars = 0;
  for (const auto& [key, item] : value.dict()->entries()) {
    const at::Tensor& tensor = *item.tensor();
    expanded += tensor.dim() > 0 && tensor.stride(0) == 0;
    empty += tensor.numel() == 0;
    scalars += tensor.dim() == 0;
  }
  EXPECT_EQ(expanded, 1);
  EXPECT_EQ(empty, 1);
  EXPECT_EQ(scalars, 1);
}

TEST(ReadCheckpointTest, TensorsFromAGpuComeToTheCpu) {
  const Value state = Load(Shared("saved_on_cuda.pth"));
  ExpectWeights(&state);
  EXPECT_TRUE(state.Find("conv.weight")->tensor()->is_cpu());
}

TEST(ReadCheckpointTest, MappedFilesHoldTheSame) {
  ReadOptions options;
  options.map = true;
  for (const char* name :
       {"state_dict.pth", "state_dict_legacy_nonzip.pth", "training.pth.tar",
        "half.pth", "strides_and_sharing.pth", "parameter_objects.pth",
        "saved_on_cuda.pth"}) {
    // Tensors outlive the file's name.
    const std::string copy = WriteBytes("mapped.pth", Content(Shared(name)));
    const absl::StatusOr<Value> mapped = ReadCheckpoint(copy, options);
    fs::remove(copy);
    ASSERT_THAT(mapped, IsOk()) << name;
    EXPECT_EQ(ValueText(*mapped), ValueText(Load(Shared(name)))) << name;
  }
  // Changing one changes neither the file nor what is read again.
  const std::string copy =
      WriteBytes("mapped.pth", Content(Shared("state_dict.pth")));
  const absl::StatusOr<Value> mapped = ReadCheckpoint(copy, options);
  ASSERT_THAT(mapped, IsOk());
  const at::Tensor weight = *mapped->Find("conv.weight")->tensor();
  weight.mul_(2);
  EXPECT_TRUE(weight.equal(Load(copy).Find("conv.weight")->tensor()->mul(2)));
  // The tensors' checksums are not looked at, the pickle's is.
  EXPECT_THAT(ReadCheckpoint(Shared("flipped_byte.pth"), options), IsOk());
  std::string damaged = Content(Shared("state_dict.pth"));
  damaged[damaged.find("head.bias")] = 'H';
  EXPECT_THAT(ReadCheckpoint(WriteBytes("pickle.pth", damaged), options),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("data.pkl")));
}

TEST(ReadCheckpointTest, TensorsGoWhereTheyAreAskedTo) {
  ReadOptions options;
  options.device = at::kMeta;
  for (const bool map : {false, true}) {
    options.map = map;
    const absl::StatusOr<Value> state =
        ReadCheckpoint(Shared("strides_and_sharing.pth"), options);
    ASSERT_THAT(state, IsOk());
    const at::Tensor& transposed = *state->Find("transposed")->tensor();
    EXPECT_TRUE(transposed.is_meta());
    EXPECT_EQ(transposed.strides(), at::IntArrayRef({1, 6}));
    EXPECT_TRUE(transposed.is_alias_of(*state->Find("view")->tensor()));
  }
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  options.device = c10::Device(at::kCUDA, 0);
  const absl::StatusOr<Value> state =
      ReadCheckpoint(Shared("saved_on_cuda.pth"), options);
  ASSERT_THAT(state, IsOk());
  const at::Tensor& weight = *state->Find("conv.weight")->tensor();
  EXPECT_EQ(weight.device(), options.device);
  ExpectSame(weight.cpu(),
             *Load(Shared("saved_on_cuda.pth")).Find("conv.weight")->tensor());
}

TEST(ReadCheckpointTest, RefusesHostileFilesAndRunsNothing) {
  EXPECT_THAT(
      ReadCheckpoint(Shared("hostile_reduce.pth")),
      StatusIs(absl::StatusCode::kPermissionDenied,
               AllOf(HasSubstr("hostile_reduce.pth"), HasSubstr("system'"))));
  EXPECT_THAT(ReadCheckpoint(Shared("hostile_bare.pkl")),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("hostile_bare.pkl"),
                             HasSubstr("'posix.system'"))));
  ReadOptions options;
  options.keep_unknown_classes = true;
  EXPECT_THAT(ReadCheckpoint(Shared("hostile_reduce.pth"), options), IsOk());
  EXPECT_FALSE(fs::exists("HOSTILE_CHECKPOINT_RAN"));
}

TEST(ReadCheckpointTest, RefusesDamagedFilesByName) {
  for (const char* name :
       {"truncated_empty.pth.tar", "truncated_1k.pth.tar",
        "truncated_half.pth.tar", "truncated_last_byte.pth.tar"}) {
    EXPECT_THAT(ReadCheckpoint(Shared(name)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(name)));
  }
  EXPECT_THAT(ReadCheckpoint(Shared("flipped_byte.pth")),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("flipped_byte.pth"),
                             HasSubstr("state_dict/data/1"))));
  ReadOptions options;
  options.check_crc = false;
  EXPECT_THAT(ReadCheckpoint(Shared("flipped_byte.pth"), options), IsOk());
}

TEST(ReadCheckpointTest, NamesWhatIsNoCheckpoint) {
  EXPECT_THAT(ReadCheckpoint(Temporary("absent.pth")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent.pth")));
  EXPECT_THAT(
      ReadCheckpoint(::testing::TempDir()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("folder")));
  for (const auto& [name, bytes] :
       std::vector<std::pair<std::string, std::string>>{
           {"text", "not a checkpoint at all"},
           {"one_byte", "P"},
           {"pickle", "\x80\x02}."},
           {"other_version",
            "\x80\x02\x8a\nl\xfc\x9c"
            "F\xf9 j\xa8P\x19.\x80\x02M\xe8\x03."},
       }) {
    EXPECT_THAT(ReadCheckpoint(WriteBytes(name, bytes)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(Temporary(name)),
                               HasSubstr("is no checkpoint"))));
  }
}

// Replaces one piece of a good file by another of the same length.
std::string Replaced(std::string bytes, const std::string& from,
                     const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  for (size_t at = bytes.find(from); at != std::string::npos;
       at = bytes.find(from, at + 1)) {
    bytes.replace(at, from.size(), to);
  }
  return bytes;
}

TEST(ReadCheckpointTest, NamesOtherKindsOfZipFiles) {
  const std::string good = Content(Shared("state_dict.pth"));
  ReadOptions options;
  options.check_crc = false;
  const auto read = [&](const std::string& name, const std::string& bytes) {
    return ReadCheckpoint(WriteBytes(name, bytes), options);
  };
  EXPECT_THAT(read("no_pickle", Replaced(good, "data.pkl", "data.txt")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("holds no data.pkl")));
  EXPECT_THAT(read("big_end", Replaced(good, "little", "biggie")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("byte order 'biggie'")));
  EXPECT_THAT(read("no_storage", Replaced(good, "/data/4", "/data/x")),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("lacks the entry 'state_dict/data/4'")));
  const std::string program = Temporary("program");
  caffe2::serialize::PyTorchStreamWriter writer(program);
  writer.writeRecord("data.pkl", "N.", 2);
  writer.writeRecord("constants.pkl", ").", 2);
  writer.writeEndOfFile();
  EXPECT_THAT(ReadCheckpoint(program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a TorchScript program")));
}

TEST(WriteCheckpointTest, ValuesComeBackBitEqual) {
  const at::Tensor base = at::arange(24, at::kFloat);
  Dict state(/*ordered=*/true);
  state.Set("weight", at::randn({3, 5}));
  state.Set("half", at::randn({7}).to(at::kHalf));
  state.Set("bfloat16", at::randn({7}).to(at::kBFloat16));
  state.Set("bool", at::ones({3}, at::kBool));
  state.Set("view", base.view({4, 6}).slice(1, 2, 5));
  state.Set("transposed", base.view({4, 6}).t());
  state.Set("scalar", at::ones({}, at::kLong));
  state.Set("empty", at::ones({0, 3}));
  Dict versions;
  versions.Set("_metadata", Dict(/*ordered=*/true));
  state.set_attributes(versions);
  Dict dict;
  dict.Set("state_dict", state);
  dict.Set("epoch", 7);
  dict.Set("config", Value::List({"tiny", 0.1, Value(), true}));
  const Value value(dict);
  const std::string path = Temporary("round_trip.pth");
  ASSERT_THAT(WriteCheckpoint(path, value), IsOk());
  const Value again = Load(path);
  EXPECT_EQ(ValueText(again), ValueText(value));
  const Value* weights = again.Find("state_dict");
  for (const auto& [key, item] : state.entries()) {
    ExpectSame(*weights->Find(*key.string())->tensor(), *item.tensor());
  }
  EXPECT_TRUE(weights->Find("view")->tensor()->is_alias_of(
      *weights->Find("transposed")->tensor()));

  // Tensors lie at multiples of 64, as torch.load(mmap=True) wants them.
  const std::string bytes = Content(path);
  const at::Tensor& weight = *state.Find("weight")->tensor();
  const size_t at = bytes.find(
      std::string(static_cast<const char*>(weight.const_data_ptr()), 60));
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(at % 64, 0);
}

TEST(WriteCheckpointTest, AnErrorLeavesTheLastGoodFile) {
  const std::string folder = Temporary("error");
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string path = folder + "/latest.pth";
  ASSERT_THAT(WriteCheckpoint(path, Value::List({1})), IsOk());
  Dict bad;
  bad.Set("weights", at::Tensor());
  EXPECT_THAT(WriteCheckpoint(path, Value(bad)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(path), HasSubstr("['weights']"))));
  // A limit on the size of files stands in for a full disk.
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t limit : {0, 100, 10'000, 1'000'000}) {
    struct rlimit small = before;
    small.rlim_cur = limit;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const absl::Status status =
        WriteCheckpoint(path, Value::List({at::ones({300'000}), 2}));
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_EQ(ValueText(Load(path)), "[1]");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  EXPECT_THAT(WriteCheckpoint(folder + "/absent/x.pth", Value()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent/x.pth")));
}

// Whatever happens to a file: an error or the right values, never a crash or a
// wrong value, and no memory beyond the file's size.
class DamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    std::ifstream statm("/proc/self/statm");
    size_t pages = 0;
    statm >> pages;
    struct rlimit limit = before_;
    limit.rlim_cur = pages * 4096 + (size_t{256} << 20);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  void TearDown() override { setrlimit(RLIMIT_AS, &before_); }

  static absl::StatusOr<Value> ReadBytes(const std::string& bytes,
                                         const ReadOptions& options = {}) {
    absl::StatusOr<Value> value =
        ReadCheckpoint(WriteBytes("damaged.pth", bytes), options);
    EXPECT_FALSE(absl::IsResourceExhausted(value.status())) << value.status();
    if (!value.ok()) {
      EXPECT_TRUE(absl::StrContains(value.status().message(), "damaged.pth"))
          << value.status();
    }
    return value;
  }

  struct rlimit before_ {};
};

TEST_F(DamageTest, EveryTruncationIsRefused) {
  for (const char* name :
       {"parameter_objects.pth", "half.pth", "state_dict_legacy_nonzip.pth"}) {
    const std::string whole = Content(Shared(name));
    for (size_t size = 0; size < whole.size(); size += 1 + size % 3) {
      EXPECT_FALSE(ReadBytes(whole.substr(0, size)).ok())
          << name << " " << size;
    }
  }
}

TEST_F(DamageTest, FlippedBitsAreFoundOrHarmless) {
  std::mt19937 random(3);
  for (const char* name : {"state_dict.pth", "strides_and_sharing.pth"}) {
    const std::string whole = Content(Shared(name));
    const std::string text = ValueText(Load(Shared(name)));
    int refused = 0;
    constexpr int kTries = 3000;
    for (int i = 0; i < kTries; ++i) {
      std::string damaged = whole;
      damaged[random() % damaged.size()] ^=
          static_cast<char>(1 << random() % 8);
      const absl::StatusOr<Value> value = ReadBytes(damaged);
      if (!value.ok()) {
        ++refused;
      } else {
        ASSERT_EQ(ValueText(*value), text);
      }
    }
    EXPECT_GT(refused, kTries / 4);
  }
}

TEST_F(DamageTest, DamageWithoutChecksumsNeverCrashes) {
  std::mt19937 random(4);
  ReadOptions options;
  options.check_crc = false;
  for (const char* name :
       {"state_dict.pth", "numpy_scalar.pth", "strides_and_sharing.pth",
        "state_dict_legacy_nonzip.pth", "parameter_objects.pth"}) {
    const std::string whole = Content(Shared(name));
    for (int i = 0; i < 3000; ++i) {
      options.keep_unknown_classes = i % 2 == 0;
      std::string damaged = whole;
      for (int k = 0; k <= i % 4; ++k) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      if (i % 16 == 0) damaged.resize(random() % damaged.size());
      const absl::StatusOr<Value> value = ReadBytes(damaged, options);
      if (value.ok()) ValueText(*value);  // Reads every element.
    }
  }
}

}  // namespace
}  // namespace mir::checkpoint
