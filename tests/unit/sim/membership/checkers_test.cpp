// Each checker of world membership notices its own broken promise and is silent about what looks alike and is
// right.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/sim/membership/fake_view.h"

namespace dtrain::sim::membership {
namespace {

using enum gossip::ChangeKind;
using wire::MemberState;

TEST(NoFalsePositives, WellMembersDeclareNoWellMember) {
  for (const auto kind : {down, dead}) {
    FakeView world(3);
    const auto checker = no_false_positives(world);
    checker->changed(0, world.change(kind, 1));
    EXPECT_TRUE(world.broke("no_false_positives"));
    EXPECT_EQ(world.figures_.false_positives, 1u);
  }
}

TEST(NoFalsePositives, TheUnwellMayBeDeclaredAndMayErr) {
  FakeView world(6);
  const auto checker = no_false_positives(world);
  checker->changed(0, world.change(suspect, 1));  // not yet a verdict
  EXPECT_EQ(world.figures_.false_suspicions, 1u);
  world.crash(1);
  checker->changed(0, world.change(dead, 1));
  world.truths_[2].paused = true;
  checker->changed(0, world.change(dead, 2));
  world.truths_[3].calm_since = world.now_ - 2s;  // has only just come back
  checker->changed(0, world.change(dead, 3));
  checker->changed(3, world.change(dead, 0));  // and what it thinks itself harms nobody
  world.apart_[{0, 4}] = true;
  checker->changed(0, world.change(dead, 4));
  EXPECT_FALSE(world.violation_);
  EXPECT_EQ(world.figures_.unfit_verdicts, 4u);
}

TEST(CrashKnownToAll, FiveSecondsAfterTheFirst) {
  FakeView world(4);
  const auto checker = crash_known_to_all(world);
  checker->ended(0, End::killed);
  world.crash(0);
  world.now_ += 300ms;
  checker->changed(1, world.change(down, 0));
  checker->changed(2, world.change(down, 0));
  world.now_ += 4s;
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  world.now_ += 2s;
  checker->sampled();
  EXPECT_TRUE(world.broke("crash_known_to_all"));
}

TEST(CrashKnownToAll, MeasuresFromCrashAndFromTheFirstVerdict) {
  FakeView world(3);
  const auto checker = crash_known_to_all(world);
  checker->ended(0, End::vanished);
  world.crash(0);
  world.now_ += 2s;
  checker->changed(1, world.change(suspect, 0));
  checker->changed(2, world.change(suspect, 0));
  world.now_ += 4s;
  checker->changed(1, world.change(dead, 0));
  world.now_ += 500ms;
  checker->changed(2, world.change(dead, 0));
  world.now_ += 20s;
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  EXPECT_EQ(world.figures_.silent_suspect.json()["max"], 2000.0);
  EXPECT_EQ(world.figures_.silent_detect.json()["max"], 6500.0);
  EXPECT_EQ(world.figures_.silent_spread.json()["max"], 500.0);
  EXPECT_EQ(world.figures_.gone_detect.size(), 0u);
}

TEST(CrashKnownToAll, OneWhoWasDisturbedNeedNotKnow) {
  FakeView world(3);
  const auto checker = crash_known_to_all(world);
  checker->ended(0, End::killed);
  world.crash(0);
  checker->changed(1, world.change(down, 0));
  checker->disturbed(2);
  world.now_ += 20s;
  checker->sampled();
  EXPECT_FALSE(world.violation_);
}

TEST(CrashKnownToAll, OneThatJudgesNobodyNeedNotKnow) {
  for (const bool again : {false, true}) {
    FakeView world(4);
    const auto checker = crash_known_to_all(world);
    checker->changed(3, world.change(frozen, 3));
    if (again) checker->changed(3, world.change(thawed, 3));
    checker->ended(0, End::killed);
    world.crash(0);
    checker->changed(1, world.change(down, 0));
    checker->changed(2, world.change(frozen, 2));
    world.now_ += 20s;
    checker->sampled();
    EXPECT_EQ(world.broke("crash_known_to_all"), again);
  }
}

TEST(CrashKnownToAll, InAQuietWorldAVanishedHostIsKnownSoon) {
  for (const bool quiet : {true, false}) {
    FakeView world(12);
    const auto checker = crash_known_to_all(world);
    world.lossless_ = quiet;
    checker->ended(0, End::vanished);
    world.crash(0);
    for (std::uint32_t slot = 1; slot < 12; ++slot) checker->changed(slot, world.change(frozen, slot));
    world.now_ += 12s;
    checker->sampled();
    EXPECT_FALSE(world.violation_);
    world.now_ += 1s;
    checker->sampled();
    EXPECT_EQ(world.broke("crash_known_to_all"), quiet);
  }
}

TEST(MinorityDecidesNothing, OneWhoseAgentStoppedWasOnThisSide) {
  for (const auto its_state : {MemberState::down, MemberState::suspect}) {
    FakeView world(6);
    const auto checker = minority_decides_nothing(world);
    for (const std::uint32_t here : {0u, 1u, 2u})
      for (const std::uint32_t there : {3u, 4u, 5u}) world.apart_[{here, there}] = true;
    world.crash(2);
    world.row(0, 2).state = its_state;
    for (const std::uint32_t silent : {3u, 4u}) world.row(0, silent).state = MemberState::suspect;
    checker->network_cut();
    world.now_ += 13s;
    world.row(0, 5).state = MemberState::dead;
    checker->changed(0, world.change(dead, 5));
    EXPECT_EQ(world.broke("minority_decides_nothing"), its_state == MemberState::suspect);
  }
}

TEST(MinorityDecidesNothing, OnlyTheLargerSideMay) {
  FakeView world(5);
  const auto checker = minority_decides_nothing(world);
  for (const std::uint32_t here : {0u, 1u})
    for (const std::uint32_t there : {2u, 3u, 4u}) world.apart_[{here, there}] = true;
  checker->changed(2, world.change(dead, 0));
  checker->changed(0, world.change(suspect, 2));
  EXPECT_FALSE(world.violation_);
  for (const std::uint32_t there : {2u, 3u, 4u}) world.row(0, there).state = MemberState::suspect;
  checker->network_cut();
  world.now_ += 11s;
  checker->changed(0, world.change(dead, 3));  // may have been suspected before this cut
  EXPECT_FALSE(world.violation_);
  world.now_ += 2s;
  checker->changed(0, world.change(dead, 2));
  EXPECT_TRUE(world.broke("minority_decides_nothing"));
}

TEST(ResumedAccusesNobody, WhatNobodyElseSays) {
  for (const bool said_before : {false, true})
    for (const bool cut_since : {false, true}) {
      FakeView world(3);
      const auto checker = resumed_accuses_nobody(world);
      world.truths_[0].paused = true;
      world.truths_[0].calm_since = kNever;
      checker->disturbed(0);
      world.now_ += 8s;
      if (said_before) checker->changed(1, world.change(suspect, 2));
      world.now_ += 2s;
      world.truths_[0].paused = false;
      world.truths_[0].resumed = world.now_;
      if (cut_since) world.now_ += 2s;
      world.truths_[0].calm_since = world.now_;
      world.now_ += 1ms;
      checker->changed(0, world.change(suspect, 2));
      EXPECT_EQ(world.broke("resumed_accuses_nobody"), !said_before && !cut_since);
    }
}

TEST(NobodyResurrected, ADeclaredMemberThatDoesNotRunStaysSo) {
  for (const auto again : {alive, restarted}) {
    FakeView world(2);
    const auto checker = nobody_resurrected(world);
    checker->started(0);
    world.crash(1);
    world.now_ += 6s;
    checker->changed(0, world.change(dead, 1));
    world.now_ += 20s;
    checker->changed(0, world.change(again, 1));
    EXPECT_TRUE(world.broke("nobody_resurrected"));
  }
}

TEST(NobodyResurrected, ComingBackIsNoResurrection) {
  FakeView world(3);
  const auto checker = nobody_resurrected(world);
  for (const std::uint32_t slot : {0u, 1u, 2u}) checker->started(slot);
  checker->changed(0, world.change(dead, 1));
  world.now_ += 60s;
  checker->changed(0, world.change(alive, 1));  // it runs
  world.crash(2);
  checker->changed(0, world.change(dead, 2));
  world.now_ += 3s;
  checker->changed(0, world.change(alive, 2));  // its last words were under way
  world.now_ += 60s;
  checker->changed(1, world.change(alive, 2));  // who never declared it may be late
  EXPECT_FALSE(world.violation_);
}

TEST(NobodyResurrected, WhatCameWhileTheObserverWasStoppedIsOld) {
  for (const bool stopped : {true, false}) {
    FakeView world(2);
    const auto checker = nobody_resurrected(world);
    checker->started(0);
    checker->changed(0, world.change(dead, 1));
    world.crash(1);
    world.truths_[0].stopped = world.now_;
    world.now_ += 16400ms;
    world.truths_[0].resumed = world.now_;
    if (!stopped) world.now_ += 100ms;
    checker->changed(0, world.change(alive, 1));
    EXPECT_EQ(world.broke("nobody_resurrected"), !stopped);
  }
}

TEST(LeftStaysLeft, NothingFollows) {
  for (const auto next : {alive, suspect, dead}) {
    FakeView world(2);
    const auto checker = left_stays_left(world);
    checker->started(0);
    checker->changed(0, world.change(left, 1));
    checker->ended(1, End::left);
    EXPECT_FALSE(world.violation_);
    checker->changed(0, world.change(next, 1));
    EXPECT_TRUE(world.broke("left_stays_left"));
  }
}

struct Restarts : testing::Test {
  FakeView world{3};
  std::unique_ptr<Checker> checker = restart_seen_by_all(world);
  void SetUp() override {
    for (const std::uint32_t slot : {0u, 1u, 2u}) checker->started(slot);
    world.now_ += 60s;
    for (const std::uint32_t observer : {0u, 1u})
      for (const std::uint32_t subject : {0u, 1u, 2u}) checker->changed(observer, world.change(alive, subject));
    for (const std::uint32_t subject : {0u, 1u}) checker->changed(2, world.change(alive, subject));
    checker->sampled();
    ASSERT_FALSE(world.violation_);
    checker->ended(2, End::killed);
    world.crash(2);
    world.now_ += 3s;
    world.truths_[2].runs = true;
    world.truths_[2].started = world.truths_[2].calm_since = world.now_;
    world.truths_[2].identity.life = 2;
    checker->started(2);
  }
  void see(std::uint32_t observer, bool say) {
    world.row(observer, 2).identity = world.truths_[2].identity;
    checker->changed(observer, world.change(alive, 2));
    if (say) checker->changed(observer, world.change(restarted, 2));
  }
};

TEST_F(Restarts, AllSeeTheNewLife) {
  see(0, true);
  world.now_ += 31s;
  checker->sampled();
  EXPECT_TRUE(world.broke("restart_seen_by_all"));
}

TEST_F(Restarts, AllSayThatItRestarted) {
  see(0, true);
  see(1, false);
  checker->sampled();
  EXPECT_TRUE(world.broke("restart_seen_by_all"));
}

TEST_F(Restarts, SeenAndSaidIsMeasured) {
  see(0, true);
  world.now_ += 400ms;
  see(1, true);
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  EXPECT_EQ(world.figures_.restart.json()["max"], 400.0);
}

TEST(FactsReachAll, WithinTenSeconds) {
  FakeView world(3);
  const auto checker = facts_reach_all(world);
  const wire::Fact fact{wire::FactKey::free, 5, "gpus=3"};
  checker->fact_told(0, fact);
  world.row(1, 0).facts[wire::FactKey::free] = fact;
  checker->changed(1, world.change(gossip::ChangeKind::fact, 0));
  world.row(2, 0).facts[wire::FactKey::free] = {wire::FactKey::free, 4, "gpus=8"};  // another value is not it
  checker->changed(2, world.change(gossip::ChangeKind::fact, 0));
  world.now_ += 9s;
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  world.now_ += 2s;
  checker->sampled();
  EXPECT_TRUE(world.broke("facts_reach_all"));
}

TEST(NoLastingSuspicion, AMinuteIsTooLong) {
  FakeView world(2);
  const auto checker = no_lasting_suspicion(world);
  checker->changed(0, world.change(suspect, 1));
  world.row(0, 1).state = MemberState::suspect;
  world.now_ += 59s;
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  world.now_ += 2s;
  checker->sampled();
  EXPECT_TRUE(world.broke("no_lasting_suspicion"));
}

TEST(NoLastingSuspicion, AFrozenOneWaits) {
  FakeView world(2);
  const auto checker = no_lasting_suspicion(world);
  checker->changed(0, world.change(suspect, 1));
  world.row(0, 1).state = MemberState::suspect;
  checker->changed(0, world.change(frozen, 0));
  world.now_ += 90s;
  checker->sampled();
  EXPECT_FALSE(world.violation_);
}

TEST(OneNameOneMember, TwoLivingOnesAreTooMany) {
  FakeView world(3);
  const auto checker = one_name_one_member(world);
  world.row(0, 2).identity.name = "n1";
  world.row(0, 2).state = MemberState::left;
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  world.row(0, 2).state = MemberState::alive;
  checker->sampled();
  EXPECT_TRUE(world.broke("one_name_one_member"));
}

TEST(ClustersStayApart, AMemberOfAnotherOrOfNoneIsNoticed) {
  FakeView world(2);
  const std::uint32_t stranger = world.add(1);
  const auto checker = clusters_stay_apart(world);
  checker->changed(0, world.change(alive, 1));
  EXPECT_FALSE(world.violation_);
  checker->changed(0, world.change(alive, stranger));
  EXPECT_TRUE(world.broke("clusters_stay_apart"));

  FakeView other(2);
  const auto another = clusters_stay_apart(other);
  another->changed(0, {alive, {9, 9}, "ghost", 1, ""});
  EXPECT_TRUE(other.broke("clusters_stay_apart"));
}

TEST(MemoryBounded, GrowthIsNoticed) {
  FakeView world(2);
  const auto checker = memory_bounded(world);
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  world.memory_ = 10 << 20;
  checker->sampled();
  EXPECT_TRUE(world.broke("memory_bounded"));
}

struct Convergence : testing::Test {
  FakeView world{4};
  void expect(bool broken) {
    converges(world)->at_rest();
    EXPECT_EQ(world.broke("converges"), broken) << (world.violation_ ? world.violation_->what : "");
  }
  void lose(std::uint32_t gone) {
    world.crash(gone);
    for (std::uint32_t observer = 0; observer < 4; ++observer) world.row(observer, gone).state = MemberState::dead;
  }
};

TEST_F(Convergence, EqualTablesHold) {
  lose(3);
  expect(false);
}
TEST_F(Convergence, AMissingRow) {
  world.tables_[0].erase(world.id(2));
  expect(true);
}
TEST_F(Convergence, AnotherIncarnation) {
  world.row(0, 2).incarnation = 9;
  expect(true);
}
TEST_F(Convergence, AnotherAddress) {
  world.row(0, 2).identity.address.ip = "10.0.9.9";
  expect(true);
}
TEST_F(Convergence, AnotherFact) {
  world.row(0, 2).facts[wire::FactKey::free] = {wire::FactKey::free, 1, "x"};
  expect(true);
}
TEST_F(Convergence, ADeadOneWhoRuns) {
  world.row(1, 2).state = MemberState::dead;
  expect(true);
}
TEST_F(Convergence, ALivingOneWhoDoesNotRun) {
  lose(3);
  world.row(1, 3).state = MemberState::alive;
  expect(true);
}
TEST_F(Convergence, GoneInTwoWays) {
  lose(3);
  world.row(1, 3).state = MemberState::down;
  expect(true);
}
TEST_F(Convergence, OneWhoWasNeverAdmitted) {
  world.truths_[1].admitted = false;
  expect(true);
}

}  // namespace
}  // namespace dtrain::sim::membership
