#include "mir/data/nifti.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/data/grid.h"
#include "mir/data/nifti_test_util.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::data {
namespace {

using mir::testing::IsOk;
using mir::testing::StatusIs;
using mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// 0, 1, 2, ... in a file's order, as a [2, 3, 4] tensor.
at::Tensor Counted() {
  return at::arange(24, at::kFloat).view({4, 3, 2}).permute({2, 1, 0});
}

absl::StatusOr<Volume> ReadBytes(const std::string& name,
                                 const std::string& bytes) {
  return ReadImage(WriteTestFile(name, bytes));
}

// ---- Reading ----

TEST(NiftiReadTest, ReadsEveryDtypeVersionAndByteOrder) {
  for (const int datatype : {2, 4, 8, 16, 64, 256, 512, 768, 1024, 1280}) {
    for (const int version : {1, 2}) {
      for (const bool big_endian : {false, true}) {
        SCOPED_TRACE(absl::StrCat("datatype ", datatype, " version ", version,
                                  " big_endian ", big_endian));
        RawNifti raw;
        raw.datatype = datatype;
        raw.version = version;
        raw.big_endian = big_endian;

        const auto plain = ReadBytes("dtype.nii", raw.Bytes());
        const auto packed = ReadBytes("dtype.nii.gz", Gzip(raw.Bytes()));
        const auto labels = ReadLabels(TestPath("dtype.nii"));

        ASSERT_THAT(plain, IsOk());
        EXPECT_THAT(plain->voxels, TensorEq(Counted()));
        EXPECT_TRUE(plain->voxels.is_contiguous());
        EXPECT_THAT(plain->grid.size, ElementsAre(2, 3, 4));
        EXPECT_THAT(SpacingMm(plain->grid), ElementsAre(2, 2, 3));
        ASSERT_THAT(packed, IsOk());
        EXPECT_THAT(packed->voxels, TensorEq(Counted()));
        ASSERT_THAT(labels, IsOk());
        EXPECT_THAT(labels->voxels, TensorEq(Counted().to(at::kInt)));
      }
    }
  }
}

TEST(NiftiReadTest, ReadsNegativeAndLargeIntegers) {
  RawNifti raw;
  raw.size = {2, 1, 1};
  raw.datatype = 1024;
  raw.voxels = {-3e9, 5e12};
  const auto image = ReadBytes("large.nii", raw.Bytes());
  ASSERT_THAT(image, IsOk());
  EXPECT_EQ(image->voxels[0].item<float>(), -3e9f);
  EXPECT_EQ(image->voxels[1].item<float>(), 5e12f);
}

TEST(NiftiReadTest, TellsCompressionByTheFirstBytesNotByTheName) {
  const RawNifti raw;
  EXPECT_THAT(ReadBytes("plain.nii.gz", raw.Bytes()), IsOk());
  EXPECT_THAT(ReadBytes("packed.nii", Gzip(raw.Bytes())), IsOk());
  EXPECT_THAT(ReadBytes("packed.img", Gzip(raw.Bytes())), IsOk());
}

TEST(NiftiReadTest, ReadsGzipFilesOfSeveralMembersAndWithPadding) {
  const std::string bytes = RawNifti().Bytes();
  const std::string parts =
      Gzip(bytes.substr(0, 360)) + Gzip(bytes.substr(360));
  for (const std::string& end : {std::string(), std::string(100, '\0')}) {
    const auto image = ReadBytes("parts.nii.gz", parts + end);
    ASSERT_THAT(image, IsOk());
    EXPECT_THAT(image->voxels, TensorEq(Counted()));
    EXPECT_THAT(ReadGrid(TestPath("parts.nii.gz")), IsOk());
  }
}

TEST(NiftiReadTest, ScalesUnlessTheSlopeIsZeroOrNone) {
  RawNifti raw;
  raw.datatype = 4;
  raw.slope = 2;
  raw.inter = -1;
  EXPECT_THAT(ReadBytes("scaled.nii", raw.Bytes())->voxels,
              TensorEq(2 * Counted() - 1));
  raw.slope = 1;
  EXPECT_THAT(ReadBytes("scaled.nii", raw.Bytes())->voxels,
              TensorEq(Counted() - 1));
  for (const double slope : {0.0, kNan}) {
    raw.slope = slope;
    EXPECT_THAT(ReadBytes("scaled.nii", raw.Bytes())->voxels,
                TensorEq(Counted()));
  }
  raw.slope = 2;
  raw.inter = kNan;
  EXPECT_THAT(ReadBytes("scaled.nii", raw.Bytes()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("scl_inter is not finite")));
}

TEST(NiftiReadTest, PrefersSformThenQformThenSpacing) {
  RawNifti raw;
  raw.sform_code = 1;
  raw.qform_code = 1;
  raw.quatern = {0, 0, 1};  // Half a turn about z.
  raw.qoffset = {5, 6, 7};
  for (const int version : {1, 2}) {
    raw.version = version;
    raw.sform_code = 1;
    raw.qform_code = 1;
    auto grid = ReadBytes("forms.nii", raw.Bytes())->grid;
    EXPECT_THAT(grid.to_world[0], ElementsAre(2, 0, 0, -10));
    EXPECT_EQ(Orientation(grid), "RAS");

    raw.sform_code = 0;
    grid = ReadBytes("forms.nii", raw.Bytes())->grid;
    EXPECT_THAT(grid.to_world[0], ElementsAre(-2, 0, 0, 5));
    EXPECT_THAT(grid.to_world[1], ElementsAre(0, -2, 0, 6));
    EXPECT_THAT(grid.to_world[2], ElementsAre(0, 0, 3, 7));

    raw.pixdim[0] = -1;  // qfac: the third axis is flipped.
    grid = ReadBytes("forms.nii", raw.Bytes())->grid;
    EXPECT_EQ(Orientation(grid), "LPI");
    raw.pixdim[0] = 1;

    raw.qform_code = 0;
    grid = ReadBytes("forms.nii", raw.Bytes())->grid;
    EXPECT_THAT(grid.to_world[0], ElementsAre(2, 0, 0, 0));
    EXPECT_THAT(grid.to_world[2], ElementsAre(0, 0, 3, 0));
  }
}

TEST(NiftiReadTest, TakesFlatAndSingleVolumeFilesAsThreeDimensional) {
  RawNifti raw;
  raw.size = {2, 3, 4, 1};
  EXPECT_THAT(ReadBytes("one.nii", raw.Bytes())->voxels, TensorEq(Counted()));
  raw.size = {2, 3, 4, 1, 1};
  EXPECT_THAT(ReadBytes("one.nii", raw.Bytes())->voxels, TensorEq(Counted()));
  raw.size = {6, 4};
  EXPECT_THAT(ReadBytes("flat.nii", raw.Bytes())->grid.size,
              ElementsAre(6, 4, 1));
}

TEST(NiftiReadTest, SkipsExtensionsAndMendsAMissingOffset) {
  RawNifti raw;
  raw.vox_offset = 400;
  EXPECT_THAT(ReadBytes("offset.nii", raw.Bytes())->voxels,
              TensorEq(Counted()));
  raw.vox_offset = 0;
  EXPECT_THAT(ReadBytes("offset.nii", raw.Bytes())->voxels,
              TensorEq(Counted()));
}

TEST(NiftiReadTest, RefusesWhatIsNoVolumeInWords) {
  struct Case {
    const char* what;
    RawNifti raw;
    const char* message;
  };
  std::vector<Case> cases;
  const auto add = [&](const char* what, const char* message, auto change) {
    RawNifti raw;
    change(raw);
    cases.push_back({what, raw, message});
  };
  add("4-D", "is 4-D (2x3x2x2), a time series", [](RawNifti& raw) {
    raw.size = {2, 3, 2, 2};
  });
  add("5-D", "is 5-D (2x3x4x1x3), a field of vectors", [](RawNifti& raw) {
    raw.size = {2, 3, 4, 1, 3};
  });
  add("RGB", "colours", [](RawNifti& raw) { raw.datatype = 128; });
  add("RGBA", "colours", [](RawNifti& raw) { raw.datatype = 2304; });
  add("complex", "complex", [](RawNifti& raw) { raw.datatype = 32; });
  add("long double", "FLOAT128", [](RawNifti& raw) { raw.datatype = 1536; });
  add("bits", "datatype 1 ", [](RawNifti& raw) { raw.datatype = 1; });
  add("pair", "pair of files",
      [](RawNifti& raw) { raw.magic = std::string("ni1\0", 4); });
  add("analyze", "ANALYZE", [](RawNifti& raw) { raw.magic = "abcd"; });
  add("size 0", "damaged", [](RawNifti& raw) { raw.size = {2, 0, 4}; });
  add("negative size", "damaged", [](RawNifti& raw) { raw.size = {2, 3, -4}; });
  add("huge", "damaged", [](RawNifti& raw) {
    raw.version = 2;
    raw.size = {int64_t{1} << 40, 0, 1};
  });
  add("singular", "sform is singular", [](RawNifti& raw) { raw.srow = {}; });
  add("NaN sform", "sform is singular or not finite",
      [](RawNifti& raw) { raw.srow[3] = kNan; });
  add("NaN qform", "qform is singular or not finite", [](RawNifti& raw) {
    raw.sform_code = 0;
    raw.qform_code = 1;
    raw.qoffset[0] = kNan;
  });
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const std::string path = WriteTestFile("refused.nii", c.raw.Bytes());
    EXPECT_THAT(ReadImage(path),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(path), HasSubstr(c.message))));
    EXPECT_THAT(ReadGrid(path), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr(c.message)));
  }
}

