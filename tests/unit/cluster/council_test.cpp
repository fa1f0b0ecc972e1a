// Who votes: the sizes, who is chosen, who goes, and what must never happen whatever comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/base/rng.h"
#include "tests/unit/cluster/council_world.h"

namespace dtrain::cluster {
namespace {

using Act = CouncilStep::Act;
using State = CouncilMember::State;
using raft::ChangeKind;
using raft::Refusal;

CouncilWorld grown(std::size_t members) {
  CouncilWorld world;
  for (std::size_t i = 0; i < members; ++i) world.join();
  world.pass(1h);
  EXPECT_TRUE(world.settle());
  return world;
}
void expect_change(const CouncilStep& step, ChangeKind kind, const MemberId& member) {
  EXPECT_EQ(step.act, Act::change) << step.why;
  EXPECT_EQ(step.change, kind) << step.why;
  EXPECT_EQ(step.member, member) << step.why;
}

TEST(Council, SizesByTheNumberOfMembers) {
  const std::vector<std::pair<std::size_t, std::size_t>> sizes = {{1, 1}, {2, 1}, {3, 3}, {9, 3}, {10, 5}, {200, 5}};
  for (const auto& [members, voters] : sizes) {
    const CouncilWorld world = grown(members);
    EXPECT_EQ(world.voters(), voters) << members;
    EXPECT_EQ(world.configuration().learners.size(), std::min(members - voters, CouncilOptions{}.standing_learners)) << members;
    EXPECT_TRUE(world.ask().rests()) << world.ask().why;
    EXPECT_EQ(world.ask().again, world.now() + world.options_.look_at_rest);
  }
}

TEST(Council, OfTwoTheOtherKeepsTheLog) {
  CouncilWorld world = grown(1);
  EXPECT_TRUE(one_disk_holds_everything(world.view(), world.options_));
  const MemberId second = world.join();
  expect_change(world.ask(), ChangeKind::add_learner, second);
  ASSERT_EQ(world.carry_out(world.ask()), Refusal::none);
  EXPECT_TRUE(one_disk_holds_everything(world.view(), world.options_));  // it has nothing yet
  world.pass(100ms);
  EXPECT_FALSE(one_disk_holds_everything(world.view(), world.options_));
  world.die(second);
  world.pass(10s);
  EXPECT_TRUE(one_disk_holds_everything(world.view(), world.options_));
  EXPECT_FALSE(one_disk_holds_everything(grown(3).view(), {}));
}

TEST(Council, NobodyIsPromotedBeforeBothHaveCaughtUp) {
  CouncilWorld world = grown(1);
  const MemberId second = world.join(), third = world.join();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(world.carry_out(world.ask()), Refusal::none);
  EXPECT_EQ(world.configuration().learners.size(), 2u);
  world.at(second).match = CouncilWorld::kLastIndex;
  EXPECT_EQ(world.ask().why, "council of 3: waits for h3 to catch up");
  EXPECT_EQ(world.ask().again, world.now() + world.options_.look_while_busy);
  world.at(third).match = CouncilWorld::kLastIndex - world.options_.caught_up_lag - 1;
  EXPECT_EQ(world.ask().act, Act::nothing);
  world.at(third).match = CouncilWorld::kLastIndex - world.options_.caught_up_lag;
  expect_change(world.ask(), ChangeKind::promote, second);
}

TEST(Council, WithoutASecondCandidateOneStaysOne) {
  CouncilWorld world = grown(2);
  const MemberId third = world.join();
  world.die(third);
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.voters(), 1u);
  EXPECT_EQ(world.ask().why, "council of 3: waits for another member that is alive and may vote");
  world.revive(third);
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.voters(), 3u);
}

