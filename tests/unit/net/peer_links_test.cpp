#include "agent/net/peer_links.h"

#include <gmock/gmock.h>

#include <utility>

#include "tests/unit/net/links_world.h"

namespace dtrain::net::testing {
namespace {

using ::testing::HasSubstr;

// The kernel chooses the address that a connection comes from: on loopback always this one (dealer.cpp says why).
const std::string kSeenFrom = "127.0.0.1";

TEST(PeerLinks, CarryBothLanesUnderCurve) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  ASSERT_TRUE(exchange(a, b));
  EXPECT_EQ(a.received.front().header.sender, b.id);
  EXPECT_EQ(b.received.front().header.sender, a.id);
  EXPECT_EQ(b.received.front().observed_ip, kSeenFrom);
  EXPECT_EQ(a.up, std::vector{b.at});

  wire::SyncRoot root;
  root.root = 77;
  a.links->send(a.message(b, root));
  ASSERT_TRUE(run({&a, &b}, [&] { return b.count<wire::SyncRoot>() == 1; }));
  b.answer(b.received.back(), wire::SyncRoot{78, {}, true});
  EXPECT_TRUE(run({&a, &b}, [&] { return a.count<wire::SyncRoot>() == 1; }));
  EXPECT_EQ(a.up.size(), 1u);  // the bulk lane is no evidence of life
}

TEST(PeerLinks, CarryTheLogOnTheLaneThatFits) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  const auto send = [&](wire::LogMessage message) {
    a.links->send(node::SendLog{b.at, b.id, a.message(b, wire::Ping{}).header, std::move(message)});
  };
  const wire::RaftHeader header{{1, {1, 1}}, 7, a.id, {1, 1}};
  const wire::RaftMessage vote{header, wire::VoteRequest{true, 8, 3, 7}};
  wire::AppendRequest append{1, 3, 7, 3, {}, {}};
  append.entries.push_back({4, 7, std::string(wire::kEntryBytes, 'x')});
  const wire::RaftMessage large{header, append};
  send(vote);
  ASSERT_TRUE(run({&a, &b}, [&] { return b.log_received.size() == 1; }));
  send(large);
  ASSERT_TRUE(run({&a, &b}, [&] { return b.log_received.size() == 2; }));
  send(wire::Forward{{1, 2}, 3, 1, "command"});
  ASSERT_TRUE(run({&a, &b}, [&] { return b.log_received.size() == 3; }));
  EXPECT_EQ(std::get<wire::RaftMessage>(b.log_received[0].message), vote);
  EXPECT_EQ(std::get<wire::RaftMessage>(b.log_received[1].message), large);
  EXPECT_EQ(std::get<wire::Forward>(b.log_received[2].message).body, "command");
  EXPECT_EQ(b.log_received[0].header.sender, a.id);
  EXPECT_TRUE(b.dropped.empty());
}

