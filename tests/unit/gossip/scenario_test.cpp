// Stories of several members on a network that works, but for the one thing told.
#include "tests/unit/gossip/tiny_cluster.h"

namespace dtrain::gossip {
namespace {

using wire::MemberState;

TEST(Scenario, AFounderAloneWaitsForNothing) {
  TinyCluster cluster;
  cluster.start(1);
  cluster.run(30s);
  EXPECT_EQ(cluster[0].deadline(), kNever);
  EXPECT_EQ(cluster.count(ChangeKind::alive, 0, 0), 1u);
  EXPECT_EQ(cluster[0].counts().alive, 1u);
}

TEST(Scenario, JoinersSeeEachOtherWithinASecond) {
  for (const std::size_t n : {2u, 3u, 8u, 40u}) {
    TinyCluster cluster;
    cluster.start(n);
    EXPECT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 1s)) << n;
    for (std::size_t i = 1; i < n; ++i) {
      EXPECT_EQ(cluster.count(ChangeKind::joined, i, i), 1u);
      EXPECT_EQ(cluster[i].cluster_id(), (MemberId{7, 7}));
      EXPECT_EQ(cluster[0].find(TinyCluster::id_of(i))->facts[0]->value, "facts of " + TinyCluster::name_of(i));
    }
    cluster.run(1s);  // the last facts
    cluster.changes.clear();
    cluster.run(60s);
    EXPECT_TRUE(cluster.all_alive_everywhere());
    EXPECT_EQ(cluster.story(), "") << n;
  }
}

TEST(Scenario, AKilledAgentIsDownInWellUnderASecondAndNotDead) {
  for (const std::size_t n : {2u, 3u, 8u, 40u}) {
    TinyCluster cluster;
    cluster.start(n);
    cluster.run(20s);
    cluster.kill(1);
    EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(1, MemberState::down); }, 500ms)) << n;
    cluster.run(60s);
    EXPECT_TRUE(cluster.everybody_sees(1, MemberState::down));
    EXPECT_EQ(cluster.count(ChangeKind::dead), 0u);
    EXPECT_EQ(cluster.count(ChangeKind::refute), 0u);
    cluster.relaunch(1, 2);
    EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(1, MemberState::alive); }, 500ms)) << n;
    EXPECT_EQ(cluster.count(ChangeKind::restarted, 1), n - 1);
  }
}

TEST(Scenario, AStoppedAgentIsSuspectAtOnceAndDeadInSixToNineSeconds) {
  for (const std::size_t n : {2u, 3u, 8u, 40u}) {
    TinyCluster cluster;
    cluster.start(n);
    cluster.run(20s);
    const Instant since = cluster.now();
    cluster.stop(1);
    EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(1, MemberState::suspect); }, 5s)) << n;
    EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(1, MemberState::dead); }, 12s)) << n;
    EXPECT_GT(cluster.now() - since, 5s);
    EXPECT_EQ(cluster.count(ChangeKind::dead), n - 1) << "nobody else";
    cluster.go_on(1);
    EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(1, MemberState::alive) && cluster.all_alive_everywhere(); }, 6s))
        << n;
    EXPECT_EQ(cluster.count(ChangeKind::restarted), 0u);
  }
}

// Whatever happened shortly before: those who probe in turn had another member less a moment ago.
TEST(Scenario, SilenceShortlyAfterAnothersReturnIsNoticedAsQuickly) {
  for (const std::size_t n : {3u, 5u, 8u, 20u}) {
    TinyCluster cluster;
    cluster.start(n);
    cluster.run(20s);
    std::uint64_t life = 1;
    Duration longest{0};
    for (int round = 0; round < 30; ++round) {
      cluster.cut({2});
      cluster.kill(2);
      ASSERT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(2, MemberState::dead); }, 20s));
      cluster.run(round % 7 * 410ms);
      cluster.heal();
      cluster.relaunch(2, ++life);
      ASSERT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 20s));
      cluster.run(round * 173ms);
      const Instant since = cluster.now();
      cluster.stop(1);
      ASSERT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(1, MemberState::dead); }, 20s));
      longest = std::max(longest, cluster.now() - since);
      cluster.go_on(1);
      ASSERT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 20s));
      cluster.run(10s);
    }
    EXPECT_LT(longest, 7900ms) << n << ": what ran there is to run elsewhere within 8 s";
  }
}

