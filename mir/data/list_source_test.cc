#include "mir/data/list_source.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/data/nifti_test_util.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::data {
namespace {

using mir::testing::IsOk;
using mir::testing::StatusIs;
using mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// A folder of its own for each test, with images a to e and labels la to le of
// 4x3x2 voxels, all of one value: 1 to 5.
class ListTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(
        "list_",
        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(TestPath(folder_));
    for (int at = 0; at < 5; ++at) {
      RawNifti raw;
      raw.size = {4, 3, 2};
      raw.voxels = std::vector<double>(24, at + 1.0);
      const std::string name(1, static_cast<char>('a' + at));
      Write(name + ".nii", raw);
      Write("l" + name + ".nii", raw);
    }
    options_.intensity.kind = Intensity::Kind::kNone;
  }

  void Write(const std::string& name, const RawNifti& raw) {
    WriteTestFile(folder_ + "/" + name, raw.Bytes());
  }
  std::string PathOf(const std::string& name) {
    return TestPath(folder_ + "/" + name);
  }

  absl::StatusOr<DatasetList> Read(const std::string& json,
                                   bool with_training = true) {
    return ReadDatasetList(WriteTestFile(folder_ + "/dataset.json", json),
                           options_, with_training);
  }

  std::string folder_;
  PrepareOptions options_;
};

TEST_F(ListTest, ReadsLearn2RegsLayout) {
  // As the challenge's lists are: images of validation pairs among the training
  // images, labels with the latter, and much that says nothing here.
  const auto list = Read(R"({
    "name": "OASIS", "release": "1.1", "pairings": "unpaired",
    "tensorImageSize": {"0": "3D"}, "tensorImageShape": {"0": [4, 3, 2]},
    "modality": {"0": "MR"}, "labels": {"0": {"0": "background"}},
    "numTraining": 5, "numTest": 0,
    "training": [
      {"image": "./a.nii", "label": "./la.nii", "mask": "./ma.nii"},
      {"image": "./b.nii", "label": "./lb.nii"},
      {"image": "./c.nii", "label": "./lc.nii"},
      {"image": "./d.nii", "label": "./ld.nii"},
      {"image": "./e.nii"}],
    "test": [], "numPairedTraining": 0, "training_paired_images": [],
    "numRegistration_val": 1,
    "registration_val": [{"fixed": "./a.nii", "moving": "./b.nii"}],
    "registration_test": []})");
  ASSERT_THAT(list, IsOk());
  ASSERT_THAT(list->training_images, SizeIs(3));
  EXPECT_EQ(list->training_images[0].image, PathOf("c.nii"));
  EXPECT_EQ(list->training_images[0].labels, PathOf("lc.nii"));
  EXPECT_EQ(list->training_images[2].labels, "");
  EXPECT_THAT(list->training_images[0].grid.size, ElementsAre(4, 3, 2));
  EXPECT_THAT(list->training_pairs, IsEmpty());
  ASSERT_THAT(list->validation_pairs, SizeIs(1));
  EXPECT_EQ(list->validation_pairs[0].fixed.labels, PathOf("la.nii"));
  EXPECT_EQ(list->validation_pairs[0].moving.labels, PathOf("lb.nii"));
  EXPECT_THAT(list->notes,
              ElementsAre(HasSubstr("2 of 5 training images are in validation "
                                    "pairs too: they are left out")));
}

TEST_F(ListTest, ReadsPairsFromEitherPlace) {
  auto list = Read(R"({
    "training": [{"fixed": "a.nii", "moving": "b.nii",
                  "fixed_label": "la.nii", "moving_label": "lb.nii"},
                 {"fixed": "b.nii", "moving": "a.nii"}]})");
  ASSERT_THAT(list, IsOk());
  EXPECT_THAT(list->training_images, IsEmpty());
  ASSERT_THAT(list->training_pairs, SizeIs(2));
  EXPECT_EQ(list->training_pairs[0].moving.labels, PathOf("lb.nii"));
  EXPECT_EQ(list->training_pairs[1].moving.labels, "");
  EXPECT_THAT(list->validation_pairs, IsEmpty());

  list = Read(R"({
    "pairings": "paired",
    "training": [{"image": "a.nii", "label": "la.nii"}, {"image": "b.nii"}],
    "training_paired_images": [{"fixed": "a.nii", "moving": "b.nii"}],
    "validation": [{"image": "c.nii"}, {"image": "d.nii"},
                   {"image": "e.nii"}]})");
  ASSERT_THAT(list, IsOk());
  EXPECT_THAT(list->training_images, IsEmpty());
  ASSERT_THAT(list->training_pairs, SizeIs(1));
  EXPECT_EQ(list->training_pairs[0].fixed.labels, PathOf("la.nii"));
  ASSERT_THAT(list->validation_pairs, SizeIs(2));
  EXPECT_EQ(list->validation_pairs[1].fixed.image, PathOf("d.nii"));
  EXPECT_EQ(list->validation_pairs[1].moving.image, PathOf("e.nii"));
}

