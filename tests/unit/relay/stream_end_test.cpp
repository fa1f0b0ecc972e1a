// One end of a relayed stream, against another over links that lose, repeat and reorder; the naive twin is the string of
// what was written.
#include "common/relay/stream_end.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "common/base/rng.h"

namespace dtrain::relay {
namespace {

using wire::RelayData;
using wire::RelayMessage;
using wire::RelayOpen;

constexpr Instant kStart{1000s};
#ifdef DTRAIN_SANITIZED
constexpr std::uint64_t kSeeds = 30;
#else
constexpr std::uint64_t kSeeds = 150;
#endif

template <class T>
std::vector<T> all_of(StreamEnd& end, Instant now) {
  std::vector<T> found;
  while (const auto message = end.next(now))
    if (const auto* wanted = std::get_if<T>(&*message)) found.push_back(*wanted);
  return found;
}
RelayOpen open(std::uint64_t stream) {
  RelayOpen o;
  o.stream = stream;
  o.user = "alice";
  return o;
}
struct Pair {
  StreamEnd a{kStart, open(7)};
  StreamEnd b{kStart, 7, kWindowBytes};
  Pair() {
    EXPECT_EQ(all_of<RelayOpen>(a, kStart).size(), 1u);
    carry(b, a, kStart);
  }
  static std::size_t carry(StreamEnd& from, StreamEnd& to, Instant now) {
    const auto messages = all_of<RelayData>(from, now);
    for (const RelayData& data : messages) to.receive(now, data);
    return messages.size();
  }
};

TEST(StreamEnd, IsOpenedAgainUntilTheOtherEndIsHeard) {
  StreamEnd a(kStart, open(7));
  a.write("hello");
  auto opens = all_of<RelayOpen>(a, kStart);
  ASSERT_EQ(opens.size(), 1u);
  EXPECT_EQ(opens.front().allowed, kWindowBytes);
  EXPECT_EQ(opens.front().user, "alice");
  EXPECT_EQ(a.deadline(), kStart + kRepeatAfter);
  EXPECT_TRUE(all_of<RelayData>(a, kStart + kRepeatAfter - 1ns).empty());
  EXPECT_EQ(all_of<RelayOpen>(a, kStart + kRepeatAfter).size(), 1u);
  StreamEnd b(kStart, 7, opens.front().allowed);
  EXPECT_EQ(Pair::carry(b, a, kStart + 1s), 1u);
  EXPECT_EQ(Pair::carry(a, b, kStart + 1s), 1u);
  EXPECT_EQ(b.readable(), "hello");
  EXPECT_EQ(Pair::carry(b, a, kStart + 1s), 1u);  // that it came
  EXPECT_EQ(a.unacknowledged(), 0u);
  b.opened_again(kStart + 2s);
  EXPECT_EQ(all_of<RelayData>(b, kStart + 2s).size(), 1u);
}

TEST(StreamEnd, WhatIsNotAcknowledgedIsSaidAgainAndTakenOnce) {
  Pair p;
  p.b.write("one");
  ASSERT_EQ(all_of<RelayData>(p.b, kStart).size(), 1u);  // lost
  EXPECT_EQ(p.b.deadline(), kStart + kRepeatAfter);
  const auto again = all_of<RelayData>(p.b, kStart + kRepeatAfter);
  ASSERT_EQ(again.size(), 1u);
  p.a.receive(kStart + 1s, again.front());
  p.a.receive(kStart + 1s, again.front());
  EXPECT_EQ(p.a.readable(), "one");
  p.a.consume(3);
  EXPECT_EQ(Pair::carry(p.a, p.b, kStart + 1s), 1u);
  EXPECT_EQ(p.b.unacknowledged(), 0u);
  EXPECT_EQ(p.b.deadline(), kStart + kRepeatAfter + kKeepAlive);  // its last word was the repetition
}

TEST(StreamEnd, WhoDoesNotReadStopsTheSender) {
  Pair p;
  const std::string much(3 * kWindowBytes, 'x');
  p.b.write(much);
  for (int i = 0; i < 10; ++i) {
    Pair::carry(p.b, p.a, kStart);
    Pair::carry(p.a, p.b, kStart);
  }
  EXPECT_EQ(p.a.readable().size(), kWindowBytes);
  EXPECT_EQ(p.b.unacknowledged(), 2 * kWindowBytes);
  EXPECT_TRUE(all_of<RelayData>(p.b, kStart).empty());
  // The word that more may be sent is lost: it is asked for.
  p.a.consume(kWindowBytes);
  EXPECT_FALSE(all_of<RelayData>(p.a, kStart).empty());
  const auto asked = all_of<RelayData>(p.b, p.b.deadline());
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_TRUE(asked.front().asks);
  EXPECT_TRUE(asked.front().bytes.empty());
  p.a.receive(kStart + 1s, asked.front());
  Pair::carry(p.a, p.b, kStart + 1s);
  Pair::carry(p.b, p.a, kStart + 1s);
  EXPECT_EQ(p.a.readable().size(), kWindowBytes);
}

TEST(StreamEnd, SilenceIsNoticedAndNobodyIsSilentWithoutReason) {
  Pair p;
  Instant now = kStart;
  for (; now < kStart + 10 * kSilence; now = std::min(p.a.deadline(), p.b.deadline())) {
    ASSERT_FALSE(p.a.silent(now) || p.b.silent(now));
    Pair::carry(p.a, p.b, now);
    Pair::carry(p.b, p.a, now);
  }
  const Instant cut = now;
  std::size_t said = 0;
  for (; !p.a.silent(now); now = p.a.deadline()) said += all_of<RelayData>(p.a, now).size();
  EXPECT_LE(now, cut + kSilence);
  EXPECT_LE(said, 10u);  // it does not shout
}

TEST(StreamEnd, WordsThatCannotBeTrueChangeNothing) {
  Pair p;
  p.b.write("bytes");
  RelayData lie{7, true, 0, "", 6, 0, false};  // has more than was written
  p.b.receive(kStart, lie);
  EXPECT_EQ(p.b.unacknowledged(), 5u);
  lie.received = 5;  // written, but never sent
  p.b.receive(kStart, lie);
  EXPECT_EQ(p.b.unacknowledged(), 5u);
  lie = {7, false, 5, "behind a gap", 0, 0, false};
  p.a.receive(kStart, lie);
  EXPECT_EQ(p.a.readable(), "");
  lie = {7, false, 0, std::string(wire::kRelaySegmentBytes, 'y'), 0, ~0ull, false};
  for (int i = 0; i < 10; ++i, lie.offset += lie.bytes.size()) p.a.receive(kStart, lie);  // more than was allowed
  EXPECT_EQ(p.a.readable().size(), kWindowBytes);
}

// Both directions at once, with a link that does everything it may; then it heals and all must arrive.
TEST(StreamEnd, IsTheStringThatWasWritten) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Rng rng(seed);
    Instant now = kStart;
    StreamEnd ends[2]{{kStart, open(7)}, {kStart, 7, kWindowBytes}};
    std::string written[2], read[2];
    std::multimap<Instant, std::pair<int, RelayMessage>> links;  // when, to whom
    const std::uint64_t loss = rng.below(40);
    const std::size_t most = 1 + rng.below(2 * kWindowBytes);
    const auto turn = [&](bool bad) {
      for (int from = 0; from < 2; ++from) {
        while (const auto message = ends[from].next(now)) {
          if (const auto* data = std::get_if<RelayData>(&*message)) {
            ASSERT_LE(data->bytes.size(), wire::kRelaySegmentBytes);
            ASSERT_LE(data->offset + data->bytes.size(), written[from].size());
          }
          if (bad && rng.below(100) < loss) continue;
          const std::uint64_t copies = bad && rng.below(100) < 10 ? 2 : 1;
          for (std::uint64_t copy = 0; copy < copies; ++copy)
            links.emplace(now + Duration(bad ? rng.below(400'000'000) : 1'000'000), std::pair(1 - from, *message));
        }
      }
      while (!links.empty() && links.begin()->first <= now) {
        const auto [to, message] = links.extract(links.begin()).mapped();
        if (const auto* data = std::get_if<RelayData>(&message)) ends[to].receive(now, *data);
        else ends[to].opened_again(now);
        ASSERT_LE(ends[to].readable().size(), kWindowBytes);
      }
    };
    const auto read_some = [&](int who, std::size_t bytes) {
      const std::string_view there = ends[who].readable();
      bytes = std::min(bytes, there.size());
      ASSERT_EQ(written[1 - who].compare(read[who].size(), bytes, there.substr(0, bytes)), 0) << "seed " << seed;
      read[who].append(there.substr(0, bytes));
      ends[who].consume(bytes);
    };
    for (int step = 0; step < 300; ++step) {
      const int who = static_cast<int>(rng.below(2));
      if (ends[who].unacknowledged() < kWindowBytes && rng.below(3) == 0) {
        std::string bytes(rng.below(most), '\0');
        for (std::size_t i = 0; i < bytes.size(); i += 97) bytes[i] = static_cast<char>(rng.next());
        written[who] += bytes;
        ends[who].write(bytes);
      }
      if (rng.below(2) == 0) read_some(1 - who, rng.below(most));
      turn(true);
      if (HasFatalFailure()) return;
      now += Duration(rng.below(200'000'000));
    }
    for (const Instant end = now + 60s; now < end; now += 50ms) {
      turn(false);
      if (HasFatalFailure()) return;
      for (int who : {0, 1}) read_some(who, kWindowBytes);
    }
    for (int who : {0, 1}) {
      ASSERT_TRUE(read[1 - who] == written[who]) << "seed " << seed << ": " << read[1 - who].size() << " of " << written[who].size();
      ASSERT_EQ(ends[who].unacknowledged(), 0u) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace dtrain::relay
