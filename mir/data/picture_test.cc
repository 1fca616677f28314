#include "mir/data/picture.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <filesystem>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "mir/data/bitmap_font.h"
#include "mir/data/summary_picture.h"
#include "mir/testing/status_matchers.h"

namespace mir::data {
namespace {

using mir::testing::IsOk;
using mir::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Color kWhite = {255, 255, 255};

// The pixels of a PNG file.
Picture ReadPng(const std::string& path) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_file(&image, path.c_str()), 0) << path;
  image.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> bytes(PNG_IMAGE_SIZE(image));
  EXPECT_NE(png_image_finish_read(&image, nullptr, bytes.data(), 0, nullptr),
            0);
  Picture picture(image.width, image.height);
  for (int64_t at = 0; at < picture.width() * picture.height(); ++at) {
    picture.Blend(at % picture.width(), at / picture.width(),
                  {bytes[3 * at], bytes[3 * at + 1], bytes[3 * at + 2]});
  }
  return picture;
}

// The share of pixels that are not black.
double Lit(const Picture& picture) {
  int64_t lit = 0;
  for (int64_t y = 0; y < picture.height(); ++y) {
    for (int64_t x = 0; x < picture.width(); ++x) {
      const Color color = picture.At(x, y);
      lit += color.red + color.green + color.blue > 90;
    }
  }
  return static_cast<double>(lit) / (picture.width() * picture.height());
}

TEST(PictureTest, DrawsTheFirstAxisToTheRightAndTheSecondUp) {
  at::Tensor slice = at::zeros({2, 3});
  slice[1][0] = 1;
  slice[0][2] = 0.5;
  const Picture picture = GrayPicture(slice, 0, 1, 2, 3);
  EXPECT_EQ(picture.At(1, 2), kWhite);
  EXPECT_EQ(picture.At(0, 0), (Color{128, 128, 128}));
  EXPECT_EQ(picture.At(0, 2), Color());
  EXPECT_EQ(picture.At(1, 0), Color());
}

TEST(PictureTest, EnlargingMixesNeighboursAndKeepsTheFaces) {
  const Picture picture =
      GrayPicture(at::arange(2, at::kFloat).view({2, 1}), 0, 1, 8, 2);
  std::vector<int> row;
  for (int x = 0; x < 8; ++x) row.push_back(picture.At(x, 0).red);
  EXPECT_THAT(row, ElementsAre(0, 0, 32, 96, 159, 223, 255, 255));
}

TEST(PictureTest, DifferencesAreOrangeBlackAndBlue) {
  at::Tensor slice = at::zeros({3, 1});
  slice[0] = 2;
  slice[2] = -1;
  const Picture picture = DifferencePicture(slice, 2, 3, 1);
  EXPECT_GT(picture.At(0, 0).red, 250);
  EXPECT_LT(picture.At(0, 0).blue, 50);
  EXPECT_EQ(picture.At(1, 0), Color());
  EXPECT_GT(picture.At(2, 0).blue, 120);  // Half as strong.
  EXPECT_LT(picture.At(2, 0).blue, 130);
}

TEST(PictureTest, LinesHaveSmoothEdgesAndStayInside) {
  Picture picture(9, 9);
  picture.DrawLine(-5, 4, 100, 4, kWhite);
  EXPECT_EQ(picture.At(0, 4), kWhite);
  EXPECT_EQ(picture.At(8, 4), kWhite);
  EXPECT_EQ(picture.At(4, 3), Color());
  picture.DrawLine(2, 6.5, 6, 6.5, kWhite);
  EXPECT_EQ(picture.At(4, 6).red, picture.At(4, 7).red);
  EXPECT_EQ(picture.At(4, 6).red, 128);
  picture.DrawLine(-1e9, -1e9, 1e9, 1e9, kWhite);  // Clipped, not walked.
  EXPECT_EQ(picture.At(8, 8), kWhite);
}

TEST(PictureTest, TextIsLegible) {
  Picture picture(40, 7);
  picture.DrawText(0, 0, "1L", kWhite, 1);
  EXPECT_EQ(picture.At(2, 0), kWhite);  // The top of the 1.
  EXPECT_EQ(picture.At(6, 0), kWhite);  // The stem of the L, and its foot.
  EXPECT_EQ(picture.At(10, 6), kWhite);
  EXPECT_EQ(picture.At(10, 0), Color());
  EXPECT_EQ(Picture::TextWidth("1L", 1), 11);
  EXPECT_EQ(GlyphOf('a'), GlyphOf('A'));
  EXPECT_EQ(GlyphOf('\x7F'), GlyphOf('~'));  // The box.
  for (const char character : std::string("0123456789ABCXYZ.,:-+=/%()|_")) {
    EXPECT_NE(GlyphOf(character), GlyphOf('~')) << character;
  }
}

