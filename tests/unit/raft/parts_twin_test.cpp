// The parts that stand alone, against naive twins: thousands of random histories, every answer compared.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/rng.h"
#include "common/raft/configuration.h"
#include "common/raft/log.h"
#include "common/raft/progress.h"
#include "common/raft/quorum.h"
#include "tests/unit/raft/tiny_council.h"

namespace dtrain::raft {
namespace {

// All entries ever, and a disk that is written to; what is durable is what the disk and the log agree on.
struct NaiveLog {
  std::vector<LogEntry> entries;  // entries[i] has index i + 1
  std::uint64_t base = 0;         // memory begins behind it
  Stored disk;
  std::optional<Persist> writing;

  std::uint64_t durable() const {
    std::uint64_t index = disk.snapshot ? disk.snapshot->index : 0;
    for (const LogEntry& entry : disk.log) {
      if (entry.index > entries.size() || entries[entry.index - 1].term != entry.term) break;
      index = entry.index;
    }
    return index;
  }
};

TEST(LogTwin, AgreesWithOneThatKeepsEverything) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    NaiveLog naive;
    RaftLog log(0, 0, {});
    std::uint64_t term = 1, committed = 0, snapshot = 0;
    bool snapshot_waits = false;
    for (int i = 0; i < 300; ++i) {
      switch (rng.below(8)) {
        case 0:
        case 1:
        case 2: {
          const LogEntry entry{log.last_index() + 1, term, std::string(rng.below(20), 'x'), EntryKind::command, {}};
          log.append(entry);
          naive.entries.push_back(entry);
          break;
        }
        case 3: {  // another leader cuts off what is not committed
          ++term;
          if (log.last_index() == committed) break;
          const std::uint64_t from = committed + 1 + rng.below(log.last_index() - committed);
          log.truncate_from(from);
          naive.entries.resize(from - 1);
          break;
        }
        case 4: {
          if (naive.writing || (!log.waits() && !snapshot_waits)) break;
          Persist persist;
          if (std::exchange(snapshot_waits, false)) persist.snapshot = StoredSnapshot{snapshot, log.term_at(snapshot), ""};
          RaftLog::Batch batch = log.hand_over(1 + rng.below(60));
          persist.truncate_from = batch.truncate_from;
          persist.entries = std::move(batch.entries);
          naive.writing = persist;
          break;
        }
        case 5:
          if (!naive.writing) break;
          store(naive.disk, *std::exchange(naive.writing, std::nullopt));
          log.landed();
          break;
        case 6: committed += rng.below(log.last_index() - committed + 1); break;
        case 7: {
          if (committed == snapshot) break;
          snapshot = committed;
          snapshot_waits = true;
          log.covered_to(snapshot);
          naive.base = snapshot - rng.below(std::min<std::uint64_t>(3, snapshot - log.first_index() + 2));
          log.compact_to(naive.base);
          break;
        }
      }
      ASSERT_EQ(log.last_index(), naive.entries.size());
      ASSERT_EQ(log.first_index(), naive.base + 1);
      std::size_t bytes = 0;
      for (std::uint64_t index = naive.base + 1; index <= log.last_index(); ++index) {
        ASSERT_EQ(log.at(index), naive.entries[index - 1]);
        bytes += naive.entries[index - 1].payload.size();
      }
      ASSERT_EQ(log.bytes(), bytes);
      ASSERT_EQ(log.term_at(log.last_index() + 1), 0u);
      if (naive.base > 0) {
        ASSERT_EQ(log.term_at(naive.base), naive.entries[naive.base - 1].term);
      }
      ASSERT_LE(log.durable(), naive.durable()) << "seed " << seed;
      if (!naive.writing && !log.waits() && !snapshot_waits) {
        ASSERT_EQ(log.durable(), log.last_index());
      }
      const std::uint64_t index = naive.base + rng.below(log.last_index() - naive.base + 3), wanted = rng.below(term + 1);
      std::uint64_t expected = std::min(index, log.last_index());
      while (expected > naive.base && naive.entries[expected - 1].term > wanted) --expected;
      ASSERT_EQ(log.last_with_term_at_most(index, wanted), expected);
    }
  }
}

TEST(ConfigurationTwin, AgreesWithReadingTheWholeLog) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    std::map<std::uint64_t, Configuration> all{{0, {TinyCouncil::ids(1, 3), {}}}};  // never forgotten
    ConfigurationHistory history(0, all[0]);
    std::uint64_t last = 0, committed = 0, base = 0;
    for (int i = 0; i < 200; ++i) {
      switch (rng.below(5)) {
        case 0: {
          all[++last] = {TinyCouncil::ids(1, 1 + rng.below(5)), {}};
          history.push(last, all[last]);
          break;
        }
        case 1: ++last; break;
        case 2: {
          if (last == committed) break;
          last = committed + rng.below(last - committed);
          all.erase(all.upper_bound(last), all.end());
          history.truncate_from(last + 1);
          break;
        }
        case 3: committed += rng.below(last - committed + 1); break;
        case 4:
          base = committed;
          history.compact_to(base);
          break;
      }
      for (std::uint64_t index = base; index <= last; ++index) ASSERT_EQ(history.at(index), std::prev(all.upper_bound(index))->second);
      ASSERT_EQ(history.current(), all.rbegin()->second);
      ASSERT_EQ(history.current_index() > committed, all.rbegin()->first > committed);
    }
  }
}

