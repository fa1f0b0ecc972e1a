// The rules about probing, suspecting and deciding, each with the proof that switching it off is noticed.
#include "tests/unit/gossip/lone_member.h"
#include "tests/unit/gossip/tiny_cluster.h"

namespace dtrain::gossip {
namespace {

using wire::MemberState;
using wire::RumourKind;
using L = LoneMember;

TEST(Rule04, EachAccuserCountsOnceAndANewOneIsPassedOn) {
  const auto lives = [](const std::string& broken) {
    L lone(10, broken);
    for (int i = 0; i < 5; ++i) lone.hear({L::suspect(3, L::kInc, 1)});
    lone.run_answering(7s, {3});
    return lone.state(3) == MemberState::suspect;
  };
  EXPECT_TRUE(lives(""));
  EXPECT_FALSE(lives("accuser-counts-once"));
  L lone(10);
  lone.hear({L::suspect(3, L::kInc, 1), L::suspect(3, L::kInc, 2), L::suspect(3, L::kInc, 4), L::suspect(3, L::kInc, 5)});
  lone.run_answering(4600ms);
  EXPECT_EQ(lone.state(3), MemberState::suspect);
  EXPECT_GE(lone->counters().probes, 1u);
  lone.run_answering(1200ms, {3});  // with the last question
  EXPECT_EQ(lone.state(3), MemberState::dead);
}

TEST(Rule05, ATimerThatFiresChecksThatItIsTheSameSuspicion) {
  const auto lives = [](const std::string& broken) {
    L lone(3, broken);
    lone.hear({L::suspect(1, L::kInc, 2)});
    lone.hear({L::alive(1, L::kInc + 1)});
    lone.run_answering(20s);
    return lone.state(1) == MemberState::alive;
  };
  EXPECT_TRUE(lives(""));
  EXPECT_FALSE(lives("stale-timer-checked"));
}

TEST(Rule07, AProbeOfASuspectCarriesTheSuspicion) {
  const auto carries = [](const std::string& broken) {
    L lone(1, broken);
    lone.hear({L::suspect(0, L::kInc, 5)}, 0);
    lone.run(300ms);  // the rumour itself has been told
    lone.clear();
    lone.run(3s);
    for (const auto& [to, ping] : lone.sent<wire::Ping>())
      if (!ping.rumours.empty() && ping.rumours[0].kind == RumourKind::suspect && ping.rumours[0].subject == L::id(0)) return true;
    EXPECT_FALSE(lone.sent<wire::Ping>().empty());
    return false;
  };
  EXPECT_TRUE(carries(""));
  EXPECT_FALSE(carries("probe-carries-suspicion"));
}

TEST(Rule07, HelpersAreAskedAndMissingNacksLowerLocalHealth) {
  L lone(10);
  std::uint32_t asked = 0;
  lone.run(4s, [&] {
    lone.answer_pings({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    asked = static_cast<std::uint32_t>(lone.sent<wire::PingRequest>().size());
  });
  EXPECT_GE(asked, 3u);
  EXPECT_GE(lone->local_health(), 3u);
  L nacked(10);
  nacked.run(4s, [&] {
    for (std::size_t i = 0; i < nacked.out.sends.size(); ++i) {
      const Send sent = nacked.out.sends[i];
      if (const auto* request = std::get_if<wire::PingRequest>(&sent.body)) nacked.receive(wire::Nack{request->sequence}, sent.member.low);
    }
    nacked.clear();
  });
  EXPECT_EQ(nacked->local_health(), 0u) << "helpers that answer show that we are heard";
}

TEST(Rule07, AHelperNacksAtFourFifthsOfTheDeadlineAndRelaysThePong) {
  L lone(4);
  const Instant start = lone.now;
  lone.receive(wire::PingRequest{99, L::identity(2), L::kInc, {}}, 1);
  const auto pings = lone.sent<wire::Ping>();
  ASSERT_EQ(pings.size(), 1u);
  EXPECT_EQ(pings[0].first, L::id(2));
  Instant nacked{};
  lone.run(450ms, [&] {
    if (nacked == Instant{} && !lone.sent<wire::Nack>().empty()) nacked = lone.now;
  });
  EXPECT_EQ(nacked - start, 400ms);
  EXPECT_EQ(lone.sent<wire::Nack>()[0].second.sequence, 99u);
  lone.receive(L::pong_to(pings[0].second), 2);
  const auto pongs = lone.sent<wire::Pong>();
  ASSERT_EQ(pongs.size(), 1u);
  EXPECT_EQ(pongs[0].second.sequence, 99u);
  EXPECT_EQ(pongs[0].second.target, L::id(2));
  EXPECT_EQ(lone.out.sends.back().reply, 2u) << "on the asker's connection";
}

TEST(Rule08, PassesOverAllAreShuffled) {
  const auto order = [](const std::string& broken, std::uint64_t seed) {
    MembershipOptions options;
    options.random_every = 1;  // each period also the next of the pass
    options.probe_period = 3s;
    L lone(30, broken, options, seed);
    std::vector<std::uint64_t> probed;
    lone.run(90s, [&] {
      const auto pings = lone.sent<wire::Ping>();
      if (!pings.empty()) probed.push_back(pings[0].first.low);
      lone.answer_pings({});
      lone.clear();
    });
    std::vector<std::uint64_t> first(probed.begin(), probed.begin() + std::min<std::ptrdiff_t>(12, std::ssize(probed)));
    return first;
  };
  EXPECT_GE(order("", 1).size(), 12u);
  EXPECT_NE(order("", 1), order("", 2));
  EXPECT_EQ(order("shuffle-probes", 1), order("shuffle-probes", 2));
}

TEST(Rule11, FewestTransmittedGoFirst) {
  const auto all_told_in_three_rounds = [](const std::string& broken) {
    MembershipOptions options;
    options.gossip_bytes = 60;  // one accusation a message
    L lone(8, broken, options);
    lone.run_answering(3s);
    lone.clear();
    lone.hear({L::claim(RumourKind::left, 1, L::kInc, 1)});
    lone.hear({L::claim(RumourKind::left, 2, L::kInc, 2)});
    lone.hear({L::claim(RumourKind::left, 3, L::kInc, 3)});
    lone.run(options.batch * 2);
    std::set<std::uint64_t> told;
    for (const auto& [to, gossip] : lone.sent<wire::Gossip>())
      for (const wire::Rumour& rumour : gossip.rumours) told.insert(rumour.subject.low);
    EXPECT_EQ(lone.sent<wire::Gossip>().size(), 3 * options.fanout);
    return told.size() == 3;
  };
  EXPECT_TRUE(all_told_in_three_rounds(""));
  EXPECT_FALSE(all_told_in_three_rounds("fewest-transmitted-first"));
}

TEST(Rule09, AFailedSendIsAFailedProbe) {
  const auto suspected = [](const std::string& broken) {
    L lone(10, broken);
    std::set<std::uint64_t> silent{3};
    lone.run(30s, [&] {
      for (const Send& sent : lone.out.sends)
        if (sent.member == L::id(3) && std::holds_alternative<wire::Ping>(sent.body)) {
          lone.give(SendFailed{sent.to});
          break;
        }
      lone.answer_pings({3});
      if (lone.count(ChangeKind::suspect, 3) == 0) lone.clear();
    });
    return lone.count(ChangeKind::suspect, 3) != 0;
  };
  EXPECT_TRUE(suspected(""));
  EXPECT_FALSE(suspected("send-failure-is-failed-probe"));
}

TEST(Rule10, APongMustMatchAndAPingForAnotherIsRefused) {
  const auto suspected = [](const std::string& broken) {
    L lone(1, broken);
    lone.run(6s, [&] {
      for (const auto& [to, ping] : lone.sent<wire::Ping>()) {
        wire::Pong pong = L::pong_to(ping);
        pong.boot_hash ^= 1;  // of another run
        lone.receive(pong, 0);
        pong = L::pong_to(ping, L::kInc - 1);
        lone.receive(pong, 0);
        pong = L::pong_to(ping);
        pong.sequence += 1000;
        lone.receive(pong, 0);
      }
      if (lone.count(ChangeKind::suspect) == 0) lone.clear();
    });
    return lone.count(ChangeKind::suspect) != 0 && lone->counters().stale_pongs > 0;
  };
  EXPECT_TRUE(suspected(""));
  EXPECT_FALSE(suspected("pong-must-match"));
  L lone(1);
  wire::Ping ping;
  ping.sequence = 5;
  ping.target = L::id(77);
  lone.receive(ping);
  EXPECT_TRUE(lone.sent<wire::Pong>().empty());
  EXPECT_EQ(lone->counters().pings_refused, 1u);
  ping.target = L::id(L::kSelf);
  ping.sent = 4711;
  lone.receive(ping);
  ASSERT_EQ(lone.sent<wire::Pong>().size(), 1u);
  EXPECT_EQ(lone.sent<wire::Pong>()[0].second.sent, 4711);
  EXPECT_EQ(lone.sent<wire::Pong>()[0].second.observed_ip, "10.0.0.9");
}

TEST(Rule12, TimersBeginAtARandomPhase) {
  const auto differ = [](const std::string& broken) {
    std::set<Instant> firsts;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      L lone(10, broken, {}, seed);
      lone.run(2s, [&] {
        if (lone->counters().probes == 1 && !lone.sent<wire::Ping>().empty()) firsts.insert(lone.now), lone.clear();
      });
    }
    return firsts.size() > 4;
  };
  EXPECT_TRUE(differ(""));
  EXPECT_FALSE(differ("random-phase"));
}

TEST(Rule12, TheSyncPeriodGrowsWithLogN) {
  const auto syncs = [](std::size_t peers) {
    L lone(peers);
    lone.run(600s, [&] { lone.answer_pings({}), lone.clear(); });
    return lone->counters().syncs;
  };
  const auto few = syncs(8), many = syncs(300);
  EXPECT_GE(few, 16u);
  EXPECT_LE(few, 26u);
  EXPECT_LT(many, few);
}

TEST(Rule13, DeadMembersAndSeedsAreTriedForEver) {
  const auto tried = [](const std::string& broken) {
    MembershipOptions options;
    options.reclaim = 60s;
    L lone(8, broken, options);
    lone.hear({L::dead(3)});
    std::size_t pings = 0, joins = 0;
    lone.run(120s, [&] {
      lone.answer_pings({3});
      for (const Send& sent : lone.out.sends) {
        pings += sent.member == L::id(3) && std::holds_alternative<wire::Ping>(sent.body);
        joins += sent.to == L::identity(3)->address && std::holds_alternative<wire::Join>(sent.body);
      }
      lone.clear();
    });
    return pings > 10 && joins > 10;  // while its row is there, and after it was reaped
  };
  EXPECT_TRUE(tried(""));
  EXPECT_FALSE(tried("retry-dead-for-ever"));
  TinyCluster cluster;
  Self waiting = cluster.self_of(1);
  cluster.launch(1, waiting);  // its seed is not there
  cluster.run(60s);
  EXPECT_GT(cluster.resolutions, 40u) << "names are resolved anew each time";
  cluster.launch(0, cluster.self_of(0));
  EXPECT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 3s));
}

TEST(Rule16, AGapInOurOwnTicksDiscardsVerdicts) {
  const auto all_live = [](const std::string& broken) {
    L lone(20, broken);
    lone.hear({L::suspect(3), L::suspect(4)});
    lone.run_answering(900ms);
    lone.run(400ms);  // a probe is under way
    lone.now += 60s;  // frozen for a minute
    lone.give(Tick{});
    EXPECT_EQ(lone.count(ChangeKind::stalled), 1u);
    EXPECT_GT(lone->local_health(), 0u);
    lone.answer_pings({3, 4});
    lone.run_answering(2s, {3, 4});
    return lone.count(ChangeKind::dead) == 0;
  };
  EXPECT_TRUE(all_live(""));
  EXPECT_FALSE(all_live("tick-gap-discards-verdicts"));
}

TEST(Rule17, SuspicionsRaisedInBadHealthStartAtTheMaximum) {
  const auto lives = [](const std::string& broken) {
    L lone(2, broken);
    lone.hear({L::suspect(L::kSelf, lone->incarnation())});  // refuting tells that we were slow
    EXPECT_EQ(lone->local_health(), 1u);
    lone.hear({L::suspect(1, L::kInc, 0)});
    lone.run_answering(6s, {1});
    return lone.state(1) == MemberState::suspect;
  };
  EXPECT_TRUE(lives(""));
  EXPECT_FALSE(lives("bad-health-starts-at-max"));
}

TEST(Rule17, OneIsolatedNodeCausesNoFailedElsewhere) {
  TinyCluster cluster;
  cluster.start(16);
  cluster.run(20s);
  for (int round = 0; round < 4; ++round) {
    cluster.cut({5});
    cluster.run(15s + round * 3s);
    cluster.heal();
    EXPECT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 10s));
    cluster.run(20s);
  }
  for (const TinyCluster::Seen& seen : cluster.changes)
    EXPECT_FALSE(seen.change.kind == ChangeKind::dead && seen.change.id != TinyCluster::id_of(5)) << cluster.story();
}