TEST(PictureTest, AGridShowsItsDisplacement) {
  const Picture still = GridPicture(at::zeros({2, 32, 32}), 8, 128, 128);
  at::Tensor shift = at::zeros({2, 32, 32});
  shift.select(0, 0).fill_(2);  // By 2 voxels: 8 pixels to the right.
  const Picture shifted = GridPicture(shift, 8, 128, 128);
  // A vertical line, away from the horizontal ones.
  int found = 0;
  for (int64_t x = 16; x < 100; ++x) {
    if (still.At(x, 9).green < 150) continue;
    EXPECT_EQ(still.At(x, 9), shifted.At(x + 8, 9));
    ++found;
  }
  EXPECT_GT(found, 3);
  EXPECT_THROW(GridPicture(at::zeros({3, 4, 4}), 8, 9, 9), c10::ValueError);
}

TEST(PictureTest, ACurveFallsAsItsValuesDo) {
  std::vector<double> values;
  for (int step = 0; step < 200; ++step) values.push_back(1 - step / 200.0);
  values[50] = std::numeric_limits<double>::quiet_NaN();
  const Picture picture = CurvePicture(values, 400, 200);
  const auto height_of = [&](int64_t x) {
    for (int64_t y = 0; y < 200; ++y) {
      if (picture.At(x, y).blue > 200) return y;
    }
    return int64_t{-1};
  };
  EXPECT_GE(height_of(100), 0);
  EXPECT_LT(height_of(100), height_of(200));
  EXPECT_LT(height_of(200), height_of(350));
  // What cannot be drawn as a curve is drawn all the same.
  EXPECT_GT(Lit(CurvePicture({}, 300, 100)), 0);
  EXPECT_GT(Lit(CurvePicture({3.0}, 300, 100)), 0);
  EXPECT_GT(Lit(CurvePicture({2.0, 2.0, 2.0}, 300, 100)), 0);
}

TEST(PictureTest, RefusesWhatIsNoSlice) {
  EXPECT_THROW(GrayPicture(at::zeros({2, 2, 2}), 0, 1, 4, 4), c10::ValueError);
  EXPECT_THROW(GrayPicture(at::zeros({2, 2}, at::kInt), 0, 1, 4, 4),
               c10::ValueError);
  EXPECT_THROW(Picture(0, 5), c10::ValueError);
}

TEST(SummaryPictureTest, WritesAPngWithEveryPanel) {
  for (const std::vector<int64_t>& size :
       {std::vector<int64_t>{20, 30, 24}, {40, 16}}) {
    std::vector<int64_t> image = {2, 1}, field = {2, int64_t(size.size())};
    image.insert(image.end(), size.begin(), size.end());
    field.insert(field.end(), size.begin(), size.end());
    const at::Tensor fixed = at::rand(image), moving = at::rand(image);
    const std::string folder = ::testing::TempDir() + "/pictures";
    std::filesystem::create_directories(folder);
    const std::string summary = folder + "/summary.png";
    const std::string plain = folder + "/registration.png";
    ASSERT_THAT(WriteSummaryPicture(summary, fixed, moving, moving,
                                    at::zeros(field), {3, 2, 1}),
                IsOk());
    ASSERT_THAT(WriteRegistrationPicture(plain, fixed, moving, moving,
                                         at::zeros(field)),
                IsOk());
    const Picture with_curve = ReadPng(summary);
    const Picture without = ReadPng(plain);
    EXPECT_EQ(with_curve.width(), without.width());
    EXPECT_GT(with_curve.height(), without.height() + 200);
    EXPECT_GT(without.height(), 2 * 100);
    EXPECT_GT(Lit(without), 0.1);
    // Two files and no temporary ones.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder),
                            std::filesystem::directory_iterator()),
              2);
  }
}

TEST(SummaryPictureTest, RefusesShapesThatDoNotFit) {
  const at::Tensor image = at::zeros({1, 1, 8, 8});
  const std::string path = ::testing::TempDir() + "/refused.png";
  const auto refused = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  EXPECT_THAT(WriteRegistrationPicture(path, image, at::zeros({1, 1, 8, 9}),
                                       image, at::zeros({1, 2, 8, 8})),
              refused("equal shape"));
  EXPECT_THAT(WriteRegistrationPicture(path, image, image, image,
                                       at::zeros({1, 3, 8, 8})),
              refused("wanted a displacement"));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(WriteRegistrationPicture("/no/folder/a.png", image, image, image,
                                       at::zeros({1, 2, 8, 8})),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("cannot write /no/folder/a.png")));
}

}  // namespace
}  // namespace mir::data