TEST(PeerLinks, WithoutKeysStayOnLoopback) {
  Agent a(1), b(2);
  ASSERT_TRUE(exchange(a, b));
  Agent stranger(3);
  stranger.at = {"192.0.2.1", 7400};
  a.ping(stranger);
  ASSERT_TRUE(run({&a}, [&] { return a.failed.size() == 1; }));
  EXPECT_TRUE(a.log.have("net.no-key", "dtrainctl keygen"));

  Lines log;
  const auto opened = PeerLinks::open({{"0.0.0.0", 20'001}, a.id, {}}, log);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().text(), HasSubstr("no cluster key"));
  EXPECT_THAT(opened.error().text(), HasSubstr("dtrainctl keygen"));
}

TEST(PeerLinks, ATakenPortIsSaid) {
  Agent a(1);
  Lines log;
  const auto again = PeerLinks::open({a.at, a.id, {}}, log);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::unavailable);
  wire::Endpoint below = a.at;
  --below.port;  // its bulk port is a's gossip port
  const auto overlapping = PeerLinks::open({below, a.id, {}}, log);
  ASSERT_FALSE(overlapping);
  EXPECT_EQ(overlapping.error().code, ErrorCode::unavailable);
}

TEST(PeerLinks, AnotherClustersKeyIsRefusedAndSaid) {
  Agent a(1, one_key()), stranger(2, ClusterKeys{{make_pair()}});
  introduce({&a, &stranger});
  stranger.ping(a);
  stranger.join(a);
  ASSERT_TRUE(run({&a, &stranger},
                  [&] { return a.links->counters().handshakes_failed > 0 && stranger.log.have("net.handshake-failed", "sha256sum"); }));
  EXPECT_TRUE(a.log.have("net.refused reason=handshake", "sha256sum"));
  EXPECT_TRUE(a.received.empty());
  EXPECT_TRUE(a.dropped.empty());
}

TEST(PeerLinks, NoKeyIsRefusedAndSaid) {
  // Either side may be the first to see that the other speaks no CURVE, and hangs up; it depends on it what
  // the other sees.
  const auto refused = [](const Agent& agent) {
    const LinkCounters counters = agent.links->counters();
    return counters.handshakes_failed + counters.handshakes_incomplete > 0;
  };
  Agent a(1, one_key()), plain(2);
  plain.join(a);
  ASSERT_TRUE(run({&a, &plain}, [&] { return refused(a) && plain.log.have("net.handshake-failed", "sha256sum"); }));
  EXPECT_TRUE(a.received.empty());

  Agent b(3, one_key());
  b.ping(plain);
  ASSERT_TRUE(run({&b, &plain}, [&] { return refused(plain); }));
  EXPECT_TRUE(plain.received.empty());
}

TEST(PeerLinks, ALinkRecoversWhenTheOtherSideGetsTheRightKey) {
  Agent a(1, one_key()), b(2, ClusterKeys{{make_pair()}});
  a.links->know(b.identity());
  a.links->keep({{{b.id, b.at, ""}}});
  ASSERT_TRUE(run({&a, &b}, [&] { return b.links->counters().handshakes_failed > 0; }));
  b.links.reset();
  b.keys = one_key();
  b.open();
  b.links->know(a.identity());
  EXPECT_TRUE(run({&a, &b}, [&] { return a.up.size() == 1; }));
}

TEST(PeerLinks, AnUnknownNodeKeyIsRefusedUntilItIsKnown) {
  Agent a(1, one_key()), b(2, one_key());
  b.links->know(a.identity());
  b.ping(a);
  ASSERT_TRUE(run({&a, &b}, [&] { return a.links->counters().keys_refused > 0; }));
  EXPECT_TRUE(a.log.have("net.refused reason=unknown-key from=" + kSeenFrom, "sha256sum"));
  EXPECT_TRUE(a.received.empty());
  a.links->know(b.identity());
  EXPECT_TRUE(exchange(b, a));
}

TEST(PeerLinks, AHandshakeWaitsForTheNewsAboutItsNode) {
  Agent a(1, one_key()), b(2, one_key());
  b.links->know(a.identity());
  b.ping(a);
  run_for({&a, &b}, 200ms);
  EXPECT_TRUE(a.received.empty());
  a.links->know(b.identity());
  ASSERT_TRUE(run({&a, &b}, [&] { return a.received.size() == 1; }));
  EXPECT_EQ(a.links->counters().keys_refused, 0u);
}

TEST(PeerLinks, AKnownNodeCannotSpeakForAnother) {
  Agent a(1, one_key()), b(2, one_key()), c(3, one_key());
  introduce({&a, &b, &c});
  gossip::Send lie = b.message(a, wire::Ping{});
  lie.header.sender = c.id;
  b.links->send(lie);
  ASSERT_TRUE(run({&a, &b}, [&] { return a.was_dropped(wire::Drop::not_the_key_holder); }));
  EXPECT_EQ(a.dropped.front().from_ip, kSeenFrom);
  EXPECT_TRUE(a.log.have("net.dropped reason=not-the-key-holder from=" + kSeenFrom));
  EXPECT_TRUE(a.received.empty());
}

TEST(PeerLinks, AnAnswerMustComeFromWhomWeAsked) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  gossip::Send question = a.message(b, wire::Ping{});
  question.member = MemberId{7, 7};  // b lives at an address where somebody else was
  a.links->send(question);
  b.answer_pings();
  EXPECT_TRUE(run({&a, &b}, [&] { return a.was_dropped(wire::Drop::not_the_key_holder); }));
}

TEST(PeerLinks, AJoinLinkCarriesJoinAndItsAnswerOnly) {
  Agent seed(1, one_key()), joiner(2, one_key());
  joiner.links->set_cluster({});
  joiner.cluster = {};
  joiner.join(seed);
  ASSERT_TRUE(run({&seed, &joiner}, [&] { return seed.count<wire::Join>() == 1; }));
  seed.answer(seed.received.front(), wire::JoinReply{"", seed.cluster, 0, joiner.at.ip, {}});
  ASSERT_TRUE(run({&seed, &joiner}, [&] { return joiner.count<wire::JoinReply>() == 1; }));

  // The newcomer tries more before it is known.
  joiner.cluster = seed.cluster;
  joiner.links->set_cluster(seed.cluster);
  gossip::Send forbidden = joiner.message(seed, wire::SyncRoot{});
  forbidden.member = {};
  joiner.links->send(forbidden);
  ASSERT_TRUE(run({&seed, &joiner}, [&] { return seed.was_dropped(wire::Drop::join_link); }));
  // And the seed's side of it.
  seed.answer(seed.received.front(), wire::SyncRoot{});
  ASSERT_TRUE(run({&seed, &joiner}, [&] { return joiner.was_dropped(wire::Drop::join_link); }));
  EXPECT_EQ(seed.received.size(), 1u);
  EXPECT_EQ(joiner.received.size(), 1u);
}

TEST(PeerLinks, AnotherClustersMessagesAreDroppedUnread) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  b.cluster = {9, 9};
  b.ping(a);
  ASSERT_TRUE(run({&a, &b}, [&] { return a.was_dropped(wire::Drop::other_cluster); }));
  EXPECT_TRUE(a.log.have("net.dropped reason=other-cluster from=" + kSeenFrom));
  EXPECT_TRUE(a.received.empty());
}

