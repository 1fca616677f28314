#include "mir/distributed/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "mir/testing/status_matchers.h"

namespace mir::distributed {
namespace {

using mir::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DistributedSampler Sampler(int64_t cases, int64_t batch, int rank, int world,
                           uint64_t seed = 7, bool shuffle = true) {
  return *DistributedSampler::Create(
      {cases, batch, rank, world, seed, shuffle});
}

// What all ranks visit in a step, in the order of the ranks.
std::vector<Draw> GlobalBatch(int64_t cases, int64_t batch, int world,
                              int64_t epoch, int64_t step) {
  std::vector<Draw> all;
  for (int rank = 0; rank < world; ++rank) {
    const std::vector<Draw> own =
        Sampler(cases, batch, rank, world).Batch(epoch, step);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<int64_t> Indices(const DistributedSampler& sampler, int64_t epoch) {
  std::vector<int64_t> indices;
  for (int64_t step = 0; step < sampler.StepsPerEpoch(); ++step) {
    for (const Draw& draw : sampler.Batch(epoch, step)) {
      indices.push_back(draw.index);
    }
  }
  return indices;
}

TEST(DistributedSamplerTest, TheOrderDoesNotDependOnTheSplit) {
  for (const int64_t cases : {1, 2, 5, 6, 13, 40}) {
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      const DistributedSampler single = Sampler(cases, 6, 0, 1);
      for (int64_t step = 0; step < single.StepsPerEpoch(); ++step) {
        const std::vector<Draw> expected = single.Batch(epoch, step);
        EXPECT_EQ(GlobalBatch(cases, 3, 2, epoch, step), expected);
        EXPECT_EQ(GlobalBatch(cases, 2, 3, epoch, step), expected);
        EXPECT_EQ(GlobalBatch(cases, 1, 6, epoch, step), expected);
      }
    }
  }
}

TEST(DistributedSamplerTest, EveryPassHoldsEveryCaseOnce) {
  constexpr int kWorld = 3;
  constexpr int64_t kCases = 7;
  // 14 steps of 6 cases are 12 whole passes.
  std::map<int64_t, std::multiset<int64_t>> passes;
  for (int64_t step = 0; step < 14; ++step) {
    for (const Draw& draw : GlobalBatch(kCases, 2, kWorld, 0, step)) {
      passes[draw.epoch].insert(draw.index);
    }
  }
  ASSERT_EQ(passes.size(), 12);
  for (const auto& [pass, indices] : passes) {
    EXPECT_THAT(indices, ElementsAre(0, 1, 2, 3, 4, 5, 6)) << "pass " << pass;
  }
}

TEST(DistributedSamplerTest, FiveCasesOnTwoRanksGiveBothTwoSteps) {
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Sampler(5, 1, rank, 2).StepsPerEpoch(), 2);
  }
  // The case that is left over comes first in the next epoch.
  std::set<int64_t> first;
  for (int64_t step = 0; step < 2; ++step) {
    for (const Draw& draw : GlobalBatch(5, 1, 2, 0, step)) {
      EXPECT_EQ(draw.epoch, 0);
      first.insert(draw.index);
    }
  }
  EXPECT_EQ(first.size(), 4);
  const Draw left_over = GlobalBatch(5, 1, 2, 1, 0)[0];
  EXPECT_EQ(left_over.epoch, 0);
  EXPECT_EQ(first.count(left_over.index), 0);
}

TEST(DistributedSamplerTest, FewerCasesThanRanksStillGiveEveryRankACase) {
  const std::vector<Draw> batch = GlobalBatch(2, 1, 5, 0, 0);
  ASSERT_EQ(batch.size(), 5);
  // Twice through both, then on: a case comes back as another pass's.
  EXPECT_EQ(batch[0].epoch, 0);
  EXPECT_EQ(batch[2].epoch, 1);
  EXPECT_EQ(batch[4].epoch, 2);
  EXPECT_EQ(Sampler(2, 1, 0, 5).StepsPerEpoch(), 1);
}

TEST(DistributedSamplerTest, EpochsDifferAndSeedsDifferAndEachIsRepeatable) {
  const DistributedSampler sampler = Sampler(20, 1, 0, 1);
  const std::vector<int64_t> first = Indices(sampler, 0);
  const std::vector<int64_t> second = Indices(sampler, 1);
  EXPECT_NE(first, second);
  EXPECT_NE(first, Indices(Sampler(20, 1, 0, 1, /*seed=*/8), 0));
  // Later and from another object, as after a resume.
  EXPECT_EQ(Indices(Sampler(20, 1, 0, 1), 1), second);
  EXPECT_EQ(Indices(sampler, 0), first);
}

TEST(DistributedSamplerTest, StepsGoOnBeyondTheEpoch) {
  const DistributedSampler sampler = Sampler(11, 2, 1, 2);
  EXPECT_EQ(sampler.Batch(3, sampler.StepsPerEpoch() + 1), sampler.Batch(4, 1));
}

TEST(DistributedSamplerTest, OrdersAreSpreadEvenly) {
  // Each of the 6 orders of 3 cases comes about once in 6 passes: 1000 of 6000,
  // with a standard deviation of 29.
  const DistributedSampler sampler = Sampler(3, 3, 0, 1);
  std::map<std::vector<int64_t>, int> counts;
  for (int64_t epoch = 0; epoch < 6000; ++epoch) {
    ++counts[Indices(sampler, epoch)];
  }
  ASSERT_EQ(counts.size(), 6);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 6 * 29);
}

TEST(DistributedSamplerTest, WithoutShuffleTheOrderIsThatOfTheCases) {
  EXPECT_THAT(Indices(Sampler(4, 1, 0, 1, 7, /*shuffle=*/false), 2),
              ElementsAre(0, 1, 2, 3));
}

TEST(DistributedSamplerTest, RefusesWhatIsOutOfRange) {
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(DistributedSampler::Create({0, 1, 0, 1}).status(),
              StatusIs(code, HasSubstr("at least 1 case, got 0")));
  EXPECT_THAT(DistributedSampler::Create({5, 0, 0, 1}).status(),
              StatusIs(code, HasSubstr("at least 1 per process, got 0")));
  EXPECT_THAT(DistributedSampler::Create({5, 1, 2, 2}).status(),
              StatusIs(code, HasSubstr("rank 2 is outside a world of 2")));
  EXPECT_THAT(DistributedSampler::Create({5, 1, -1, 2}).status(),
              StatusIs(code, HasSubstr("rank -1 is outside")));
}

TEST(ShareOfTest, EveryCaseIsInExactlyOneShare) {
  for (const int world : {1, 2, 3, 8}) {
    for (const int64_t cases : {0, 1, 5, 16}) {
      std::vector<int64_t> all;
      for (int rank = 0; rank < world; ++rank) {
        const std::vector<int64_t> share = ShareOf(cases, rank, world);
        all.insert(all.end(), share.begin(), share.end());
        EXPECT_LE(share.size(), (cases + world - 1) / world);
      }
      std::sort(all.begin(), all.end());
      ASSERT_EQ(all.size(), cases);
      for (int64_t i = 0; i < cases; ++i) EXPECT_EQ(all[i], i);
    }
  }
  EXPECT_THAT(ShareOf(5, 0, 2), ElementsAre(0, 2, 4));
  EXPECT_THAT(ShareOf(5, 1, 2), ElementsAre(1, 3));
  EXPECT_THAT(ShareOf(1, 1, 2), IsEmpty());
}

}  // namespace
}  // namespace mir::distributed