TEST(NiftiReadTest, RefusesAnImpossibleOffset) {
  RawNifti raw;
  raw.version = 2;
  EXPECT_THAT(ReadBytes("offset.nii", raw.Bytes().replace(168, 8, 8, '\xFF')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("vox_offset is impossible")));
}

TEST(NiftiReadTest, NamesWhatIsNoFile) {
  EXPECT_THAT(ReadImage(TestPath("absent.nii")),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("absent.nii: no such file")));
  EXPECT_THAT(
      ReadImage(::testing::TempDir()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is a folder")));
  EXPECT_THAT(ReadImage("/dev/zero"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is no plain file")));
  EXPECT_THAT(ReadBytes("text.nii", "these are words, not a header"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is no NIfTI file")));
  EXPECT_THAT(ReadBytes("empty.nii", ""),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("it holds 0")));
}

TEST(NiftiReadTest, ATruncatedFileTellsTheBytesWantedAndGot) {
  const std::string bytes = RawNifti().Bytes();  // 352 + 96
  for (const bool whole : {false, true}) {
    const std::string path =
        WriteTestFile("short.nii", bytes.substr(0, whole ? 448 : 447));
    for (const absl::Status& status :
         {ReadImage(path).status(), ReadGrid(path).status()}) {
      if (whole) {
        EXPECT_THAT(status, IsOk());
      } else {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                     AllOf(HasSubstr(path), HasSubstr("448"),
                                           HasSubstr("447"))));
      }
    }
  }
}

TEST(NiftiReadTest, ATruncatedGzipFileNeverYieldsAZeroTail) {
  RawNifti raw;
  raw.size = {20, 20, 20};
  const std::string packed = Gzip(raw.Bytes());
  for (const size_t keep : {packed.size() - 1, packed.size() - 9,
                            packed.size() / 2, size_t{40}, size_t{11}}) {
    const std::string path =
        WriteTestFile("short.nii.gz", packed.substr(0, keep));
    EXPECT_THAT(ReadImage(path),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(path), HasSubstr("cut short"))))
        << keep;
    // The header alone knows too, by the length that the file ends with.
    EXPECT_THAT(ReadGrid(path),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cut short")))
        << keep;
  }
  // A good gzip file of too few bytes: wanted and got.
  EXPECT_THAT(ReadBytes("few.nii.gz", Gzip(raw.Bytes().substr(0, 1000))),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("32352"), HasSubstr("1000"))));
  EXPECT_THAT(ReadGrid(TestPath("few.nii.gz")),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("32352"), HasSubstr("1000"))));
}