TEST(PeerLinks, KeepOpensLinksAndFollowsAMovedMember) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  a.links->keep({{{b.id, b.at, ""}}});
  ASSERT_TRUE(run({&a, &b}, [&] { return a.up.size() == 1; }));
  b.links.reset();
  b.at = free_endpoint();
  b.open();
  b.links->know(a.identity());
  a.links->keep({{{b.id, b.at, ""}}});
  ASSERT_TRUE(run({&a, &b}, [&] { return a.up.size() == 2; }));
  EXPECT_EQ(a.up.back(), b.at);
  EXPECT_EQ(a.links->counters().links, 1u);
}

TEST(PeerLinks, IdleLinksAreBounded) {
  Agent a(1, one_key());
  for (std::uint64_t i = 0; i < kIdleDealers + 30; ++i) {
    gossip::Send send = a.message(a, wire::Ping{});
    send.member = {1, i};
    send.to = {"127.200.0.1", static_cast<std::uint16_t>(21'000 + i)};
    a.links->send(send);
    a.turn();
  }
  EXPECT_TRUE(run({&a}, [&] { return a.links->counters().links == kIdleDealers; }));
}

TEST(PeerLinks, WhatWaitsForALinkIsBounded) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  constexpr std::size_t kMany = 1000;
  for (std::uint64_t i = 0; i < kMany; ++i) a.ping(b, i);
  ASSERT_TRUE(run({&a, &b}, [&] { return a.failed.size() + b.received.size() >= kMany; }));
  EXPECT_EQ(a.failed.size() + b.received.size(), kMany);
  EXPECT_GE(b.received.size(), 16u);
}

TEST(PeerLinks, NoWakeUpIsLost) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  b.answer_pings();
  constexpr std::uint64_t kRounds = 10'000;
  std::uint64_t answered = 0;
  a.at_message = [&](const gossip::Received& message) {
    EXPECT_EQ(std::get<wire::Pong>(message.body).sequence, ++answered);
    if (answered < kRounds) a.ping(b, answered + 1);
  };
  a.ping(b, 1);
  const Instant started = now();
  ASSERT_TRUE(run(
      {&a, &b}, [&] { return answered == kRounds; }, 120s))
      << answered;
  // With a lost wake-up this takes a second a piece.
  EXPECT_LT(now() - started, 60s);
}

