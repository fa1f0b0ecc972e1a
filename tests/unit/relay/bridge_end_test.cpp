// Two ends of a bridge: what one says the other hears, however little room there is; and who breaks the agreement is told from it.
#include "common/relay/bridge_end.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <deque>

#include "common/base/rng.h"

namespace dtrain::relay {
namespace {

using wire::BridgeMessage;
using wire::BridgeWord;

constexpr Instant kStart{1h};

BridgeMessage data(std::size_t bytes) { return {BridgeWord::data, std::string(bytes, 'x'), 0}; }

TEST(BridgeEnd, SaysNoMoreThanTheWindow) {
  BridgeEnd end(kStart);
  std::size_t said = 0;
  while (end.room() > 0) {
    EXPECT_LE(end.room(), wire::kBridgeChunkBytes);
    said += end.say(std::string(end.room(), 'x')).bytes.size();
  }
  EXPECT_EQ(said, kBridgeWindowBytes);
  ASSERT_TRUE(end.receive(kStart, {BridgeWord::allow, "", 100}));
  EXPECT_EQ(end.room(), 100u);
}

TEST(BridgeEnd, HearsNoMoreThanItAllowed) {
  BridgeEnd end(kStart);
  for (std::size_t heard = 0; heard < kBridgeWindowBytes; heard += wire::kBridgeChunkBytes)
    ASSERT_TRUE(end.receive(kStart, data(wire::kBridgeChunkBytes)));
  EXPECT_EQ(end.waiting().size(), kBridgeWindowBytes);
  EXPECT_FALSE(end.receive(kStart, data(1)));
}

TEST(BridgeEnd, AllowsWhatWasHandedOn) {
  BridgeEnd end(kStart);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(end.receive(kStart, data(wire::kBridgeChunkBytes)));
  EXPECT_FALSE(end.next(kStart)) << "it is not handed on yet";
  end.delivered(4 * wire::kBridgeChunkBytes);
  EXPECT_TRUE(end.waiting().empty());
  EXPECT_EQ(end.next(kStart), (BridgeMessage{BridgeWord::allow, "", 4 * wire::kBridgeChunkBytes}));
  EXPECT_FALSE(end.next(kStart));
}

TEST(BridgeEnd, RefusesWhatWasNotAgreed) {
  BridgeEnd end(kStart);
  EXPECT_FALSE(end.receive(kStart, {BridgeWord::allow, "", 1})) << "nothing was sent";
  EXPECT_FALSE(end.receive(kStart, {BridgeWord::hello, "", 1})) << "a second time";
}

TEST(BridgeEnd, AsksTheSilentAndGivesThemUp) {
  BridgeEnd end(kStart);
  EXPECT_EQ(end.deadline(), kStart + kBridgePing);
  EXPECT_FALSE(end.next(kStart + kBridgePing - 1ns));
  EXPECT_EQ(end.next(kStart + kBridgePing), (BridgeMessage{BridgeWord::ping, "", 0}));
  EXPECT_FALSE(end.next(kStart + kBridgePing)) << "once";
  EXPECT_TRUE(end.next(kStart + 2 * kBridgePing));
  EXPECT_FALSE(end.silent(kStart + kBridgeSilence - 1ns));
  EXPECT_TRUE(end.silent(kStart + kBridgeSilence));
  ASSERT_TRUE(end.receive(kStart + kBridgeSilence, {BridgeWord::pong, "", 0}));
  EXPECT_FALSE(end.silent(kStart + kBridgeSilence));
  EXPECT_EQ(end.deadline(), kStart + kBridgeSilence + kBridgePing);
}

TEST(BridgeEnd, ManyPingsAreOnePong) {
  BridgeEnd end(kStart);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(end.receive(kStart, {BridgeWord::ping, "", 0}));
  EXPECT_EQ(end.next(kStart), (BridgeMessage{BridgeWord::pong, "", 0}));
  EXPECT_FALSE(end.next(kStart));
}

TEST(BridgeEnd, AfterTheEndNothingIsSaid) {
  BridgeEnd end(kStart);
  ASSERT_TRUE(end.receive(kStart, data(10)));
  ASSERT_TRUE(end.receive(kStart, {BridgeWord::ping, "", 0}));
  ASSERT_TRUE(end.receive(kStart, {BridgeWord::end, "", 0}));
  EXPECT_TRUE(end.ended());
  EXPECT_EQ(end.waiting().size(), 10u) << "what was said before is still handed on";
  EXPECT_EQ(end.room(), 0u);
  EXPECT_FALSE(end.next(kStart + kBridgePing));
  EXPECT_EQ(end.deadline(), kStart + kBridgeSilence) << "who cannot hand it on is given up then, and not looked at before";
  ASSERT_TRUE(end.receive(kStart, data(10)));
  EXPECT_EQ(end.waiting().size(), 10u);
}

// Whatever the order in which bytes are said, carried and handed on: all arrive, in order, and never more wait than the window.
TEST(BridgeEnd, CarriesEverythingInOrder) {
  rc::check([] {
    BridgeEnd left(kStart), right(kStart);
    std::deque<BridgeMessage> to_right, to_left;
    const auto total = *rc::gen::inRange<std::size_t>(1, 3 * kBridgeWindowBytes);
    // Of small cases rapidcheck draws small numbers, and the steps are all needed.
    Rng rng(*rc::gen::inRange<std::uint64_t>(0, 1'000'000));
    std::size_t said = 0, arrived = 0;
    bool good = true;
    const auto byte_at = [](std::size_t at) { return static_cast<char>(at % 251); };
    for (std::size_t step = 0; arrived < total; ++step) {
      RC_ASSERT(step < 100'000u);
      switch (rng.below(5)) {
        case 0:
          if (const std::size_t room = std::min(left.room(), total - said); room > 0) {
            std::string bytes;
            for (std::size_t i = 0; i < room; ++i) bytes.push_back(byte_at(said + i));
            said += room;
            to_right.push_back(left.say(bytes));
          }
          break;
        case 1:
          for (; !to_right.empty(); to_right.pop_front()) RC_ASSERT(right.receive(kStart, to_right.front()).has_value());
          break;
        case 2:
          for (; !to_left.empty(); to_left.pop_front()) RC_ASSERT(left.receive(kStart, to_left.front()).has_value());
          break;
        case 3: {
          const std::size_t count = std::min<std::size_t>(right.waiting().size(), 50'000);
          for (std::size_t i = 0; i < count; ++i) good = good && right.waiting()[i] == byte_at(arrived + i);
          right.delivered(count);
          arrived += count;
          break;
        }
        case 4:
          while (const auto message = right.next(kStart)) to_left.push_back(*message);
          break;
      }
      RC_ASSERT(right.waiting().size() <= kBridgeWindowBytes);
    }
    RC_ASSERT(good && said == total);
  });
}

}  // namespace
}  // namespace dtrain::relay
