#include "agent/net/zap.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tests/unit/net/links_world.h"

namespace dtrain::net {
namespace {

wire::Identity member_of(std::uint64_t number) {
  wire::Identity member;
  member.id = {0, number};
  member.address = {"10.0." + std::to_string(number / 256 % 256) + "." + std::to_string(number % 256), 7400};
  return member;
}

// Asks as libzmq's side of ZAP does.
class ZapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto zap = Zap::open(context_);
    ASSERT_TRUE(zap) << zap.error().text();
    zap_.emplace(std::move(*zap));
    auto asker = ZmqSocket::open(context_, ZMQ_DEALER);
    ASSERT_TRUE(asker) << asker.error().text();
    asker_ = std::move(*asker);
    ASSERT_TRUE(asker_.set(ZMQ_LINGER, 0));
    ASSERT_TRUE(asker_.connect("inproc://zeromq.zap.01"));
  }
  void ask(const std::string& request, const CurveKey& key, std::string_view from = "10.9.9.9") {
    const std::string_view bytes(reinterpret_cast<const char*>(key.data()), key.size());
    for (const std::string_view part : {std::string_view(), std::string_view("1.0"), std::string_view(request), std::string_view("dtrain"),
                                        from, std::string_view(), std::string_view("CURVE")})
      ASSERT_EQ(asker_.send(part, true), ZmqSocket::Sent::done);
    ASSERT_EQ(asker_.send(bytes, false), ZmqSocket::Sent::done);
  }
  // request -> status
  std::map<std::string, std::string> answers() {
    std::map<std::string, std::string> all;
    std::vector<std::string> parts;
    for (Frame frame; asker_.receive(frame);) {
      parts.emplace_back(frame.bytes());
      if (frame.more()) continue;
      if (parts.size() > 3) all[parts[2]] = parts[3];
      parts.clear();
    }
    return all;
  }

  ZmqContext context_ = std::move(*ZmqContext::open(1, 16));
  std::optional<Zap> zap_;
  ZmqSocket asker_;
  testing::Lines lines_;
  QuietLog log_{lines_};
  Instant now_{1h};
};

TEST_F(ZapTest, AllQuestionsOfATurnShareItsMultiplications) {
  const KeyPair pair = testing::make_pair();
  KeyRing ring(ClusterKeys{{pair}}, {0, 1});
  constexpr std::uint64_t kTurns = 3, kMembers = kTurns * kDerivedPerTurn;
  for (std::uint64_t i = 2; i < 2 + kMembers; ++i) ring.know(member_of(i));
  // More strangers than are parked, then members: whose keys were not derived yet must not be refused for
  // that.
  constexpr std::size_t kStrangers = kParkedHandshakes + 20;
  for (std::size_t i = 0; i < kStrangers; ++i) ask("stranger" + std::to_string(i), testing::make_pair().public_key);
  constexpr std::uint64_t kAsking = 20;
  for (std::uint64_t i = 2; i < 2 + kAsking; ++i) ask("member" + std::to_string(i), node_key(pair, {0, i}).public_key);

  std::uint64_t turns = 0;
  std::map<std::string, std::string> all;
  bool more = true;
  while (zap_->deadline() <= now_ || more) {
    ASSERT_LT(turns, 4 * kTurns);
    more = zap_->serve(now_, ring, log_);
    all.merge(answers());
    if (++turns < kTurns) {
      EXPECT_EQ(zap_->refused(), 0u);
      EXPECT_TRUE(zap_->deadline() <= now_) << turns;
    }
  }
  EXPECT_GE(turns, kTurns);
  for (std::uint64_t i = 2; i < 2 + kAsking; ++i) EXPECT_EQ(all["member" + std::to_string(i)], "200") << i;
  EXPECT_EQ(zap_->refused(), kStrangers - kParkedHandshakes);
  now_ += kParkTime;
  zap_->serve(now_, ring, log_);
  EXPECT_EQ(zap_->refused(), kStrangers);
}

TEST_F(ZapTest, AMemberMadeKnownAfterASpentTurnIsRecognisedInTheNext) {
  const KeyPair pair = testing::make_pair();
  KeyRing ring(ClusterKeys{{pair}}, {0, 1});
  constexpr std::uint64_t kNewcomer = 10'000;
  ask("newcomer", node_key(pair, {0, kNewcomer}).public_key, "10.0.0.9");
  for (std::uint64_t i = 2; i < 2 + kDerivedPerTurn; ++i) ring.know(member_of(i));
  zap_->serve(now_, ring, log_);  // all of them derived, nothing left, and nobody to wait for
  EXPECT_GT(zap_->deadline(), now_);
  ring.know(member_of(kNewcomer));
  zap_->retry(ring);
  EXPECT_TRUE(answers().empty());
  EXPECT_LE(zap_->deadline(), now_);
  zap_->serve(now_, ring, log_);
  EXPECT_EQ(answers()["newcomer"], "200");
}

TEST_F(ZapTest, MembersBeyondTheLimitAreSaidOnce) {
  KeyRing ring(ClusterKeys{{testing::make_pair()}}, {0, 1});
  for (std::uint64_t i = 2; i < 2 + kKnownMembers; ++i) ASSERT_TRUE(ring.know(member_of(i)));
  zap_->serve(now_, ring, log_);
  EXPECT_FALSE(lines_.have("net.too-many-members"));
  EXPECT_FALSE(ring.know(member_of(2 + kKnownMembers)));
  zap_->serve(now_, ring, log_);
  EXPECT_TRUE(lines_.have("net.too-many-members", std::to_string(kKnownMembers)));
  now_ += 1h;
  EXPECT_FALSE(ring.know(member_of(3 + kKnownMembers)));
  zap_->serve(now_, ring, log_);
  EXPECT_EQ(lines_.lines.size(), 1u);
}

}  // namespace
}  // namespace dtrain::net
