#include "common/gossip/timers.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace dtrain::gossip {
namespace {

TEST(Timers, SetAgainMovesAndNeverCancels) {
  Timers timers;
  const auto key = Timers::of(Wait::probe);
  EXPECT_EQ(timers.next(), kNever);
  timers.set(key, Instant{5s});
  timers.set(key, Instant{9s});
  EXPECT_EQ(timers.next(), Instant{9s});
  EXPECT_FALSE(timers.pop(Instant{8s}));
  timers.set(key, kNever);
  EXPECT_FALSE(timers.waits(key));
  EXPECT_FALSE(timers.pop(kNever));
}

TEST(Timers, SequencesAndMembersHaveTheirOwn) {
  Timers timers;
  timers.set(Timers::of(Wait::probe_total, 1), Instant{2s});
  timers.set(Timers::of(Wait::probe_total, 2), Instant{1s});
  timers.set(Timers::of(Wait::suspicion, MemberId{7, 1}), Instant{1s});
  EXPECT_EQ(timers.pop(Instant{2s}), Timers::of(Wait::probe_total, 2));
  EXPECT_EQ(timers.pop(Instant{2s}), Timers::of(Wait::suspicion, MemberId{7, 1}));
  EXPECT_EQ(timers.pop(Instant{2s}), Timers::of(Wait::probe_total, 1)) << "due at its very instant";
  EXPECT_FALSE(timers.pop(Instant{2s}));
}

// Twin: a list, searched in full.
RC_GTEST_PROP(Timers, AgreeWithAPlainList, (const std::vector<std::pair<std::uint8_t, std::uint8_t>>& calls)) {
  Timers timers;
  std::map<Timers::Key, Instant> twin;
  for (const auto& [draw, time] : calls) {
    const auto key = Timers::of(static_cast<Wait>(draw / 4 % 5), std::uint64_t{draw} / 20 % 4);
    const Instant at{std::chrono::seconds(time % 32)};
    if (draw % 4 < 2) {
      timers.set(key, at);
      twin[key] = at;
    } else if (draw % 4 == 2) {
      timers.cancel(key);
      twin.erase(key);
    } else {
      auto first = twin.end();
      for (auto it = twin.begin(); it != twin.end(); ++it) {
        if (it->second <= at && (first == twin.end() || it->second < first->second)) first = it;
      }
      const auto popped = timers.pop(at);
      RC_ASSERT(popped.has_value() == (first != twin.end()));
      if (popped) {
        RC_ASSERT(*popped == first->first);
        twin.erase(first);
      }
    }
    Instant next = kNever;
    for (const auto& [its, when] : twin) next = std::min(next, when);
    RC_ASSERT(timers.next() == next);
    RC_ASSERT(timers.waits(key) == twin.contains(key));
  }
}

}  // namespace
}  // namespace dtrain::gossip
