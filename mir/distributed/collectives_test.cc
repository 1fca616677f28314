#include "mir/distributed/collectives.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "mir/base/exit_status.h"
#include "mir/distributed/sampler.h"
#include "mir/distributed/test_ranks.h"
#include "mir/launch/exit_codes.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::distributed {
namespace {

using mir::testing::IsOk;
using mir::testing::IsOkAndHolds;
using mir::testing::StatusIs;
using mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Truly;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Context SingleProcess() { return Context(); }

bool IsNaN(double value) { return std::isnan(value); }

TEST(CollectivesTest, ReduceTensorsOfEveryDtypeThatTrainingUses) {
  RunThreadRanks(3, [](const Context& context) {
    const double own = context.world.rank + 1;  // 1, 2, 3.
    for (const at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const at::Tensor tensor = at::full({2, 3}, own, dtype);
      EXPECT_THAT(AllReduceSum(context, tensor),
                  IsOkAndHolds(TensorEq(at::full({2, 3}, 6, dtype))));
      EXPECT_THAT(AllReduceMean(context, tensor),
                  IsOkAndHolds(TensorEq(at::full({2, 3}, 2, dtype))));
      EXPECT_THAT(AllReduceMax(context, tensor),
                  IsOkAndHolds(TensorEq(at::full({2, 3}, 3, dtype))));
      EXPECT_THAT(tensor, TensorEq(at::full({2, 3}, own, dtype)));
    }
    const at::Tensor counts =
        at::full({2}, static_cast<int64_t>(own), at::kLong);
    EXPECT_THAT(AllReduceSum(context, counts),
                IsOkAndHolds(TensorEq(at::full({2}, 6, at::kLong))));
    EXPECT_THAT(AllReduceMean(context, counts).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("needs a floating tensor, got Long")));
  });
}

TEST(CollectivesTest, ReduceTensorsThatAreNotContiguous) {
  RunThreadRanks(2, [](const Context& context) {
    const at::Tensor tensor = at::arange(6, at::kFloat).view({2, 3}).t();
    EXPECT_THAT(AllReduceSum(context, tensor),
                IsOkAndHolds(TensorEq(tensor.mul(2))));
  });
}

TEST(CollectivesTest, ReduceNumbers) {
  RunThreadRanks(3, [](const Context& context) {
    const double rank = context.world.rank;
    EXPECT_THAT(AllReduceSum(context, rank), IsOkAndHolds(3));
    EXPECT_THAT(AllReduceMax(context, -rank), IsOkAndHolds(0));
    EXPECT_THAT(AllReduceMean(context, rank), IsOkAndHolds(1));
    // 0 once, 1 twice, 2 five times.
    const double weights[] = {1, 2, 5};
    EXPECT_THAT(AllReduceMean(context, rank, weights[context.world.rank]),
                IsOkAndHolds(12. / 8));
  });
}

TEST(CollectivesTest, AMeanLeavesOutWhatHasNoWeight) {
  RunThreadRanks(2, [](const Context& context) {
    const bool empty = context.world.rank == 1;
    EXPECT_THAT(AllReduceMean(context, empty ? kNaN : 4., empty ? 0 : 3),
                IsOkAndHolds(4));
    EXPECT_THAT(AllReduceMean(context, 4., 0), IsOkAndHolds(Truly(IsNaN)));
  });
  EXPECT_THAT(AllReduceMean(SingleProcess(), 4., 0),
              IsOkAndHolds(Truly(IsNaN)));
  EXPECT_THAT(AllReduceMean(SingleProcess(), 4., -1).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("must not be negative, got -1")));
}

TEST(CollectivesTest, AMaximumKeepsNaN) {
  RunThreadRanks(3, [](const Context& context) {
    EXPECT_THAT(AllReduceMax(context, context.world.rank == 1 ? kNaN : 2.),
                IsOkAndHolds(Truly(IsNaN)));
  });
}

TEST(CollectivesTest, GatherAnyNumberOfDoublesFromEachRank) {
  RunThreadRanks(3, [](const Context& context) {
    const std::vector<double> own(context.world.rank, context.world.rank + .5);
    EXPECT_THAT(GatherDoubles(context, own),
                IsOkAndHolds(ElementsAre(IsEmpty(), ElementsAre(1.5),
                                         ElementsAre(2.5, 2.5))));
    EXPECT_THAT(GatherDoubles(context, {}),
                IsOkAndHolds(ElementsAre(IsEmpty(), IsEmpty(), IsEmpty())));
  });
}

TEST(CollectivesTest, GatherEveryCaseOnceInItsOrder) {
  for (const int64_t cases : {0, 1, 5}) {
    RunThreadRanks(2, [cases](const Context& context) {
      std::vector<double> own;
      for (const int64_t i : ShareOf(cases, context.world.rank, 2)) {
        own.push_back(i);
        own.push_back(10 * i);
      }
      std::vector<double> expected;
      for (int64_t i = 0; i < cases; ++i) {
        expected.push_back(i);
        expected.push_back(10 * i);
      }
      EXPECT_THAT(GatherShares(context, cases, 2, own), IsOkAndHolds(expected));
    });
  }
}

TEST(CollectivesTest, GatherNamesARankThatBringsTooLittle) {
  RunThreadRanks(2, [](const Context& context) {
    EXPECT_THAT(
        GatherShares(context, 5, 1, std::vector<double>{1, 2}).status(),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 HasSubstr("rank 0 brought 2 numbers for its 3 of 5 cases")));
  });
}

