#include "mir/distributed/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "mir/testing/status_matchers.h"

namespace mir::distributed {
namespace {

using mir::testing::IsOk;
using mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MemoryStore : public KeyValues {
 public:
  absl::Status Set(const std::string& key, const std::string& value) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    values_[key] = value;
    return absl::OkStatus();
  }
  absl::StatusOr<absl::optional<std::string>> Find(
      const std::string& key) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end()) return absl::optional<std::string>();
    return absl::optional<std::string>(found->second);
  }
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counters_[key] += amount;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> counters_;
};

// Each identity on a thread of its own.
std::vector<absl::StatusOr<Meeting>> MeetAll(
    KeyValues& store, const std::vector<Identity>& identities,
    absl::Duration timeout = absl::Seconds(20)) {
  std::vector<absl::StatusOr<Meeting>> results(
      identities.size(), absl::UnknownError("did not end"));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < identities.size(); ++i) {
    threads.emplace_back([&store, &identities, &results, timeout, i] {
      results[i] = Meet(store, identities[i], timeout);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(MeetTest, AllRanksGetTheSamePrefixAndTheNextMeetingAnother) {
  MemoryStore store;
  const std::vector<Identity> ranks = {
      {0, 3, "x", ""}, {1, 3, "x", ""}, {2, 3, "x", ""}};
  std::string earlier;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto results = MeetAll(store, ranks);
    for (const auto& result : results) {
      ASSERT_THAT(result, IsOk());
      EXPECT_EQ(result->prefix, results[0]->prefix);
    }
    EXPECT_NE(results[0]->prefix, earlier);
    earlier = results[0]->prefix;
  }
}

TEST(MeetTest, AllRanksKnowWhetherTheyAreOnOneMachine) {
  MemoryStore store;
  for (const auto& result :
       MeetAll(store, {{0, 3, "", "a"}, {1, 3, "", "a"}, {2, 3, "", "a"}})) {
    ASSERT_THAT(result, IsOk());
    EXPECT_TRUE(result->one_machine);
  }
  for (const auto& result :
       MeetAll(store, {{0, 3, "", "a"}, {1, 3, "", "a"}, {2, 3, "", "b"}})) {
    ASSERT_THAT(result, IsOk());
    EXPECT_FALSE(result->one_machine);
  }
}

TEST(MeetTest, KeysOfAnAttemptThatFailedAreNotRead) {
  MemoryStore store;
  // Rank 1 came alone, took a ticket and died.
  EXPECT_THAT(Meet(store, {1, 2, "", ""}, absl::Milliseconds(20)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("rank 0 of 2 was not there")));
  for (const auto& result : MeetAll(store, {{0, 2, "", ""}, {1, 2, "", ""}})) {
    EXPECT_THAT(result, IsOk());
  }
}

TEST(MeetTest, NamesTheRanksThatDoNotCome) {
  MemoryStore store;
  const absl::Time start = absl::Now();
  for (const auto& result :
       MeetAll(store, {{0, 4, "", ""}, {2, 4, "", ""}}, absl::Seconds(1))) {
    EXPECT_THAT(result.status(),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("ranks 1, 3 of 4 were not there"),
                               HasSubstr("after 1s"))));
  }
  EXPECT_GE(absl::Now() - start, absl::Seconds(1));
}

TEST(MeetTest, NamesBothSidesOfADisagreement) {
  const auto code = absl::StatusCode::kFailedPrecondition;
  {
    MemoryStore store;
    for (const auto& result :
         MeetAll(store, {{0, 2, "", ""}, {1, 3, "", ""}, {2, 3, "", ""}})) {
      EXPECT_THAT(result.status(),
                  StatusIs(code, AllOf(HasSubstr("rank 0 was started as one of "
                                                 "2"),
                                       HasSubstr("as one of 3"))));
    }
  }
  {
    MemoryStore store;
    for (const auto& result : MeetAll(store, {{0, 3, "--lr 1", ""},
                                              {1, 3, "--lr 1", ""},
                                              {2, 3, "--lr 2", ""}})) {
      EXPECT_THAT(result.status(),
                  StatusIs(code, AllOf(HasSubstr("rank 0 has '--lr 1'"),
                                       HasSubstr("rank 2 has '--lr 2'"))));
    }
  }
}

TEST(MeetTest, NoticesARankThatIsThereTwice) {
  const auto code = absl::StatusCode::kFailedPrecondition;
  {
    MemoryStore store;
    int told = 0;
    for (const auto& result :
         MeetAll(store, {{0, 3, "", ""}, {1, 3, "", ""}, {1, 3, "", ""}},
                 absl::Seconds(5))) {
      EXPECT_THAT(result.status(),
                  StatusIs(code, HasSubstr("two processes were started as rank "
                                           "1 of 3")));
      ++told;
    }
    EXPECT_EQ(told, 3);
  }
  {
    MemoryStore store;
    std::thread second([&store] {
      absl::SleepFor(absl::Milliseconds(50));
      ASSERT_THAT(store.Add("meetings", 1), IsOk());  // As a rank 0 does.
    });
    EXPECT_THAT(Meet(store, {0, 2, "", ""}, absl::Seconds(20)).status(),
                StatusIs(code, HasSubstr("two processes with rank 0")));
    second.join();
  }
}

TEST(MeetTest, PassesTheStoresErrorsOn) {
  class GoneStore : public MemoryStore {
    absl::StatusOr<int64_t> Add(const std::string&, int64_t) override {
      return absl::UnavailableError("gone");
    }
  } store;
  for (const int rank : {0, 1}) {
    EXPECT_THAT(Meet(store, {rank, 2, "", ""}, absl::Seconds(5)).status(),
                StatusIs(absl::StatusCode::kUnavailable, "gone"));
  }
}

}  // namespace
}  // namespace mir::distributed