TEST_F(ListTest, TrainsOnValidationImagesOnlyWhereThereAreTooFewOthers) {
  const auto list = Read(R"({
    "training": [{"image": "a.nii"}, {"image": "b.nii"}, {"image": "c.nii"}],
    "validation": [{"fixed": "a.nii", "moving": "b.nii"}]})");
  ASSERT_THAT(list, IsOk());
  EXPECT_THAT(list->training_images, SizeIs(3));
  EXPECT_THAT(list->notes, ElementsAre(HasSubstr("too few others")));
}

TEST_F(ListTest, ALineEndingOrABlankLineDoesNotMatter) {
  EXPECT_THAT(Read("{\r\n\r\n\"training\": [\r\n{\"image\": \"a.nii\"},"
                   "\r\n\r\n{\"image\": \"b.nii\"}]\r\n}\r\n\r\n"),
              IsOk());
}

TEST_F(ListTest, NamesEachFaultByItsEntry) {
  RawNifti raw;
  raw.size = {2, 3, 4, 5};
  Write("series.nii", raw);
  raw.size = {3, 3, 2};
  Write("other.nii", raw);
  WriteTestFile(folder_ + "/cut.nii", raw.Bytes().substr(0, 400));
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"training": [)", "is no JSON: parse error at line 1"},
      {R"([1, 2])", "wanted an object"},
      {R"({})", "training: it is empty or missing"},
      {R"({"training": []})", "training: it is empty or missing"},
      {R"({"training": null})", "training: it is empty or missing"},
      {R"({"training": {"image": "a.nii"}})", "training: wanted a list"},
      {R"({"training": [{"image": "a.nii"}]})",
       "a single image has no partner"},
      {R"({"training": [{"image": "a.nii"}, "b.nii"]})",
       "training[1]: wanted {\"image\": ...}"},
      {R"({"training": [{"image": "a.nii"}, {"image": ["b.nii"]}]})",
       "training[1].image: wanted a file's name in quotes"},
      {R"({"training": [{"image": "a.nii"}, {"image": ""}]})",
       "training[1].image: wanted a file's name in quotes"},
      {R"({"training": [{"image": "a.nii"}, {"image": "absent.nii"}]})",
       "training[1]: "},
      {R"({"training": [{"image": "a.nii"}, {"image": "cut.nii"}]})",
       "is cut short: its header promises 424 bytes, it holds 400"},
      {R"({"training": [{"image": "a.nii"}, {"image": "series.nii"}]})",
       "is 4-D (2x3x4x5), a time series"},
      {R"({"training": [{"image": "a.nii"},
                        {"image": "b.nii", "label": "other.nii"}]})",
       "training[1]: image and labels differ in shape"},
      {R"({"training": [{"image": "a.nii"}, {"image": "./a.nii"}]})",
       "a.nii is training[0] already"},
      {R"({"training": [{"image": "a.nii"}, {"image": "other.nii"}]})",
       "resample both with a spacing"},
      {R"({"training": [{"image": "a.nii"},
                        {"fixed": "a.nii", "moving": "b.nii"}]})",
       "wanted single images or pairs, found both"},
      {R"({"training": [{"fixed": "a.nii", "moving": "a.nii"}]})",
       "training[0]: the fixed and the moving image are one file"},
      {R"({"training": [{"fixed": "a.nii"}]})",
       "training[0]: wanted a file as \"moving\""},
      {R"({"training": [{"fixed": "a.nii", "moving": "other.nii"}]})",
       "training[0]: the images of a pair lie on different grids"},
      {R"({"training": [{"image": "a.nii"}, {"image": "b.nii"}],
           "validation": [{"image": "c.nii"}]})",
       "validation: a single image has no partner"},
      {R"({"training": [{"image": "a.nii"}, {"image": "b.nii"}],
           "validation": [{"fixed": "c.nii", "moving": "d.nii"}],
           "registration_val": [{"fixed": "c.nii", "moving": "d.nii"}]})",
       "validation: registration_val is there too"},
      {R"({"training_paired_images": [{"image": "a.nii"}]})",
       "training_paired_images: wanted pairs"},
  };
  for (const auto& [json, message] : cases) {
    EXPECT_THAT(Read(json),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("dataset.json"), HasSubstr(message),
                               Not(HasSubstr("\n")))))
        << json;
  }
  EXPECT_THAT(ReadDatasetList(PathOf("absent.json"), options_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent.json")));
  EXPECT_THAT(ReadDatasetList(PathOf(""), options_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such list")));
}

TEST_F(ListTest, ListsAllFaultsAtOnce) {
  EXPECT_THAT(Read(R"({"training": [{"image": "x.nii"}, {"image": "y.nii"},
                                    {"image": "a.nii", "label": "z.nii"}],
                       "validation": [{"fixed": "v.nii", "moving": "w.nii"}]})"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("has 5 faults"), HasSubstr("x.nii"),
                             HasSubstr("y.nii"), HasSubstr("z.nii"),
                             HasSubstr("v.nii"), HasSubstr("w.nii"))));
  std::vector<std::string> entries;
  for (int at = 0; at < 30; ++at) {
    entries.push_back(absl::StrCat("{\"image\": \"n", at, ".nii\"}"));
  }
  EXPECT_THAT(
      Read(absl::StrCat("{\"training\": [", absl::StrJoin(entries, ","), "]}")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("has 30 faults"), HasSubstr("and 10 more"))));
}