TEST(NiftiReadTest, AWrongChecksumIsAnError) {
  std::string packed = Gzip(RawNifti().Bytes());
  packed[packed.size() - 8] ^= 1;
  EXPECT_THAT(ReadBytes("crc.nii.gz", packed),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("crc.nii.gz is damaged"),
                             HasSubstr("incorrect data check"))));
}

TEST(NiftiReadTest, NonFiniteVoxelsAreCountedAndTheFirstIsNamed) {
  RawNifti raw;
  raw.voxels = std::vector<double>(24, 1.0);
  raw.voxels[8] = kNan;  // (0, 1, 1)
  raw.voxels[9] = std::numeric_limits<double>::infinity();
  EXPECT_THAT(ReadBytes("nan.nii", raw.Bytes()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("nan.nii has 2 voxels"),
                             HasSubstr("(0, 1, 1)"))));
  raw.datatype = 64;
  raw.voxels = std::vector<double>(24, 1e300);  // Too large for float32.
  EXPECT_THAT(
      ReadBytes("nan.nii", raw.Bytes()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 24 voxels")));
}

TEST(NiftiReadTest, LabelsMustBeWholeNumbers) {
  RawNifti raw;
  raw.voxels = std::vector<double>(24, 7.0);
  EXPECT_THAT(ReadLabels(WriteTestFile("labels.nii", raw.Bytes())), IsOk());
  raw.voxels[5] = 1.5;  // (1, 2, 0)
  EXPECT_THAT(ReadLabels(WriteTestFile("labels.nii", raw.Bytes())),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("1 voxels"), HasSubstr("1.5"),
                             HasSubstr("(1, 2, 0)"))));
  raw.voxels[5] = kNan;
  EXPECT_THAT(ReadLabels(WriteTestFile("labels.nii", raw.Bytes())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nan")));
  raw.datatype = 768;
  raw.voxels[5] = 4e9;
  EXPECT_THAT(ReadLabels(WriteTestFile("labels.nii", raw.Bytes())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4e+09")));
}

TEST(NiftiReadTest, ScaledLabelsMayBeRounded) {
  RawNifti raw;
  raw.datatype = 4;
  raw.voxels = std::vector<double>(24, 300.0);
  raw.slope = 1.0 / 3;  // As float32: 100.000003 and so on.
  const auto labels = ReadLabels(WriteTestFile("scaled.nii", raw.Bytes()));
  ASSERT_THAT(labels, IsOk());
  EXPECT_EQ(labels->voxels.min().item<int>(), 100);
  raw.slope = 0.1234;
  EXPECT_THAT(ReadLabels(WriteTestFile("scaled.nii", raw.Bytes())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("37.02")));
}

// ---- Hostile files ----

TEST(NiftiHostileTest, NoTruncationCrashes) {
  for (const int version : {1, 2}) {
    RawNifti raw;
    raw.version = version;
    const std::string bytes = raw.Bytes();
    const std::string packed = Gzip(bytes);
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(ReadBytes("cut.nii", bytes.substr(0, length)).ok())
          << length;
    }
    for (size_t length = 0; length < packed.size(); ++length) {
      EXPECT_FALSE(ReadBytes("cut.nii.gz", packed.substr(0, length)).ok())
          << length;
    }
  }
}

TEST(NiftiHostileTest, NoChangedByteCrashes) {
  for (const int version : {1, 2}) {
    RawNifti raw;
    raw.version = version;
    raw.qform_code = version == 1 ? 1 : 0;
    const std::string bytes = raw.Bytes();
    const std::string packed = Gzip(bytes);
    for (size_t at = 0; at < bytes.size(); ++at) {
      for (const char flip : {'\x01', '\x10', '\x80', '\xFF'}) {
        std::string changed = bytes;
        changed[at] ^= flip;
        const std::string path = WriteTestFile("flip.nii", changed);
        const auto image = ReadImage(path);
        if (image.ok()) {
          EXPECT_LE(image->voxels.numel(), 96);
        } else {
          EXPECT_THAT(image.status().message(), HasSubstr(path));
        }
      }
    }
    for (size_t at = 0; at < packed.size(); ++at) {
      std::string changed = packed;
      changed[at] ^= 0x20;
      const auto image = ReadBytes("flip.nii.gz", changed);
      if (image.ok()) {  // The stream's time, name and system do not matter.
        EXPECT_THAT(image->voxels, TensorEq(Counted()));
      }
    }
  }
}

TEST(NiftiHostileTest, AHeaderThatPromisesTooMuchTakesNoMemory) {
  RawNifti raw;
  raw.size = {1, 1, 1};
  std::string bytes = raw.Bytes();
  for (const size_t axis : {1, 2, 3}) {  // 30000 along each: 108 TB.
    bytes.replace(40 + 2 * axis, 2, "\x30\x75");
  }
  EXPECT_THAT(ReadBytes("bomb.nii", bytes).status().message(),
              AnyOf(HasSubstr("damaged"), HasSubstr("cut short")));
  EXPECT_THAT(ReadBytes("bomb.nii.gz", Gzip(bytes)).status().message(),
              AnyOf(HasSubstr("damaged"), HasSubstr("cut short")));
}

// ---- Writing ----

Volume ReadReference(const RawNifti& raw) {
  return *ReadImage(WriteTestFile("reference.nii", raw.Bytes()));
}

TEST(NiftiWriteTest, ImagesComeBackWithTheReferencesHeader) {
  RawNifti raw;
  raw.qform_code = 3;  // qform and sform differ, and both must stay.
  raw.sform_code = 4;
  raw.quatern = {0, 0.1, 0.2};
  raw.qoffset = {1.5, 2.5, 3.5};
  raw.units = 10;
  for (const int version : {1, 2}) {
    raw.version = version;
    const Volume reference = ReadReference(raw);
    const std::string path = TestPath("written.nii");

    ASSERT_THAT(WriteImage(path, Counted() / 7, reference), IsOk());

    const auto image = ReadImage(path);
    ASSERT_THAT(image, IsOk());
    EXPECT_THAT(image->voxels, TensorEq(Counted() / 7));
    EXPECT_TRUE(SameGrid(image->grid, reference.grid));
    const std::string before = raw.Bytes();
    const std::string after = ReadTestFile(path);
    ASSERT_EQ(after.size(), before.size());
    // pixdim, qform and sform with their codes: bit for bit.
    for (const auto& [from, to] :
         version == 1
             ? std::vector<std::pair<int, int>>{{76, 92}, {252, 328}}
             : std::vector<std::pair<int, int>>{{104, 136}, {344, 496}}) {
      EXPECT_EQ(after.substr(from, to - from), before.substr(from, to - from));
    }
    EXPECT_EQ(NumberAt<uint8_t>(after, version == 1 ? 123 : 500), 10);
    EXPECT_EQ(NumberAt<int16_t>(after, version == 1 ? 70 : 12), 16);
    // Compressed, and with leading axes.
    ASSERT_THAT(WriteImage(TestPath("written.nii.gz"),
                           Counted().to(at::kDouble).unsqueeze(0).unsqueeze(0),
                           reference),
                IsOk());
    EXPECT_EQ(ReadTestFile(TestPath("written.nii.gz")).substr(0, 2),
              "\x1F\x8B");
    EXPECT_THAT(ReadImage(TestPath("written.nii.gz"))->voxels,
                TensorEq(Counted()));
  }
}

TEST(NiftiWriteTest, LabelsAreIntegersWithoutScaling) {
  RawNifti raw;
  raw.slope = 3;
  raw.inter = 4;
  const Volume reference = ReadReference(raw);
  const std::string path = TestPath("labels.nii");
  const at::Tensor labels = Counted().to(at::kInt);
  for (const auto& [low, high, datatype] :
       std::vector<std::tuple<int64_t, int64_t, int>>{{0, 255, 2},
                                                      {0, 256, 4},
                                                      {-1, 255, 4},
                                                      {-32768, 32767, 4},
                                                      {0, 32768, 8},
                                                      {0, 2147483647, 8}}) {
    at::Tensor values = labels.to(at::kLong).contiguous();
    values.view({-1})[0] = low;
    values.view({-1})[1] = high;
    ASSERT_THAT(WriteLabels(path, values, reference), IsOk());
    const std::string bytes = ReadTestFile(path);
    EXPECT_EQ(NumberAt<int16_t>(bytes, 70), datatype);
    EXPECT_EQ(NumberAt<float>(bytes, 112), 1);
    EXPECT_EQ(NumberAt<float>(bytes, 116), 0);
    EXPECT_THAT(ReadLabels(path)->voxels, TensorEq(values.to(at::kInt)));
  }
  EXPECT_THAT(
      WriteLabels(path, at::full({2, 3, 4}, int64_t{1} << 31, at::kLong),
                  reference),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("32 bits")));
}

TEST(NiftiWriteTest, ResavingLabelsNeverDrifts) {
  RawNifti raw;
  raw.datatype = 4;
  raw.slope = 0.1f;  // Labels 0.0 to 230.0 in steps of 10.
  for (int at = 0; at < 24; ++at) raw.voxels.push_back(100.0 * at);
  Volume labels = *ReadLabels(WriteTestFile("drift.nii", raw.Bytes()));
  for (int round = 0; round < 3; ++round) {
    ASSERT_THAT(WriteLabels(TestPath("drift.nii"), labels.voxels, labels),
                IsOk());
    labels = *ReadLabels(TestPath("drift.nii"));
  }
  EXPECT_THAT(labels.voxels, TensorEq((10 * Counted()).to(at::kInt)));
}

TEST(NiftiWriteTest, AComputedGridGetsFormsOfItsOwn) {
  Volume reference;
  reference.grid.size = {2, 3, 4};
  const double c = std::cos(.3), s = std::sin(.3);
  reference.grid.to_world = {{{-2 * c, 3 * s, 0, 5},
                              {2 * s, 3 * c, 0, 6},
                              {0, 0, 4, 7},
                              {0, 0, 0, 1}}};
  const std::string path = TestPath("computed.nii");
  ASSERT_THAT(WriteImage(path, Counted(), reference), IsOk());
  EXPECT_TRUE(SameGrid(ReadImage(path)->grid, reference.grid));
  std::string bytes = ReadTestFile(path);
  EXPECT_EQ(NumberAt<int16_t>(bytes, 252), 2);
  // The qform alone says the same.
  bytes.replace(254, 2, 2, '\0');
  EXPECT_TRUE(SameGrid(ReadBytes("qform.nii", bytes)->grid, reference.grid));

  reference.grid.to_world[0][1] += 1;  // Sheared: no quaternion can say it.
  ASSERT_THAT(WriteImage(path, Counted(), reference), IsOk());
  EXPECT_TRUE(SameGrid(ReadImage(path)->grid, reference.grid));
  EXPECT_EQ(NumberAt<int16_t>(ReadTestFile(path), 252), 0);
}

TEST(NiftiWriteTest, SizesBeyondNifti1AreWrittenAsNifti2) {
  Volume reference;
  reference.grid.size = {40000, 1, 1};
  const std::string path = TestPath("long.nii");
  ASSERT_THAT(WriteLabels(path, at::zeros({40000, 1, 1}, at::kInt), reference),
              IsOk());
  EXPECT_EQ(NumberAt<int32_t>(ReadTestFile(path), 0), 540);
  EXPECT_THAT(ReadLabels(path)->grid.size, ElementsAre(40000, 1, 1));
}

TEST(NiftiWriteTest, RefusesWhatDoesNotFit) {
  const Volume reference = ReadReference(RawNifti());
  const at::Tensor image = at::zeros({2, 3, 4});
  const auto refused = [](const char* why) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why));
  };
  EXPECT_THAT(WriteImage(TestPath("a.nii"), at::zeros({4, 3, 2}), reference),
              refused("shape [2, 3, 4], as the reference has, got [4, 3, 2]"));
  EXPECT_THAT(WriteImage(TestPath("a.nii"), image.to(at::kInt), reference),
              refused("floating voxels, got Int"));
  EXPECT_THAT(WriteLabels(TestPath("a.nii"), image, reference),
              refused("integer labels, got Float"));
  EXPECT_THAT(
      WriteItkDisplacement(TestPath("a.nii"), at::zeros({2, 3, 4}), reference),
      refused("shape [3, 2, 3, 4]"));
  EXPECT_THAT(
      WriteVoxelDisplacement(TestPath("a.nii"),
                             at::zeros({3, 2, 3, 4}, at::kInt), reference),
      refused("floating displacement"));
  EXPECT_THAT(WriteImage(TestPath("a.mha"), image, reference),
              refused(".nii or .nii.gz"));
  EXPECT_THAT(
      WriteImage(TestPath("no/folder/a.nii"), image, reference),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("no/folder/a.nii")));
}