// A ping out of turn (a neighbour's was missed) is no pulse for the other: each would make the other miss one.
TEST(Scenario, AfterTroubleEverybodyPingsOnceASecondAgain) {
  for (const std::size_t n : {3u, 5u, 8u, 20u}) {
    TinyCluster cluster;
    cluster.start(n);
    cluster.run(20s);
    cluster.cut({2});
    cluster.kill(2);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(2, MemberState::dead); }, 20s));
    cluster.heal();
    cluster.relaunch(2, 2);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 20s));
    cluster.run(30s);
    const auto pings = [&] {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < n; ++i) sum += cluster[i].counters().probes;
      return sum;
    };
    const std::uint64_t before = pings();
    cluster.run(100s);
    EXPECT_LT(pings() - before, n * 125) << n;
  }
}

TEST(Scenario, AnAgentStoppedForFiveSecondsIsNeverDead) {
  for (const std::size_t n : {2u, 3u, 8u, 40u}) {
    TinyCluster cluster;
    cluster.start(n);
    for (int round = 0; round < 10; ++round) {
      cluster.run(20s + round * 137ms);
      cluster.stop(1);
      cluster.run(5s);
      cluster.go_on(1);
    }
    cluster.run(20s);
    EXPECT_EQ(cluster.count(ChangeKind::dead) + cluster.count(ChangeKind::down), 0u) << n;
    EXPECT_TRUE(cluster.all_alive_everywhere()) << n;
  }
}

TEST(Scenario, HalfAndHalfFreezeAndMergeInSeconds) {
  TinyCluster cluster;
  cluster.start(24);
  cluster.run(20s);
  cluster.cut({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  cluster.run(120s);
  EXPECT_GT(cluster.count(ChangeKind::frozen), 0u);
  EXPECT_EQ(cluster.count(ChangeKind::dead), 0u);
  cluster.heal();
  EXPECT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 5s));
  cluster.run(20s);
  EXPECT_TRUE(cluster.all_alive_everywhere());
  EXPECT_EQ(cluster.count(ChangeKind::dead), 0u);
}

TEST(Scenario, AThirdCutOffIsDeclaredDeadByTheMajorityAndComesBack) {
  TinyCluster cluster;
  cluster.start(24);
  cluster.run(20s);
  cluster.cut({0, 1, 2, 3, 4, 5});
  cluster.run(120s);
  EXPECT_EQ(cluster.state(10, 0), MemberState::dead);
  EXPECT_EQ(cluster.count(ChangeKind::dead, 10), 0u) << "the minority decides nothing";
  cluster.heal();
  EXPECT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 5s));
}

TEST(Scenario, PartitionsMergeAfterTheRowsWereReaped) {
  MembershipOptions options;
  options.reclaim = 60s;
  TinyCluster cluster(options);
  cluster.start(12);
  cluster.run(30s);
  cluster.cut({9, 10, 11});
  cluster.run(150s);
  EXPECT_EQ(cluster.state(0, 10), std::nullopt) << "reaped";
  cluster.heal();
  EXPECT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 20s));
}

TEST(Scenario, AllRestartAtOnce) {
  TinyCluster cluster;
  cluster.start(24);
  cluster.run(30s);
  for (std::size_t i = 0; i < 24; ++i) cluster.kill(i);
  cluster.run(1s);
  for (std::size_t i = 0; i < 24; ++i) cluster.relaunch(i, 2);
  EXPECT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 10s));
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(cluster[3].find(TinyCluster::id_of(i))->identity->life, 2u);
}

TEST(Scenario, WhoStayedLearnsOfThoseWhoAllRestarted) {
  TinyCluster cluster;
  cluster.start(24);
  cluster.run(30s);
  for (std::size_t i = 2; i < 24; ++i) cluster.kill(i);
  cluster.run(1s);
  for (std::size_t i = 2; i < 24; ++i) cluster.relaunch(i, 2);
  EXPECT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 5s));
  EXPECT_TRUE(cluster.run_until([&] { return cluster.count(ChangeKind::restarted, std::nullopt, 0) == 22; }, 5s));
}

TEST(Scenario, AThirdThatStallsAccusesNobodyHealthy) {
  TinyCluster cluster;
  cluster.start(24);
  cluster.run(20s);
  for (int round = 0; round < 5; ++round) {
    for (std::size_t i = 0; i < 8; ++i) cluster.stop(i);
    cluster.run(16400ms);
    for (std::size_t i = 0; i < 8; ++i) cluster.go_on(i);
    cluster.run(64ms);
  }
  cluster.run(20s);
  for (const TinyCluster::Seen& seen : cluster.changes) {
    const bool healthy = seen.change.name != "n0" && seen.change.id.low > 8;
    EXPECT_FALSE(healthy && (seen.change.kind == ChangeKind::dead || seen.change.kind == ChangeKind::down)) << cluster.story();
  }
  EXPECT_TRUE(cluster.all_alive_everywhere());
}