TEST(Rule18, ManySuspectedAtOnceFreezeTheSideWithoutQuorum) {
  const auto nobody_dead = [](const std::string& broken) {
    MembershipOptions options;
    options.broken_rule = broken;
    TinyCluster cluster(options);
    cluster.start(15);
    cluster.run(20s);
    cluster.cut({0, 1, 2, 3});
    cluster.run(60s);
    std::size_t dead = 0;
    for (std::size_t i : {0u, 1u, 2u, 3u}) dead += cluster.count(ChangeKind::dead, std::nullopt, i);
    if (dead != 0 && broken.empty()) ADD_FAILURE() << cluster.story();
    return dead == 0 && cluster.count(ChangeKind::frozen, std::nullopt, 0) > 0;
  };
  EXPECT_TRUE(nobody_dead(""));
  EXPECT_FALSE(nobody_dead("freeze-without-quorum"));
}

TEST(ConfirmOnDemand, TheSuspectorAsksOthersToProbeNow) {
  const auto asked = [](const std::string& broken) {
    L lone(20, broken);
    lone.run(30s, [&] {
      const auto neighbours_silent = lone.sent<wire::Ping>();
      lone.answer_pings({0, 1, 2, 3, 4});
      if (lone.count(ChangeKind::suspect) == 0) lone.clear();
    });
    EXPECT_GT(lone.count(ChangeKind::suspect), 0u);
    return lone.sent<wire::ProbeNow>().size() >= 3;
  };
  EXPECT_TRUE(asked(""));
  EXPECT_FALSE(asked("confirm-on-demand"));
}