TEST(NiftiWriteTest, ReplacesTheOldFileOnlyWhenComplete) {
  const Volume reference = ReadReference(RawNifti());
  const std::string folder = TestPath("outputs");
  ASSERT_TRUE(std::filesystem::create_directories(folder + "/taken.nii"));
  const std::string path = folder + "/image.nii";
  ASSERT_THAT(WriteImage(path, Counted(), reference), IsOk());

  // A folder stands where the file should come; a shape is wrong.
  EXPECT_FALSE(WriteImage(folder + "/taken.nii", Counted(), reference).ok());
  EXPECT_FALSE(WriteImage(path, at::zeros({1, 2, 3}), reference).ok());

  EXPECT_THAT(ReadImage(path)->voxels, TensorEq(Counted()));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, UnorderedElementsAre("taken.nii", "image.nii"));
}

// The displacement at (i, j, k) of a written field.
std::vector<float> VectorAt(const std::string& bytes, size_t i, size_t j,
                            size_t k) {
  std::vector<float> vector;
  for (size_t component = 0; component < 3; ++component) {
    vector.push_back(NumberAt<float>(
        bytes, 352 + 4 * (i + 2 * (j + 3 * (k + 4 * component)))));
  }
  return vector;
}

TEST(NiftiWriteTest, ItkFieldsAreInMillimetresToTheLeftAndTheBack) {
  // 2x2x3 mm in RAS, shifted by 3 voxels along the first axis.
  const Volume reference = ReadReference(RawNifti());
  at::Tensor shift = at::zeros({1, 3, 2, 3, 4});
  shift.select(1, 0).fill_(3);

  ASSERT_THAT(WriteItkDisplacement(TestPath("itk.nii"), shift, reference),
              IsOk());
  ASSERT_THAT(WriteVoxelDisplacement(TestPath("voxels.nii"), shift, reference),
              IsOk());

  const std::string itk = ReadTestFile(TestPath("itk.nii"));
  const std::vector<int16_t> wanted_dim = {5, 2, 3, 4, 1, 3, 1, 1};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(NumberAt<int16_t>(itk, 40 + 2 * i), wanted_dim[i]);
  }
  EXPECT_EQ(NumberAt<int16_t>(itk, 68), 1007);
  EXPECT_EQ(NumberAt<int16_t>(itk, 70), 16);
  ASSERT_EQ(itk.size(), 352u + 4 * 3 * 24);
  const std::string voxels = ReadTestFile(TestPath("voxels.nii"));
  ASSERT_EQ(voxels.size(), itk.size());
  EXPECT_EQ(NumberAt<int16_t>(voxels, 68), 1007);
  for (const size_t i : {0, 1}) {
    EXPECT_THAT(VectorAt(itk, i, 2, 3), ElementsAre(-6, 0, 0));
    EXPECT_THAT(VectorAt(voxels, i, 2, 3), ElementsAre(3, 0, 0));
  }
}