TEST_F(ListTest, RegisteringNeedsNoTrainingPart) {
  const std::string json =
      R"({"validation": [{"fixed": "a.nii", "moving": "b.nii"}]})";
  EXPECT_FALSE(Read(json).ok());
  const auto list = Read(json, /*with_training=*/false);
  ASSERT_THAT(list, IsOk());
  EXPECT_THAT(list->validation_pairs, SizeIs(1));
  EXPECT_THAT(ListSource::Training(*list, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("nothing to train on")));
}

TEST_F(ListTest, PartnersAreFunctionsOfSeedEpochAndIndexAndNeverOneself) {
  const auto list = Read(R"({"training": [
      {"image": "a.nii"}, {"image": "b.nii"}, {"image": "c.nii"},
      {"image": "d.nii"}, {"image": "e.nii"}]})");
  ASSERT_THAT(list, IsOk());
  ListSourceOptions options;
  options.prepare = options_;
  options.seed = 3;
  const auto source = ListSource::Training(*list, options);
  const auto again = ListSource::Training(*list, options);
  options.seed = 4;
  const auto other = ListSource::Training(*list, options);
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ((*source)->size(), 5);
  std::set<std::string> seen;
  int differ = 0;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    for (int64_t index = 0; index < 5; ++index) {
      const ListedPair pair = (*source)->PairAt(epoch, index);
      EXPECT_NE(pair.fixed.image, pair.moving.image);
      EXPECT_EQ(pair.fixed.image, list->training_images[index].image);
      EXPECT_EQ((*again)->PairAt(epoch, index).moving.image, pair.moving.image);
      differ +=
          (*other)->PairAt(epoch, index).moving.image != pair.moving.image;
      seen.insert(pair.fixed.image + pair.moving.image);
    }
  }
  EXPECT_EQ(seen.size(), 20);  // Every image meets every other.
  EXPECT_GT(differ, 100);
  EXPECT_THAT((*source)->Get(0, 5), StatusIs(absl::StatusCode::kOutOfRange,
                                             HasSubstr("there are 5")));
}

TEST_F(ListTest, LoadsImagesAndLabelsAsTrainableTensors) {
  const auto list = Read(R"({
    "training": [{"fixed": "a.nii", "moving": "b.nii", "fixed_label": "la.nii",
                  "moving_label": "lb.nii"}],
    "validation": [{"fixed": "c.nii", "moving": "d.nii"}]})");
  ASSERT_THAT(list, IsOk());
  ListSourceOptions options;
  options.prepare = options_;
  const auto training = ListSource::Training(*list, options);
  const auto validation = ListSource::Validation(*list, options);
  ASSERT_THAT(training, IsOk());
  ASSERT_THAT(validation, IsOk());
  const c10::InferenceMode inference;  // As a caller may be in.
  const auto pair = (*training)->Get(0, 0);
  ASSERT_THAT(pair, IsOk());
  EXPECT_THAT(pair->fixed, TensorEq(at::full({1, 4, 3, 2}, 1.f)));
  EXPECT_THAT(pair->moving, TensorEq(at::full({1, 4, 3, 2}, 2.f)));
  EXPECT_THAT(pair->fixed_labels,
              TensorEq(at::full({1, 4, 3, 2}, 1, at::kInt)));
  EXPECT_THAT(pair->moving_labels,
              TensorEq(at::full({1, 4, 3, 2}, 2, at::kInt)));
  EXPECT_FALSE(pair->fixed.is_inference());
  EXPECT_THAT(pair->name, AllOf(HasSubstr("b.nii onto "), HasSubstr("a.nii")));
  EXPECT_FALSE((*validation)->Get(0, 0)->fixed_labels.defined());
}

