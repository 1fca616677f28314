#include "mir/base/nearest.h"

#include <gtest/gtest.h>

namespace mir {
namespace {

const std::vector<std::string> kModels = {"voxelmorph", "transmorph", "vfa"};

TEST(NearestTest, FindsMisspellings) {
  EXPECT_EQ(Nearest("voxelmorf", kModels), "voxelmorph");
  EXPECT_EQ(Nearest("VoxelMorph", kModels), "voxelmorph");
  EXPECT_EQ(Nearest("tansmorph", kModels), "transmorph");
}

TEST(NearestTest, SuggestsNothingFarFetched) {
  EXPECT_EQ(Nearest("resnet50", kModels), "");
  EXPECT_EQ(Nearest("", kModels), "");
  EXPECT_EQ(Nearest("voxelmorph", {}), "");
}

TEST(NearestTest, TakesTheFirstAmongEquals) {
  EXPECT_EQ(Nearest("l3", {"l1", "l2"}), "l1");
}

TEST(NearestTest, PhrasesTheSuggestion) {
  EXPECT_EQ(DidYouMean("vfb", kModels), "; did you mean vfa?");
  EXPECT_EQ(DidYouMean("resnet50", kModels), "");
}

}  // namespace
}  // namespace mir