TEST(GoneNeedsTwo, OneWitnessIsNotEnoughAmongThree) {
  const auto holds = [](const std::string& broken) {
    L lone(8, broken);
    lone.hear({L::claim(RumourKind::gone, 3, L::kInc, 1)});
    lone.hear({L::claim(RumourKind::gone, 3, L::kInc, 1)});
    return lone.state(3) == MemberState::alive;
  };
  EXPECT_TRUE(holds(""));
  EXPECT_FALSE(holds("gone-needs-two"));
  L lone(8);
  lone.hear({L::claim(RumourKind::gone, 3, L::kInc, 1), L::claim(RumourKind::gone, 3, L::kInc, 2)});
  EXPECT_EQ(lone.state(3), MemberState::down);
  L two(1);
  two.give(LinkLost{L::identity(0)->address});
  ASSERT_EQ(two.out.checks.size(), 1u);
  two.give(GoneChecked{two.out.checks[0].to, GoneChecked::Answer::refused});
  EXPECT_EQ(two.state(0), MemberState::down) << "of two, one is all there are";
}

TEST(GoneNeedsTwo, ARefusalOfAnEarlierIncarnationDoesNotCount) {
  L lone(1);
  lone.give(LinkLost{L::identity(0)->address});
  lone.hear({L::alive(0, L::kInc + 1)});
  lone.give(GoneChecked{L::identity(0)->address, GoneChecked::Answer::refused});
  EXPECT_EQ(lone.state(0), MemberState::alive);
}