TEST(Scenario, AChangedAddressAndAForgottenMemberAreKnownToAll) {
  TinyCluster cluster;
  cluster.start(8);
  cluster.run(15s);
  wire::Identity changed = cluster.identity_of(4);
  changed.key_print = "new key";
  cluster.give(4, IdentityChanged{changed});
  cluster.kill(6);
  cluster.run(2s);
  EXPECT_EQ(cluster[1].find("n4")->identity->key_print, "new key");
  cluster.give(2, RemoveAsked{TinyCluster::id_of(4)});
  cluster.give(2, RemoveAsked{TinyCluster::id_of(6)});
  EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(6, MemberState::left); }, 1s));
  EXPECT_TRUE(cluster.everybody_sees(4, MemberState::alive)) << "only who is gone can be forgotten";
}

TEST(Scenario, OfThreeTwoKilledAtOnceAreBothDown) {
  TinyCluster cluster;
  cluster.start(3);
  cluster.run(15s);
  cluster.kill(1);
  cluster.kill(2);
  EXPECT_TRUE(
      cluster.run_until([&] { return cluster.everybody_sees(1, MemberState::down) && cluster.everybody_sees(2, MemberState::down); }, 3s))
      << cluster.story();
}

TEST(Scenario, RestartWithAnotherAddress) {
  TinyCluster cluster;
  cluster.start(8);
  cluster.run(30s);
  cluster.kill(3);
  cluster.run(200ms);
  const wire::Endpoint moved{"10.1.0.9", 7400};
  cluster.relaunch(3, 2, moved);
  EXPECT_TRUE(cluster.run_until([&] { return cluster.all_alive_everywhere(); }, 1s));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(cluster[i].find(TinyCluster::id_of(3))->identity->address, moved);
  cluster.changes.clear();
  cluster.run(60s);
  EXPECT_EQ(cluster.story(), "");
}

TEST(Scenario, LeavingIsSaidAndKept) {
  TinyCluster cluster;
  cluster.start(6);
  cluster.run(15s);
  cluster.give(2, LeaveAsked{});
  EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(2, MemberState::left); }, 1s));
  cluster.run(60s);
  EXPECT_TRUE(cluster.everybody_sees(2, MemberState::left));
  EXPECT_EQ(cluster[2].deadline(), kNever);
  cluster.relaunch(2, 2);
  cluster.run(10s);
  EXPECT_TRUE(cluster.everybody_sees(2, MemberState::left)) << "it left for good";
}

TEST(Scenario, AStoppingAgentSaysSo) {
  TinyCluster cluster;
  cluster.start(6);
  cluster.run(15s);
  cluster.give(2, StopAsked{});
  EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(2, MemberState::down); }, 100ms));
  cluster.kill(2);
  cluster.run(1s);
  cluster.relaunch(2, 2);
  EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(2, MemberState::alive); }, 500ms));
  EXPECT_EQ(cluster.count(ChangeKind::restarted, 2), 5u);
}

TEST(Scenario, ADownMemberWhoseHostFallsSilentEndsDead) {
  TinyCluster cluster;
  cluster.start(6);
  cluster.run(15s);
  cluster.kill(2);
  cluster.run(5s);
  cluster.connect_answer = [](std::size_t, std::size_t) { return GoneChecked::Answer::silent; };
  EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(2, MemberState::dead); }, 60s));
  // What ran there is lost at no cost: its agent had ended first, as where a host is shut down.
  EXPECT_TRUE(cluster.view(0, 2).agent_ended_first);
}

TEST(Scenario, AHostThatVanishesEndsDeadWithoutAnEndOfItsAgent) {
  TinyCluster cluster;
  cluster.start(6);
  cluster.run(15s);
  cluster.connect_answer = [](std::size_t, std::size_t) { return GoneChecked::Answer::silent; };
  cluster.kill(2);
  EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(2, MemberState::dead); }, 60s));
  EXPECT_FALSE(cluster.view(0, 2).agent_ended_first);
}

}  // namespace
}  // namespace dtrain::gossip