TEST(NiftiWriteTest, FieldsInVoxelsComeBack) {
  const Volume reference = ReadReference(RawNifti());
  const at::Tensor shift = at::rand({3, 2, 3, 4}) - 0.5;
  const std::string path = TestPath("voxels.nii.gz");
  ASSERT_THAT(WriteVoxelDisplacement(path, shift, reference), IsOk());

  const auto field = ReadVoxelDisplacement(path);
  ASSERT_THAT(field, IsOk());
  EXPECT_THAT(field->voxels, TensorEq(shift));
  EXPECT_TRUE(SameGrid(field->grid, reference.grid));
  EXPECT_THAT(ReadImage(path), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("a field of vectors")));

  ASSERT_THAT(WriteItkDisplacement(path, shift, reference), IsOk());
  EXPECT_THAT(ReadVoxelDisplacement(path),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no displacement in voxels")));
  ASSERT_THAT(WriteImage(path, shift[0], reference), IsOk());
  EXPECT_THAT(ReadVoxelDisplacement(path),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("wanted a field of 3-D vectors")));
}

TEST(NiftiWriteTest, ItkFieldsFollowTheAxesOfTheGrid) {
  // First axis to the back, second to the head, third to the left.
  RawNifti raw;
  raw.srow = {0, 0, -3, 1, -2, 0, 0, 2, 0, 2, 0, 3};
  const Volume reference = ReadReference(raw);
  at::Tensor shift = at::zeros({3, 2, 3, 4});
  shift[0][1][0][2] = 1;
  shift[1][1][0][2] = 10;
  shift[2][1][0][2] = 100;

  ASSERT_THAT(WriteItkDisplacement(TestPath("axes.nii"), shift, reference),
              IsOk());

  const std::string bytes = ReadTestFile(TestPath("axes.nii"));
  // RAS: (-300, -2, 20); LPS has the first two negated.
  EXPECT_THAT(VectorAt(bytes, 1, 0, 2), ElementsAre(300, 2, 20));
  EXPECT_THAT(VectorAt(bytes, 0, 0, 2), ElementsAre(0, 0, 0));
}