TEST(PeerLinks, BothSendAtOnceAndNothingIsLeftLying) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  a.answer_pings();
  ASSERT_TRUE(exchange(a, b));
  ASSERT_TRUE(exchange(b, a));
  for (int round = 0; round < 200; ++round) {
    const std::size_t want_a = a.count<wire::Pong>() + 8, want_b = b.count<wire::Pong>() + 8;
    for (int i = 0; i < 8; ++i) {
      a.ping(b);
      b.ping(a);
    }
    ASSERT_TRUE(run({&a, &b}, [&] { return a.count<wire::Pong>() == want_a && b.count<wire::Pong>() == want_b; })) << round;
    a.received.clear();
    b.received.clear();
  }
}

TEST(PeerLinks, TheAnswerToAVanishedConnectionIsSilent) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  a.ping(b);
  ASSERT_TRUE(run({&a, &b}, [&] { return b.received.size() == 1; }));
  a.links.reset();
  run_for({&b}, 100ms);
  b.answer(b.received.front(), wire::Pong{});
  run_for({&b}, 50ms);
  EXPECT_TRUE(b.failed.empty());
}

TEST(PeerLinks, ALargeMessageIsNotSent) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  ASSERT_TRUE(exchange(a, b));
  wire::Gossip gossip;
  for (int i = 0; i < 8; ++i) {
    wire::Rumour rumour;
    rumour.kind = wire::RumourKind::fact;
    rumour.subject = b.id;
    rumour.fact = std::make_shared<wire::Fact>(wire::Fact{wire::FactKey::resources, 1, std::string(16 << 10, 'x')});
    gossip.rumours.push_back(rumour);
  }
  a.links->send(a.message(b, gossip));
  EXPECT_TRUE(a.log.have("net.message-too-large"));
  EXPECT_TRUE(exchange(a, b));
  EXPECT_TRUE(b.dropped.empty());
}

TEST(PeerLinks, KeysRotateWhileRunning) {
  const KeyPair old_pair = make_pair(), new_pair = make_pair();
  Agent a(1, ClusterKeys{{old_pair}}), b(2, ClusterKeys{{old_pair}});
  const auto rekey = [](Agent& agent, std::vector<KeyPair> pairs) {
    agent.keys = ClusterKeys{std::move(pairs)};
    EXPECT_TRUE(agent.links->rekey(*agent.keys));
  };
  introduce({&a, &b});
  const auto both_ways = [&] { return exchange(a, b) && exchange(b, a); };
  ASSERT_TRUE(both_ways());
  // The new one behind, on all hosts.
  rekey(a, {old_pair, new_pair});
  EXPECT_TRUE(both_ways());
  rekey(b, {old_pair, new_pair});
  EXPECT_TRUE(both_ways());
  // It moves to the front; the others learn of it some time later.
  rekey(a, {new_pair, old_pair});
  EXPECT_TRUE(run({&a, &b}, [&] { return !b.lost.empty(); }));
  EXPECT_TRUE(both_ways()) << "by trying the other pair";
  introduce({&a, &b});
  EXPECT_TRUE(both_ways());
  rekey(b, {new_pair, old_pair});
  introduce({&a, &b});
  EXPECT_TRUE(both_ways());
  // The old one goes.
  rekey(a, {new_pair});
  EXPECT_TRUE(both_ways());
  rekey(b, {new_pair});
  EXPECT_TRUE(both_ways());

  Agent late(3, ClusterKeys{{old_pair}});
  late.links->know(a.identity());
  a.links->know(late.identity());
  const std::uint64_t refused = a.links->counters().handshakes_failed;
  late.ping(a);
  EXPECT_TRUE(run({&a, &late}, [&] { return a.links->counters().handshakes_failed > refused; }));
  // Switched off during all that: the present file is all it needs.
  rekey(late, {new_pair});
  introduce({&a, &late});
  EXPECT_TRUE(exchange(late, a) && exchange(a, late));
  Agent plain(4);
  EXPECT_FALSE(plain.links->rekey(ClusterKeys{{new_pair}}));
}

}  // namespace
}  // namespace dtrain::net::testing