TEST(Council, AChangeOnceBegunIsCarriedThrough) {
  CouncilWorld world = grown(1);
  const MemberId second = world.join(), third = world.join();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(world.carry_out(world.ask()), Refusal::none);
  world.pass(100ms);
  ASSERT_EQ(world.carry_out(world.ask()), Refusal::none);
  ASSERT_EQ(world.voters(), 2u);
  world.die(third);
  world.pass(10s);
  EXPECT_EQ(world.ask().why, "council of 3: waits for another member that is alive and may vote");
  const MemberId fourth = world.join();
  EXPECT_TRUE(world.settle());
  EXPECT_TRUE(world.configuration().votes(second) && world.configuration().votes(fourth));
  EXPECT_EQ(world.configuration().learners, std::vector<MemberId>{third});
}

TEST(Council, DeathsNeverShrinkIt) {
  CouncilWorld world = grown(10);
  for (std::uint64_t n = 6; n <= 10; ++n) world.die(CouncilWorld::id(n));
  world.pass(48h);
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.voters(), 5u);
  for (const auto& [id, member] : world.members())
    if (!member.alive()) world.leave(id);
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.voters(), 3u);
}

TEST(Council, ADeadVoterIsReplacedAfterTheGraceWhenAnotherHasCaughtUp) {
  CouncilWorld world = grown(4);
  const MemberId dead = world.configuration().voters.back();
  world.die(dead);
  world.pass(world.options_.replace_after - 10s);
  EXPECT_TRUE(world.ask().rests());
  world.pass(10s);
  expect_change(world.ask(), ChangeKind::remove, dead);  // first: it makes room
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.voters(), 3u);
  EXPECT_TRUE(world.configuration().votes(CouncilWorld::id(4)));
}

TEST(Council, ADeadVoterWithoutSuccessorKeepsItsSeat) {
  CouncilWorld world = grown(3);
  world.die(CouncilWorld::id(3), State::down);
  world.pass(24h);
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.voters(), 3u);
}

TEST(Council, ANewLeaderGoesOnFromWhatGossipRemembers) {
  CouncilWorld world = grown(4);
  world.die(CouncilWorld::id(3));
  world.pass(world.options_.replace_after);
  world.at(CouncilWorld::id(3)).heard = world.now() - 1s;  // it leads since a second
  EXPECT_TRUE(world.ask().rests());
  world.pass(world.options_.heard_within);
  expect_change(world.ask(), ChangeKind::remove, CouncilWorld::id(3));
}

// Gossip hears it, the log does not: its disk has failed.
TEST(Council, AVoterThatIsAliveButMuteIsReplaced) {
  CouncilWorld world = grown(4);
  const MemberId mute = CouncilWorld::id(3);
  world.pass(world.options_.replace_after);
  world.at(mute).heard = world.now() - world.options_.replace_after;
  expect_change(world.ask(), ChangeKind::remove, mute);
}

TEST(Council, WhoLeftGoesAtOnce) {
  CouncilWorld world = grown(4);
  world.leave(CouncilWorld::id(2));
  expect_change(world.ask(), ChangeKind::remove, CouncilWorld::id(2));
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.configuration().voters, (std::vector<MemberId>{CouncilWorld::id(1), CouncilWorld::id(3), CouncilWorld::id(4)}));
}

TEST(Council, WhoLeavesIsReplacedFirstWhereItIsNeeded) {
  CouncilWorld world = grown(4);
  world.die(CouncilWorld::id(3));
  world.pass(10s);
  world.leave(CouncilWorld::id(2), true);
  expect_change(world.ask(), ChangeKind::promote, CouncilWorld::id(4));
  ASSERT_EQ(world.carry_out(world.ask()), Refusal::none);
  expect_change(world.ask(), ChangeKind::remove, CouncilWorld::id(2));
}

TEST(Council, TheLeaderHandsOverBeforeItGoes) {
  CouncilWorld world = grown(4);
  const MemberId first = world.leader();
  world.leave(first, true);
  const CouncilStep step = world.ask();
  EXPECT_EQ(step.act, Act::transfer);
  EXPECT_TRUE(world.configuration().votes(step.member));
  EXPECT_TRUE(world.settle());
  EXPECT_FALSE(world.configuration().has(first));
  EXPECT_EQ(world.voters(), 3u);
}