TEST(NiftiWriteTest, ItkTakesTheQformWhereFormsDisagree) {
  RawNifti raw;  // sform: 2x2x3 mm, RAS.
  raw.qform_code = 2;
  raw.quatern = {0, 0, 1};  // Half a turn about z: LPS.
  at::Tensor shift = at::zeros({3, 2, 3, 4});
  shift.select(0, 0).fill_(3);
  const std::string path = TestPath("forms.nii");
  raw.sform_code = 2;
  ASSERT_THAT(WriteItkDisplacement(path, shift, ReadReference(raw)), IsOk());
  EXPECT_THAT(VectorAt(ReadTestFile(path), 1, 1, 1), ElementsAre(6, 0, 0));
  raw.sform_code = 1;  // A scanner's: ITK prefers it.
  ASSERT_THAT(WriteItkDisplacement(path, shift, ReadReference(raw)), IsOk());
  EXPECT_THAT(VectorAt(ReadTestFile(path), 1, 1, 1), ElementsAre(-6, 0, 0));
  raw.srow[1] = 1;  // But not if it is sheared.
  ASSERT_THAT(WriteItkDisplacement(path, shift, ReadReference(raw)), IsOk());
  EXPECT_THAT(VectorAt(ReadTestFile(path), 1, 1, 1), ElementsAre(6, 0, 0));
}

TEST(NiftiWriteTest, ItkTakesAxesWithoutFormsForItsOwn) {
  RawNifti raw;
  raw.sform_code = 0;
  const Volume reference = ReadReference(raw);
  at::Tensor shift = at::zeros({3, 2, 3, 4});
  shift.select(0, 0).fill_(3);
  ASSERT_THAT(WriteItkDisplacement(TestPath("bare.nii"), shift, reference),
              IsOk());
  EXPECT_THAT(VectorAt(ReadTestFile(TestPath("bare.nii")), 1, 1, 1),
              ElementsAre(6, 0, 0));
}

}  // namespace
}  // namespace mir::data
