#include "mir/distributed/rendezvous.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "mir/base/status_macros.h"

namespace mir::distributed {
namespace {

// How long rank 0, who may serve the store, stays for others to read why the
// meeting failed.
constexpr absl::Duration kLinger = absl::Seconds(2);

// Sleeps a little longer each time: 1 ms to 50 ms.
class Pause {
 public:
  void Wait() {
    absl::SleepFor(length_);
    length_ = std::min(length_ * 2, absl::Milliseconds(50));
  }

 private:
  absl::Duration length_ = absl::Milliseconds(1);
};

std::string Pack(const Identity& identity) {
  return absl::StrCat(identity.world_size, "\n", identity.machine, "\n",
                      identity.fingerprint);
}

Identity Unpack(int rank, const std::string& text) {
  std::vector<std::string> parts =
      absl::StrSplit(text, absl::MaxSplits('\n', 2));
  parts.resize(3);
  Identity identity{rank, 0, parts[2], parts[1]};
  (void)absl::SimpleAtoi(parts[0], &identity.world_size);
  return identity;
}

// How `other` differs from rank 0; empty if it does not.
std::string DifferenceOf(const Identity& first, const Identity& other) {
  if (other.world_size != first.world_size) {
    return absl::StrCat("the ranks disagree on their number: rank 0 was ",
                        "started as one of ", first.world_size, ", rank ",
                        other.rank, " as one of ", other.world_size,
                        "; start all with the same WORLD_SIZE");
  }
  if (other.fingerprint != first.fingerprint) {
    return absl::StrCat("the ranks were started differently: rank 0 has '",
                        first.fingerprint, "', rank ", other.rank, " has '",
                        other.fingerprint,
                        "'; start all with the same program and options");
  }
  return "";
}

std::string PeerKey(const std::string& prefix, int rank) {
  return absl::StrCat(prefix, "peer/", rank);
}

absl::StatusOr<std::vector<int>> MissingRanks(KeyValues& store,
                                              const std::string& prefix,
                                              int world_size) {
  std::vector<int> missing;
  for (int rank = 0; rank < world_size; ++rank) {
    MIR_ASSIGN_OR_RETURN(const absl::optional<std::string> found,
                         store.Find(PeerKey(prefix, rank)));
    if (!found.has_value()) missing.push_back(rank);
  }
  return missing;
}

// What is left of a timeout, as the user gave it.
absl::Duration Rounded(absl::Duration timeout) {
  const absl::Duration unit = absl::Milliseconds(100);
  return absl::Floor(timeout + unit / 2, unit);
}

std::string MissingMessage(const std::vector<int>& missing, int world_size,
                           absl::Duration timeout) {
  return absl::StrCat(
      missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ", "),
      " of ", world_size, missing.size() == 1 ? " was" : " were",
      " not there after ", absl::FormatDuration(Rounded(timeout)),
      "; look at their output, or give them longer with --init-timeout");
}

// A verdict is a letter and a message.
constexpr char kOneMachine = 'O';
constexpr char kSeveralMachines = 'S';
constexpr char kDisagreed = 'D';
constexpr char kMissing = 'M';

absl::StatusOr<Meeting> Read(const std::string& verdict,
                             const std::string& prefix) {
  const char kind = verdict.empty() ? kDisagreed : verdict[0];
  if (kind == kOneMachine || kind == kSeveralMachines) {
    return Meeting{prefix, kind == kOneMachine};
  }
  const std::string message = verdict.empty() ? "" : verdict.substr(1);
  if (kind == kMissing) return absl::DeadlineExceededError(message);
  return absl::FailedPreconditionError(message);
}

// Rank 0's side: its judgement once all are there, or once it is clear that
// they will not be.
absl::StatusOr<std::string> Judge(KeyValues& store, const Identity& self,
                                  int64_t meeting, const std::string& prefix,
                                  absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  int64_t answered = 0;
  int next = 1;  // All ranks below are there.
  bool one_machine = true;
  for (Pause pause;; pause.Wait()) {
    MIR_ASSIGN_OR_RETURN(const int64_t tickets, store.Add("tickets", 0));
    while (answered < tickets) {
      ++answered;
      MIR_RETURN_IF_ERROR(
          store.Set(absl::StrCat("answer/", answered), absl::StrCat(meeting)));
    }
    for (; next < self.world_size; ++next) {
      MIR_ASSIGN_OR_RETURN(const absl::optional<std::string> peer,
                           store.Find(PeerKey(prefix, next)));
      if (!peer.has_value()) break;
      one_machine &= Unpack(next, *peer).machine == self.machine;
    }
    MIR_ASSIGN_OR_RETURN(const absl::optional<std::string> complaint,
                         store.Find(prefix + "complaint"));
    if (complaint.has_value()) return kDisagreed + *complaint;
    MIR_ASSIGN_OR_RETURN(const int64_t meetings, store.Add("meetings", 0));
    if (meetings != meeting) {
      return std::string(1, kDisagreed) +
             "two processes with rank 0 came to the same store";
    }
    if (next == self.world_size) {
      return std::string(1, one_machine ? kOneMachine : kSeveralMachines);
    }
    if (absl::Now() > deadline) {
      MIR_ASSIGN_OR_RETURN(const std::vector<int> missing,
                           MissingRanks(store, prefix, self.world_size));
      return kMissing + MissingMessage(missing, self.world_size, timeout);
    }
  }
}

absl::StatusOr<Meeting> MeetAsFirst(KeyValues& store, const Identity& self,
                                    absl::Duration timeout) {
  MIR_ASSIGN_OR_RETURN(const int64_t meeting, store.Add("meetings", 1));
  const std::string prefix = absl::StrCat("meeting", meeting, "/");
  MIR_RETURN_IF_ERROR(store.Set(PeerKey(prefix, 0), Pack(self)));
  MIR_ASSIGN_OR_RETURN(const std::string verdict,
                       Judge(store, self, meeting, prefix, timeout));
  MIR_RETURN_IF_ERROR(store.Set(prefix + "verdict", verdict));
  absl::StatusOr<Meeting> result = Read(verdict, prefix);
  if (result.ok()) return result;
  const absl::Time leave = absl::Now() + kLinger;
  for (Pause pause; absl::Now() < leave; pause.Wait()) {
    MIR_ASSIGN_OR_RETURN(const int64_t came, store.Add(prefix + "came", 0));
    MIR_ASSIGN_OR_RETURN(const int64_t read, store.Add(prefix + "read", 0));
    if (read >= came) break;
  }
  return result;
}

// The value of `key`, or nullopt if it is not there by `deadline`.
absl::StatusOr<absl::optional<std::string>> WaitFor(KeyValues& store,
                                                    const std::string& key,
                                                    absl::Time deadline) {
  for (Pause pause;; pause.Wait()) {
    MIR_ASSIGN_OR_RETURN(absl::optional<std::string> value, store.Find(key));
    if (value.has_value() || absl::Now() > deadline) return value;
  }
}

absl::StatusOr<Meeting> MeetAsOther(KeyValues& store, const Identity& self,
                                    absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MIR_ASSIGN_OR_RETURN(const int64_t ticket, store.Add("tickets", 1));
  MIR_ASSIGN_OR_RETURN(
      const absl::optional<std::string> meeting,
      WaitFor(store, absl::StrCat("answer/", ticket), deadline));
  if (!meeting.has_value()) {
    return absl::DeadlineExceededError(
        MissingMessage({0}, self.world_size, timeout));
  }
  const std::string prefix = absl::StrCat("meeting", *meeting, "/");
  MIR_ASSIGN_OR_RETURN(const absl::optional<std::string> first,
                       store.Find(PeerKey(prefix, 0)));
  std::string complaint = DifferenceOf(Unpack(0, first.value_or("")), self);
  if (complaint.empty()) {
    MIR_ASSIGN_OR_RETURN(
        const int64_t claims,
        store.Add(absl::StrCat(prefix, "claim/", self.rank), 1));
    if (claims > 1) {
      complaint = absl::StrCat("two processes were started as rank ", self.rank,
                               " of ", self.world_size);
    }
  }
  if (!complaint.empty()) {
    MIR_RETURN_IF_ERROR(store.Set(prefix + "complaint", complaint));
    return absl::FailedPreconditionError(complaint);
  }
  MIR_RETURN_IF_ERROR(store.Add(prefix + "came", 1).status());
  MIR_RETURN_IF_ERROR(store.Set(PeerKey(prefix, self.rank), Pack(self)));
  // Rank 0 may have come later, and its word is the better one.
  MIR_ASSIGN_OR_RETURN(
      const absl::optional<std::string> verdict,
      WaitFor(store, prefix + "verdict", deadline + absl::Seconds(1)));
  if (!verdict.has_value()) {
    MIR_ASSIGN_OR_RETURN(const std::vector<int> missing,
                         MissingRanks(store, prefix, self.world_size));
    return absl::DeadlineExceededError(
        MissingMessage(missing, self.world_size, timeout));
  }
  absl::StatusOr<Meeting> result = Read(*verdict, prefix);
  if (!result.ok()) {
    MIR_RETURN_IF_ERROR(store.Add(prefix + "read", 1).status());
  }
  return result;
}

}  // namespace

absl::StatusOr<Meeting> Meet(KeyValues& store, const Identity& self,
                             absl::Duration timeout) {
  return self.rank == 0 ? MeetAsFirst(store, self, timeout)
                        : MeetAsOther(store, self, timeout);
}

}  // namespace mir::distributed