TEST_F(ListTest, ResamplesGridsThatDiffer) {
  RawNifti raw;
  raw.size = {8, 6, 3};
  raw.srow = {1, 0, 0, -10.5, 0, 1, 0, -20.5, 0, 0, 2, -30.5};
  raw.voxels = std::vector<double>(144, 9.0);
  Write("fine.nii", raw);
  options_.spacing_mm = 2;
  const auto list =
      Read(R"({"training": [{"image": "a.nii"}, {"image": "fine.nii"}]})");
  ASSERT_THAT(list, IsOk());
  ListSourceOptions options;
  options.prepare = options_;
  const auto source = ListSource::Training(*list, options);
  const auto pair = (*source)->Get(0, 0);
  ASSERT_THAT(pair, IsOk());
  // a.nii: 4x3x2 voxels of 2x2x3 mm.
  EXPECT_THAT(pair->fixed, TensorEq(at::full({1, 4, 3, 3}, 1.f)));
  EXPECT_THAT(pair->moving, TensorEq(at::full({1, 4, 3, 3}, 9.f)));
}

TEST_F(ListTest, TellsWhatHeadersDoNot) {
  RawNifti raw;
  raw.size = {4, 3, 2};
  std::string packed = Gzip(raw.Bytes());
  packed[packed.size() - 8] ^= 1;
  WriteTestFile(folder_ + "/damaged.nii.gz", packed);
  const auto list =
      Read(R"({"training": [{"fixed": "a.nii", "moving": "damaged.nii.gz"}]})");
  ASSERT_THAT(list, IsOk());
  const auto source = ListSource::Training(*list, {});
  EXPECT_THAT((*source)->Get(0, 0),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("damaged.nii.gz is damaged")));
}

TEST_F(ListTest, KeepsVolumesInMemory) {
  const auto list =
      Read(R"({"training": [{"fixed": "a.nii", "moving": "b.nii"}]})");
  ASSERT_THAT(list, IsOk());
  for (const int64_t bytes : {int64_t{0}, int64_t{1} << 20}) {
    ListSourceOptions options;
    options.prepare = options_;
    options.cache_bytes = bytes;
    const auto source = ListSource::Training(*list, options);
    EXPECT_THAT((*source)->Get(0, 0), IsOk());
    std::filesystem::rename(PathOf("b.nii"), PathOf("away.nii"));
    EXPECT_EQ((*source)->Get(0, 0).ok(), bytes > 0);
    std::filesystem::rename(PathOf("away.nii"), PathOf("b.nii"));
  }
}

TEST(TensorCacheTest, KeepsWhatWasUsedLastWithinItsBytes) {
  TensorCache cache(100);
  const auto tensor = [](int64_t bytes) {
    return at::full({bytes}, 1, at::kByte);
  };
  cache.Insert("a", tensor(40));
  cache.Insert("b", tensor(40));
  EXPECT_TRUE(cache.Find("a").has_value());
  cache.Insert("c", tensor(40));  // b was unused the longest.
  EXPECT_TRUE(cache.Find("a").has_value());
  EXPECT_FALSE(cache.Find("b").has_value());
  EXPECT_TRUE(cache.Find("c").has_value());
  EXPECT_EQ(cache.bytes(), 80);
  cache.Insert("large", tensor(101));
  EXPECT_FALSE(cache.Find("large").has_value());
  cache.Insert("c", tensor(1));  // Known already.
  EXPECT_EQ(cache.bytes(), 80);
  cache.Insert("all", tensor(100));
  EXPECT_EQ(cache.bytes(), 100);
  EXPECT_FALSE(cache.Find("a").has_value());
}

}  // namespace
}  // namespace mir::data