TEST(Council, TheOnlyVoterLeaves) {
  CouncilWorld world = grown(2);
  const MemberId first = world.leader();
  world.leave(first, true);
  expect_change(world.ask(), ChangeKind::promote, CouncilWorld::id(2));
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.configuration(), (raft::Configuration{{CouncilWorld::id(2)}, {}}));
}

TEST(Council, NeverIsNeverChosenAndGoes) {
  CouncilWorld world = grown(1);
  for (int i = 0; i < 4; ++i) world.join();
  world.set_never(CouncilWorld::id(3));
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.voters(), 3u);
  EXPECT_TRUE(world.configuration().learns(CouncilWorld::id(3)));
  world.set_never(world.leader());
  world.pass(1s);
  EXPECT_TRUE(world.settle());
  EXPECT_TRUE(world.configuration().learns(CouncilWorld::id(1)));
  EXPECT_EQ(world.voters(), 3u);
  world.set_never(CouncilWorld::id(2));  // too few may vote now
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.voters(), 1u);
  EXPECT_EQ(world.configuration().learners.size(), 4u);
}

TEST(Council, SoManyLearnWhateverComes) {
  CouncilWorld world = grown(30);
  const std::size_t standing = world.options_.standing_learners;
  EXPECT_EQ(world.configuration().learners.size(), standing);
  EXPECT_TRUE(world.ask().rests());
  const MemberId dead = world.configuration().learners.front(), busy = world.configuration().learners.back();
  world.at(busy).known.busy = true;
  world.die(busy);
  world.die(dead);
  world.pass(world.options_.replace_after - 10s);
  EXPECT_TRUE(world.ask().rests());  // it may come back
  world.pass(10s);
  expect_change(world.ask(), ChangeKind::remove, dead);
  EXPECT_TRUE(world.settle());
  EXPECT_FALSE(world.configuration().has(dead));
  EXPECT_TRUE(world.configuration().learns(busy));  // its tasks may still run
  EXPECT_EQ(world.configuration().learners.size(), standing);
  world.leave(busy);
  EXPECT_TRUE(world.settle());
  EXPECT_FALSE(world.configuration().has(busy));
}

MemberId someone_outside(const CouncilWorld& world) {
  for (const auto& [id, member] : world.members())
    if (!world.configuration().has(id)) return id;
  return {};
}

TEST(Council, BeyondThemWhoIsGivenTasksLearns) {
  CouncilWorld world = grown(30);
  const std::size_t standing = world.options_.standing_learners;
  const MemberId first = someone_outside(world);
  world.at(first).known.busy = true;
  expect_change(world.ask(), ChangeKind::add_learner, first);
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.configuration().learners.size(), standing + 1);
  world.at(first).known.busy = false;  // it keeps the copy: what ran there is asked for there
  EXPECT_TRUE(world.ask().rests());
  const MemberId away = someone_outside(world);
  world.at(away).known.busy = true;
  world.die(away, State::down);
  EXPECT_TRUE(world.ask().rests());
  world.revive(away);
  expect_change(world.ask(), ChangeKind::add_learner, away);
}

TEST(Council, WhoNeedsACopyGoesBeforeWhoDoesNot) {
  CouncilWorld world = grown(10);
  world.join();
  const MemberId needs = world.join();
  world.join();
  world.at(needs).known.busy = true;
  expect_change(world.ask(), ChangeKind::add_learner, needs);
}

TEST(Council, WhoNeedsNoneMakesRoomAndNobodyWithTasksDoes) {
  CouncilWorld world;
  for (std::size_t i = 0; i < wire::kMostVoters + wire::kMostLearners + 2; ++i) world.at(world.join()).known.busy = true;
  world.pass(1h);
  ASSERT_TRUE(world.settle(wire::kMostLearners + 20));
  EXPECT_EQ(world.configuration().learners.size(), wire::kMostLearners);
  const MemberId idle = world.configuration().learners[7], silent = world.configuration().learners[9];
  world.at(idle).known.busy = false;
  expect_change(world.ask(), ChangeKind::remove, idle);
  world.at(silent).known.busy = false;
  world.die(silent);
  expect_change(world.ask(), ChangeKind::remove, silent);  // rather than one that is there
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.configuration().learners.size(), wire::kMostLearners);
  for (const auto& [id, member] : world.members()) EXPECT_EQ(world.configuration().has(id), member.known.busy);
}