TEST(ColdLinks, ATimeOutBeforeTheLinkWasUpIsNoEvidence) {
  L lone(2);
  lone.give(LinkLost{L::identity(0)->address});
  lone.give(GoneChecked{L::identity(0)->address, GoneChecked::Answer::accepts});
  const Instant since = lone.now;
  Instant suspected{};
  lone.run(6s, [&] {
    lone.answer_pings({0});
    if (suspected == Instant{} && lone.count(ChangeKind::suspect, 0) != 0) suspected = lone.now;
  });
  EXPECT_GE(suspected - since, 3s);
  EXPECT_LT(suspected - since, 5s);
}

TEST(Pace, NewsWithoutEndAreToldInFewerAndFullerMessages) {
  MembershipOptions options;
  LoneMember lone(40, {}, options);
  constexpr std::uint64_t kNews = 1000;
  for (std::uint64_t i = 0; i < kNews; ++i) {  // 10 s of them, at every 10 ms one
    lone.hear({LoneMember::alive(i % 40, LoneMember::kInc + 1 + i)});
    lone.run_answering(10ms);
  }
  lone.run_answering(1s);
  const auto sent = lone.sent<wire::Gossip>();
  const auto rounds = static_cast<std::size_t>(11s / options.paced) + options.quick_rounds + 1;
  EXPECT_LE(sent.size(), rounds * options.fanout);
  std::map<std::pair<MemberId, std::uint64_t>, int> told;
  for (const auto& [to, gossip] : sent)
    for (const wire::Rumour& rumour : gossip.rumours) ++told[{rumour.subject, rumour.incarnation}];
  // The newest of each, to every neighbour.
  for (std::uint64_t i = 0; i < 40; ++i) {
    const std::uint64_t newest = LoneMember::kInc + 1 + (kNews / 40 - 1) * 40 + i;
    EXPECT_GE((told[{LoneMember::id(i), newest}]), 2 * static_cast<int>(options.neighbour_rings)) << i;
  }
}

