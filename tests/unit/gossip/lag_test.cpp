// A node that runs late: it waits longer for others, tells more seldom, and takes no more work upon itself.
#include "common/gossip/lag.h"

#include <gtest/gtest.h>

#include <deque>

#include "tests/unit/gossip/lone_member.h"

namespace dtrain::gossip {
namespace {

using L = LoneMember;

TEST(Lag, IsTheMostThatWasFeltLately) {
  Lag lag;
  Instant now{50s};
  EXPECT_EQ(lag.at(now), 0ms);
  lag.felt(300ms, now);
  lag.felt(20ms, now + 1s);
  EXPECT_EQ(lag.at(now + 1s), 300ms);
  EXPECT_EQ(lag.at(now + Lag::kRemembered), 300ms);
  EXPECT_EQ(lag.at(now + 2 * Lag::kRemembered), 0ms);
  lag.felt(1h, now + 60s);
  EXPECT_EQ(lag.at(now + 60s), Lag::kMost);
  EXPECT_EQ(lag.at(now + 600s), 0ms);
}

// Every tick comes that late; pings are answered `answer` after they were sent.
class LateMember : public LoneMember {
 public:
  LateMember(std::size_t peers, const std::string& broken, Duration late, Duration answer)
      : LoneMember(peers, broken), late_(late), answer_(answer) {}

  void pass(Duration length) {
    const Instant end = now + length;
    for (;;) {
      const Instant tick = std::max(now, (*this)->deadline() + late_);
      const bool answer_first = !answers_.empty() && answers_.front().at <= tick;
      const Instant next = answer_first ? answers_.front().at : tick;
      if (next > end) break;
      now = std::max(now, next);
      if (answer_first) {
        const Answer answer = answers_.front();
        answers_.pop_front();
        receive(answer.pong, answer.from, incarnation_of(answer.from));
      } else {
        give(Tick{});
      }
      for (; seen_ < out.sends.size(); ++seen_)
        if (const auto* ping = std::get_if<wire::Ping>(&out.sends[seen_].body))
          answers_.push_back({now + answer_, out.sends[seen_].member.low, pong_to(*ping, incarnation_of(out.sends[seen_].member.low))});
    }
    now = end;
  }

 private:
  struct Answer {
    Instant at{};
    std::uint64_t from = 0;
    wire::Pong pong;
  };
  Duration late_, answer_;
  std::deque<Answer> answers_;
  std::size_t seen_ = 0;
};

TEST(Lag, WhoRunsLateWaitsThatMuchLongerForAnswers) {
  const auto accused = [](const std::string& broken) {
    LateMember lone(8, broken, 600ms, 1800ms);
    lone.pass(60s);
    return lone.count(ChangeKind::suspect) > 0;
  };
  EXPECT_FALSE(accused(""));
  EXPECT_TRUE(accused("lag-counts"));
}

TEST(Lag, WhoRunsLateTellsInFewerMessages) {
  const auto told_within = [](Duration length, const std::string& broken) {
    LoneMember lone(8, broken);
    lone.run_answering(10s);
    lone.now = lone->deadline() + 1s;
    lone.give(Tick{});
    lone.hear({L::alive(1, L::kInc + 1)});  // the first news goes out at once
    lone.run_answering(10ms);
    lone.clear();
    lone.hear({L::alive(2, L::kInc + 1)});  // the next waits
    lone.run_answering(length);
    return lone.sent<wire::Gossip>().size();
  };
  EXPECT_EQ(told_within(1500ms, ""), 0u);
  EXPECT_GT(told_within(1500ms, "lag-counts"), 0u);
  EXPECT_GT(told_within(3s, ""), 0u);
}

TEST(Lag, WhoRunsLateOpensNoConnectionForAnothersQuestion) {
  const auto nacks = [](Duration late) {
    LateMember lone(40, {}, late, 1ms);
    lone.pass(20s);
    const std::size_t before = lone.sent<wire::Nack>().size();
    for (std::uint64_t i = 1; i < 40; ++i) lone.receive(wire::PingRequest{i, L::identity(i), lone.incarnation_of(i), {}}, 0);
    return lone.sent<wire::Nack>().size() - before;
  };
  EXPECT_EQ(nacks(0ms), 0u);
  EXPECT_GT(nacks(300ms), 20u);
}

}  // namespace
}  // namespace dtrain::gossip