TEST(CollectivesTest, BroadcastAString) {
  RunThreadRanks(3, [](const Context& context) {
    const std::string own = absl::StrCat("from ", context.world.rank);
    EXPECT_THAT(BroadcastString(context, own), IsOkAndHolds("from 0"));
    EXPECT_THAT(BroadcastString(context, own, 2), IsOkAndHolds("from 2"));
    const std::string odd =
        context.world.rank == 1 ? std::string("a\0b", 3) : "";
    EXPECT_THAT(BroadcastString(context, odd, 1),
                IsOkAndHolds(std::string("a\0b", 3)));
    EXPECT_THAT(BroadcastString(context, ""), IsOkAndHolds(""));
  });
}

TEST(CollectivesTest, ASingleProcessGetsItsOwn) {
  const Context context = SingleProcess();
  const at::Tensor tensor = at::ones({2});
  EXPECT_TRUE(IsMainProcess(context));
  EXPECT_THAT(AllReduceSum(context, tensor), IsOkAndHolds(TensorEq(tensor)));
  EXPECT_THAT(AllReduceMax(context, tensor), IsOkAndHolds(TensorEq(tensor)));
  EXPECT_THAT(AllReduceMean(context, tensor), IsOkAndHolds(TensorEq(tensor)));
  EXPECT_THAT(AllReduceSum(context, 3.), IsOkAndHolds(3));
  EXPECT_THAT(AllReduceMax(context, 3.), IsOkAndHolds(3));
  EXPECT_THAT(AllReduceMean(context, .1, 3), IsOkAndHolds(.1));
  EXPECT_THAT(GatherDoubles(context, {1, 2}),
              IsOkAndHolds(ElementsAre(ElementsAre(1, 2))));
  EXPECT_THAT(GatherShares(context, 2, 1, {1, 2}),
              IsOkAndHolds(ElementsAre(1, 2)));
  EXPECT_THAT(BroadcastString(context, "x"), IsOkAndHolds("x"));
  EXPECT_THAT(Barrier(context, absl::Seconds(1)), IsOk());
}

TEST(CollectivesTest, OnlyRankZeroIsTheMainProcess) {
  RunThreadRanks(2, [](const Context& context) {
    EXPECT_EQ(IsMainProcess(context), context.world.rank == 0);
  });
}

TEST(BarrierTest, NoRankPassesBeforeTheLastComes) {
  RunThreadRanks(3, [](const Context& context) {
    const absl::Time start = absl::Now();
    if (context.world.rank == 2) absl::SleepFor(absl::Milliseconds(300));
    EXPECT_THAT(Barrier(context, absl::Seconds(30)), IsOk());
    EXPECT_GE(absl::Now() - start, absl::Milliseconds(250));
    EXPECT_THAT(Barrier(context, absl::Seconds(30)), IsOk());
  });
}

TEST(BarrierTest, EveryRankNamesThoseThatDoNotCome) {
  RunThreadRanks(4, [](const Context& context) {
    EXPECT_THAT(Barrier(context, absl::Seconds(30)), IsOk());
    if (context.world.rank % 2 == 1) {
      // Alive, but elsewhere.
      absl::SleepFor(absl::Seconds(2));
      return;
    }
    const absl::Status status = Barrier(context, absl::Milliseconds(500));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 AllOf(HasSubstr("ranks 1, 3 did not come"),
                                       HasSubstr("within 500ms"))));
    EXPECT_EQ(ExitCodeOf(status), launch::kPeer);
  });
}

TEST(PeerFailureTest, APeerThatLeavesIsNoticedAtOnce) {
  RunThreadRanks(
      3,
      [](Context context) {
        if (context.world.rank == 1) {
          Cleanup(context);
          return;
        }
        const absl::Time start = absl::Now();
        const absl::Status status = AllReduceSum(context, 1.).status();
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                     AllOf(HasSubstr("lost a peer: "),
                                           HasSubstr(" by peer"))));
        EXPECT_EQ(ExitCodeOf(status), launch::kPeer);
        EXPECT_LT(absl::Now() - start, absl::Seconds(30));
        Cleanup(context);
        EXPECT_EQ(context.group, nullptr);
      },
      /*collective_timeout=*/absl::Seconds(60));
}

TEST(PeerFailureTest, APeerThatDoesNotTakePartIsNoticedAtTheTimeout) {
  RunThreadRanks(
      2,
      [](const Context& context) {
        if (context.world.rank == 1) {
          absl::SleepFor(absl::Seconds(3));
          return;
        }
        EXPECT_THAT(
            AllReduceSum(context, 1.).status(),
            StatusIs(
                absl::StatusCode::kUnavailable,
                HasSubstr("rank 0 lost a peer: Timed out waiting 1000ms")));
      },
      /*collective_timeout=*/absl::Seconds(1));
}

TEST(PeerFailureTest, OwnErrorsAreNotPeers) {
  EXPECT_FALSE(IsPeerFailure(std::runtime_error("x")));
  EXPECT_FALSE(
      IsPeerFailure(c10::Error({"f", "f.cc", 1}, "the shapes do not match")));
  RunThreadRanks(2, [](const Context& context) {
    const absl::Status status = CatchCollective(context, [] {
      TORCH_CHECK_VALUE(false, "wanted 3, got 2");
      return absl::OkStatus();
    });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 "wanted 3, got 2"));
    EXPECT_EQ(ExitCodeOf(status), launch::kArguments);
  });
}

}  // namespace
}  // namespace mir::distributed