TEST(Pace, OneNewsIsToldAtOnce) {
  LoneMember lone(40);
  lone.run_answering(10s);
  lone.clear();
  lone.hear({LoneMember::alive(3, LoneMember::kInc + 1)});
  lone.run_answering(MembershipOptions{}.batch * 2);
  EXPECT_EQ(lone.sent<wire::Gossip>().size(), 8u);
}

TEST(Pulse, ANeighbourThatMissesItsPingProbesAtOnceAndAccusesNobodyForIt) {
  L lone(12);
  std::uint64_t neighbour = 99;
  lone.run(1s, [&] {
    for (const auto& [to, ping] : lone.sent<wire::Ping>()) neighbour = to.low;
  });
  ASSERT_LT(neighbour, 12u);
  wire::Ping ping;
  ping.target = L::id(L::kSelf);
  for (int i = 0; i < 3; ++i) {  // every three seconds
    lone.receive(ping, neighbour);
    lone.run_answering(3s);
  }
  lone.clear();
  lone.run_answering(260ms);
  std::size_t probed = 0;
  for (const auto& [to, sent] : lone.sent<wire::Ping>()) probed += to == L::id(neighbour);
  EXPECT_GE(probed, 1u);
  lone.run_answering(20s);
  EXPECT_EQ(lone.count(ChangeKind::suspect), 0u);
}

TEST(Address, WhatThreePeersSeeIsSaidOnceAndForgottenWhenItIsMended) {
  L lone(6);
  const auto see = [&](const std::string& ip, std::size_t seers) {
    lone.run(20s, [&] {
      for (const auto& [to, ping] : lone.sent<wire::Ping>()) {
        wire::Pong pong = L::pong_to(ping);
        pong.observed_ip = to.low < seers ? ip : "";
        lone.receive(pong, to.low);
      }
      lone.out.sends.clear();
    });
  };
  see("192.0.2.1", 2);
  EXPECT_EQ(lone->seen_elsewhere(), "");
  see("192.0.2.1", 6);
  EXPECT_EQ(lone.count(ChangeKind::address_mismatch), 1u);
  EXPECT_EQ(lone->seen_elsewhere(), "192.0.2.1");
  see("", 6);
  EXPECT_EQ(lone->seen_elsewhere(), "");
  see("192.0.2.1", 6);
  EXPECT_EQ(lone->seen_elsewhere(), "192.0.2.1");
  EXPECT_EQ(lone.count(ChangeKind::address_mismatch), 1u);
}

TEST(Bounds, HostileCountsDoNotGrowTheTable) {
  MembershipOptions options;
  options.members = 50;
  options.tombstones = 100;
  L lone(8, "", options);
  for (std::uint64_t i = 100; i < 2000; ++i) lone.hear({L::alive(i, 1), L::dead(i + 5000, 1)});
  EXPECT_LE(lone->counts().alive, 50u);
  EXPECT_GT(lone->counters().members_refused, 1000u);
  EXPECT_LT(lone->memory_bytes(), 1u << 20);
}

}  // namespace
}  // namespace dtrain::gossip