// Whatever the changes, majorities of two neighbouring configurations meet.
TEST(ConfigurationTwin, NeighboursShareAVoterInEveryTwoMajorities) {
  Rng rng(3);
  Configuration now{TinyCouncil::ids(1, 1), {}};
  std::size_t changes = 0;
  for (int i = 0; i < 5000; ++i) {
    Configuration next;
    const auto kind = static_cast<ChangeKind>(rng.below(4));
    if (changed(now, kind, TinyCouncil::id(1 + rng.below(9)), next) != Refusal::none) continue;
    ++changes;
    std::vector<MemberId> both;
    std::ranges::set_intersection(now.voters, next.voters, std::back_inserter(both));
    // The smallest majorities that avoid each other would need this many voters in all.
    const std::size_t in_all = now.voters.size() + next.voters.size() - both.size();
    ASSERT_GT(majority(now.voters.size()) + majority(next.voters.size()), in_all);
    ASSERT_FALSE(next.voters.empty());
    ASSERT_LE(next.voters.size(), wire::kMostVoters);
    ASSERT_LE(next.learners.size(), wire::kMostLearners);
    ASSERT_TRUE(wire::decode_configuration(wire::encode_configuration(next)));
    now = next;
  }
  EXPECT_GT(changes, 1000u);
}

TEST(Quorum, IsWhatAMajorityHasReached) {
  Rng rng(4);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::uint64_t> values(1 + rng.below(5));
    for (auto& value : values) value = rng.below(10);
    std::uint64_t naive = 0;
    for (std::uint64_t candidate = 0; candidate < 10; ++candidate) {
      const auto reached = std::ranges::count_if(values, [&](std::uint64_t value) { return value >= candidate; });
      if (static_cast<std::size_t>(reached) * 2 > values.size()) naive = candidate;
    }
    EXPECT_EQ(agreed(values), naive);
  }
}

// A leader and a follower over a network that loses, repeats and reorders: whatever comes, the follower's log
// becomes the leader's, the leader never believes more than what the follower has, and the window is kept.
TEST(ProgressTwin, NeverBelievesMoreThanIsThere) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    constexpr std::uint64_t kWindow = 4;
    const Instant now{1000s};
    Progress progress(20, now);
    std::uint64_t there = rng.below(20), last = 20;                 // entries that the follower has of the leader's log
    std::vector<std::pair<std::uint64_t, std::uint64_t>> requests;  // prev, last
    std::vector<std::uint64_t> answers;                             // verified
    for (int i = 0; i < 400; ++i) {
      if (progress.state == Progress::State::probe && !progress.paused) {
        requests.push_back({progress.next - 1, progress.next - 1});
        progress.paused = true;
      }
      while (progress.state == Progress::State::replicate && progress.window.size() < kWindow && progress.next <= last) {
        const std::uint64_t to = std::min(last, progress.next + rng.below(3));
        requests.push_back({progress.next - 1, to});
        progress.sent(to, now);
      }
      ASSERT_LE(progress.window.size(), kWindow);
      ASSERT_GT(progress.next, progress.match);
      if (rng.chance(1, 10)) ++last;
      if (rng.chance(1, 8)) progress.probe_from(progress.match + 1);  // nothing was heard for long
      if (!requests.empty()) {
        const std::size_t at = rng.below(requests.size());
        const auto [prev, to] = requests[at];
        if (rng.chance(3, 4)) requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(at));
        if (rng.chance(1, 5)) continue;  // lost
        if (prev > there) {
          if (progress.state == Progress::State::probe && prev == progress.next - 1 && prev > progress.match)
            progress.probe_from(std::min(there, prev - 1) + 1);
          continue;
        }
        there = std::max(there, to);
        answers.push_back(to);
      }
      if (!answers.empty() && rng.chance(1, 2)) {
        const std::size_t at = rng.below(answers.size());
        progress.acknowledged(answers[at], now);
        if (progress.state == Progress::State::probe) progress.replicate();
        if (rng.chance(1, 2)) answers.erase(answers.begin() + static_cast<std::ptrdiff_t>(at));
      }
      ASSERT_LE(progress.match, there);
    }
  }
}

}  // namespace
}  // namespace dtrain::raft
