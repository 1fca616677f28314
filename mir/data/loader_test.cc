#include "mir/data/loader.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "mir/testing/status_matchers.h"

namespace mir::data {
namespace {

using mir::testing::IsOk;
using mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Pairs whose voxels say where they come from; early ones take the longest.
class FakeSource : public PairSource {
 public:
  int64_t size() const override { return 100; }

  absl::StatusOr<Pair> Get(int64_t epoch, int64_t index) const override {
    ++started;
    threads_seen = at::get_num_threads();
    grad_seen = c10::GradMode::is_enabled();
    absl::SleepFor(absl::Milliseconds(index % 3 == 0 ? 5 : 0));
    if (index == fail_at) return absl::DataLossError("bad.nii is cut short");
    if (index == throw_at) throw std::runtime_error("thrown at bad.nii");
    Pair pair;
    pair.name = absl::StrCat(epoch, "/", index);
    const int64_t side = index == odd_one ? 3 : 2;
    pair.fixed = at::full({1, side, 2, 2}, 100.0 * epoch + index);
    pair.moving = pair.fixed;
    if (index != unlabelled) {
      pair.fixed_labels = pair.fixed.to(at::kInt);
      pair.moving_labels = pair.fixed_labels;
    }
    return pair;
  }

  int64_t fail_at = -1;
  int64_t throw_at = -1;
  int64_t odd_one = -1;
  int64_t unlabelled = -1;
  mutable std::atomic<int64_t> started{0};
  mutable std::atomic<int> threads_seen{0};
  mutable std::atomic<bool> grad_seen{true};
};

std::vector<Position> FirstPositions(int64_t count) {
  std::vector<Position> positions;
  for (int64_t index = 0; index < count; ++index) {
    positions.push_back({index % 2, index});
  }
  return positions;
}

// The names of all pairs, batch by batch, until the end or an error.
absl::StatusOr<std::vector<std::vector<std::string>>> Names(Loader& loader) {
  std::vector<std::vector<std::string>> names;
  while (true) {
    absl::StatusOr<absl::optional<Batch>> batch = loader.Next();
    if (!batch.ok()) return batch.status();
    if (!batch->has_value()) return names;
    names.push_back((*batch)->names);
  }
}

class LoaderThreadsTest : public ::testing::TestWithParam<int> {};

TEST_P(LoaderThreadsTest, HandsOutAllBatchesInOrder) {
  LoaderOptions options;
  options.threads = GetParam();
  Loader loader(std::make_shared<FakeSource>(),
                PlanBatches(FirstPositions(7), 3), options);

  const auto names = Names(loader);

  ASSERT_THAT(names, IsOk());
  EXPECT_THAT(*names, ElementsAre(ElementsAre("0/0", "1/1", "0/2"),
                                  ElementsAre("1/3", "0/4", "1/5"),
                                  ElementsAre("0/6")));
  EXPECT_FALSE(loader.Next()->has_value());  // Stays at the end.
}

TEST_P(LoaderThreadsTest, AnErrorEndsItAfterTheBatchesBefore) {
  auto source = std::make_shared<FakeSource>();
  source->fail_at = 3;
  LoaderOptions options;
  options.threads = GetParam();
  Loader loader(source, PlanBatches(FirstPositions(50), 1), options);

  for (int batch = 0; batch < 3; ++batch) EXPECT_THAT(loader.Next(), IsOk());
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(loader.Next(), StatusIs(absl::StatusCode::kDataLoss,
                                        HasSubstr("bad.nii is cut short")));
  }
}

TEST_P(LoaderThreadsTest, AnExceptionEndsItAsAStatus) {
  auto source = std::make_shared<FakeSource>();
  source->throw_at = 0;
  LoaderOptions options;
  options.threads = GetParam();
  Loader loader(source, PlanBatches(FirstPositions(50), 2), options);

  EXPECT_THAT(loader.Next(), StatusIs(absl::StatusCode::kInternal,
                                      HasSubstr("thrown at bad.nii")));
}

INSTANTIATE_TEST_SUITE_P(Threads, LoaderThreadsTest,
                         ::testing::Values(0, 1, 4));

TEST(LoaderTest, StacksPairs) {
  Loader loader(std::make_shared<FakeSource>(),
                PlanBatches({{0, 1}, {2, 5}}, 2));

  const auto batch = loader.Next();

  ASSERT_THAT(batch, IsOk());
  EXPECT_EQ((*batch)->fixed.sizes(), (std::vector<int64_t>{2, 1, 2, 2, 2}));
  EXPECT_EQ((*batch)->moving[1].min().item<float>(), 205);
  EXPECT_EQ((*batch)->fixed_labels.scalar_type(), at::kInt);
  EXPECT_EQ((*batch)->moving_labels[0].max().item<int>(), 1);
}

TEST(LoaderTest, ABatchHasLabelsOnlyIfAllItsPairsDo) {
  auto source = std::make_shared<FakeSource>();
  source->unlabelled = 1;
  Loader loader(source, PlanBatches(FirstPositions(4), 2));

  EXPECT_FALSE((*loader.Next())->fixed_labels.defined());
  EXPECT_TRUE((*loader.Next())->fixed_labels.defined());
}

TEST(LoaderTest, RefusesABatchOfDifferentSizesNamingBoth) {
  auto source = std::make_shared<FakeSource>();
  source->odd_one = 1;
  Loader loader(source, PlanBatches(FirstPositions(2), 2));

  EXPECT_THAT(loader.Next(), StatusIs(absl::StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr("0/0 is 2x2x2"),
                                            HasSubstr("1/1 is 3x2x2"))));
  EXPECT_THAT(Collate({}), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("at least one pair")));
}

TEST(LoaderTest, MakesNoMoreThanPrefetchAhead) {
  auto source = std::make_shared<FakeSource>();
  LoaderOptions options;
  options.threads = 4;
  options.prefetch = 3;
  Loader loader(source, PlanBatches(FirstPositions(100), 1), options);

  const auto settles_at = [&](int64_t started) {
    for (int i = 0; i < 1000 && source->started < started; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    absl::SleepFor(absl::Milliseconds(30));
    return source->started == started;
  };
  EXPECT_TRUE(settles_at(3));
  EXPECT_THAT(loader.Next(), IsOk());
  EXPECT_TRUE(settles_at(4));
}

TEST(LoaderTest, StopsWhileBatchesAreBeingMade) {
  for (int waited = 0; waited < 3; ++waited) {
    LoaderOptions options;
    options.threads = 3;
    Loader loader(std::make_shared<FakeSource>(),
                  PlanBatches(FirstPositions(100), 2), options);
    for (int batch = 0; batch < waited; ++batch) {
      EXPECT_THAT(loader.Next(), IsOk());
    }
  }
}

TEST(LoaderTest, ItsThreadsComputeAloneWithoutChangingOthers) {
  at::set_num_threads(2);
  auto source = std::make_shared<FakeSource>();
  Loader loader(source, PlanBatches(FirstPositions(3), 1));

  EXPECT_THAT(loader.Next(), IsOk());

  EXPECT_EQ(source->threads_seen, 1);
  EXPECT_FALSE(source->grad_seen);
  EXPECT_EQ(at::get_num_threads(), 2);
  std::thread([] { EXPECT_EQ(at::get_num_threads(), 2); }).join();
  at::set_num_threads(1);
}

}  // namespace
}  // namespace mir::data