TEST(Council, ALostVoterWithTasksLearnsOn) {
  CouncilWorld world = grown(4);
  world.at(CouncilWorld::id(3)).known.busy = true;
  world.die(CouncilWorld::id(3));
  world.pass(world.options_.replace_after);
  expect_change(world.ask(), ChangeKind::demote, CouncilWorld::id(3));
}

TEST(Council, NeverInAFullCouncilGoesFirst) {
  CouncilWorld world = grown(11);
  world.set_never(CouncilWorld::id(5));
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.voters(), 5u);
  EXPECT_TRUE(world.configuration().learns(CouncilWorld::id(5)));
}

TEST(Council, SpreadByZoneAndProvenFirst) {
  CouncilWorld world;
  for (const char* zone : {"a", "a", "a", "b", "c"}) world.join(zone);
  world.pass(1h);
  world.join("d");  // alone in its zone, but new
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.configuration().voters, (std::vector<MemberId>{CouncilWorld::id(1), CouncilWorld::id(4), CouncilWorld::id(5)}));
}

TEST(Council, TheNewAreTakenWhereNobodyElseIs) {
  CouncilWorld world;
  for (int i = 0; i < 3; ++i) world.join();
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.voters(), 3u);
}

TEST(Council, ASilentLearnerIsNoCandidate) {
  CouncilWorld world = grown(2);
  const MemberId silent = CouncilWorld::id(2);
  world.join();
  world.join();
  world.pass(10s);
  world.at(silent).heard = world.now() - 10s;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(world.carry_out(world.ask()), Refusal::none);
  EXPECT_TRUE(world.configuration().learns(CouncilWorld::id(3)));
  EXPECT_TRUE(world.configuration().learns(CouncilWorld::id(4)));
}

TEST(Council, AMemberThatIsNotKnownYetCountsAsDead) {
  CouncilView view;
  view.self = CouncilWorld::id(1);
  view.configuration.voters = {CouncilWorld::id(1), CouncilWorld::id(2), CouncilWorld::id(3)};
  view.members.push_back({CouncilWorld::id(1), "h1", "", State::alive, {}, false});
  for (const std::uint64_t n : {2u, 3u}) view.followers.push_back({CouncilWorld::id(n), true, 5, 6, false, 1s});
  view.last_index = 5;
  EXPECT_TRUE(next_council_step(view, Instant{1h}, {}).rests());
}

// ---- whatever happens

struct Chance {
  bool leaving;  // members may leave, or be told not to vote
};

void something_happens(CouncilWorld& world, Rng& rng, const Chance& chance) {
  const auto someone = [&] { return CouncilWorld::id(1 + rng.below(world.members().size())); };
  const MemberId who = someone();
  const State state = world.at(who).known.state;
  switch (rng.below(chance.leaving ? 8 : 5)) {
    case 0:
      if (world.members().size() < 14) world.join(std::string(1, static_cast<char>('a' + rng.below(3))));
      return;
    case 1:
    case 2:
      if (state == State::alive) world.die(who, rng.chance(1, 2) ? State::dead : State::down);
      return;
    case 3:
    case 4:
      if (state != State::left) world.revive(who);
      return;
    case 5:
    case 6:
      // Not the last one: nobody would be left to lead.
      if (state == State::alive && rng.chance(1, 3) && world.members().size() > 3) world.leave(who, rng.chance(1, 2));
      return;
    default:
      if (rng.chance(1, 3)) world.set_never(who, rng.chance(1, 3));
  }
}

std::size_t eligible(const CouncilWorld& world) {
  std::size_t count = 0;
  for (const auto& [id, member] : world.members()) count += member.known.state == State::alive && !member.known.never ? 1 : 0;
  return count;
}

// One step, and what must hold of every single one.
void step_is_sound(CouncilWorld& world) {
  const raft::Configuration before = world.configuration();
  const bool could_decide = world.majority_of(before);
  const CouncilStep step = world.ask();
  ASSERT_GT(step.again, world.now());
  if (step.act == Act::nothing) return;
  ASSERT_FALSE(step.why.empty());
  ASSERT_EQ(world.carry_out(step), Refusal::none) << step.why;
  const raft::Configuration& after = world.configuration();
  ASSERT_TRUE(!could_decide || world.majority_of(after)) << step.why;
  if (step.act != Act::change) return;
  if (step.change == ChangeKind::add_learner || step.change == ChangeKind::promote) {
    const CouncilMember& chosen = world.at(step.member).known;
    ASSERT_EQ(chosen.state, State::alive);
    ASSERT_FALSE(step.change == ChangeKind::promote && chosen.never);
  }
}

void converges(CouncilWorld& world, std::uint64_t seed) {
  world.pass(world.options_.replace_after);
  const auto steps = world.settle();
  ASSERT_TRUE(steps) << seed;
  // Every voter may go and another come, each in two steps and a hand-over; and learners be tidied up.
  EXPECT_LE(*steps, 5 * 3 + CouncilOptions{}.standing_learners) << seed;
  std::size_t members = 0, may_vote = 0;
  for (const auto& [id, member] : world.members()) {
    members += member.known.state != State::left ? 1 : 0;
    may_vote += member.known.state != State::left && !member.known.never ? 1 : 0;
  }
  std::size_t target = council_size(members);
  while (target > 1 && target > may_vote) target -= 2;
  if (eligible(world) < target) return;
  EXPECT_EQ(world.voters(), target) << seed;
  for (const MemberId& voter : world.configuration().voters) {
    EXPECT_TRUE(world.there(voter)) << seed;
    EXPECT_FALSE(world.at(voter).known.never) << seed;
    EXPECT_NE(world.at(voter).known.state, State::left) << seed;
  }
}

TEST(CouncilProperty, EveryStepIsSoundAndItConverges) {
  std::size_t decided = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    Rng rng(seed);
    CouncilWorld world;
    for (std::uint64_t count = 1 + rng.below(11); count > 0; --count) world.join("a");
    for (int i = 0; i < 60; ++i) {
      if (rng.chance(1, 2)) something_happens(world, rng, {true});
      const Duration length = rng.chance(1, 8) ? Duration(6min) : Duration(rng.below(4000) * 1'000'000);
      world.pass(length, rng.chance(2, 3));
      if (!world.lead()) continue;
      ++decided;
      ASSERT_NO_FATAL_FAILURE(step_is_sound(world)) << seed;
    }
    if (!world.lead()) continue;
    ASSERT_NO_FATAL_FAILURE(converges(world, seed)) << seed;
  }
  EXPECT_GT(decided, 50'000u);
}

TEST(CouncilProperty, DeathsNeverLowerTheNumberOfVoters) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Rng rng(seed);
    CouncilWorld world;
    for (std::uint64_t count = 1 + rng.below(11); count > 0; --count) world.join();
    std::size_t most = 0;
    for (int i = 0; i < 60; ++i) {
      if (rng.chance(1, 2)) something_happens(world, rng, {false});
      world.pass(rng.chance(1, 8) ? Duration(6min) : Duration(rng.below(4000) * 1'000'000));
      if (!world.lead()) continue;
      ASSERT_NO_FATAL_FAILURE(step_is_sound(world)) << seed;
      const std::size_t voters = world.voters();
      most = std::max(most, voters);
      // One seat may be empty while another is found for it, or for as long as nobody else is alive.
      ASSERT_GE(voters + 1, most) << seed;
      if (voters == most || !world.settle()) continue;
      ASSERT_TRUE(world.voters() >= most || eligible(world) < most) << seed;
    }
  }
}

}  // namespace
}  // namespace dtrain::cluster
