// recover-quorum: when it may be, what it does to the survivor, and how the others come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cluster/command.h"
#include "tests/unit/node/two_nodes.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using wire::MessageType;

class RecoveryTest : public ::testing::Test {
 protected:
  void start_all(std::size_t count) {
    for (std::size_t i = 1; i <= count; ++i) houses.push_back(&town.add("n" + std::to_string(i)));
    for (House* house : houses) {
      house->start();
      town.run_for(1s);
    }
    town.run_for(10s);
  }
  // After kill(): its next life, which finds the others through n3 and n4.
  void start_again(House& house) {
    ++house.started.life;
    house.started.members.found = false;
    house.started.members.record.cluster_id = {0xc1, 0x57e2};
    house.started.members.record.book = {};
    house.start();
    for (House* other : houses)
      if (other != &house && other->runs()) house.give(Gossiped{gossip::SeedsResolved{{other->address()}}});
  }
  Result<wire::RecoveryView> recover(House& house, bool go = true, bool force = false, std::uint32_t uid = 0) {
    const std::uint64_t before = house.requests();
    (void)house.ask<wire::RecoveryView>(MessageType::recover_quorum, wire::RecoverRequest{go, force}, uid);
    for (Duration waited{}; !house.answers.contains(before + 1) && waited < 5s; waited += 10ms) town.run_for(10ms);
    return house.answer<wire::RecoveryView>(before + 1);
  }
  // Their hosts are switched off: nobody refuses a connection for them.
  void power_off(const std::vector<House*>& gone) {
    town.beyond.insert(gone.begin(), gone.end());
    for (House* house : gone) town.kill(*house);
  }
  Status forget(House& house, const std::string& name) {
    const std::uint64_t before = house.requests();
    (void)house.ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{name}, 0);
    town.run_for(1s);
    const auto answer = house.answer<wire::Empty>(before + 1);
    return answer ? Status{} : Status{tl::unexpected(answer.error())};
  }
  static std::string state(House& house, const std::string& name) {
    const auto nodes = house.nodes(name);
    return nodes.empty() ? "" : nodes.front().state;
  }
  void expect_refused(const Result<wire::RecoveryView>& answer, const std::string& why) {
    ASSERT_FALSE(answer);
    EXPECT_THAT(answer.error().text(), HasSubstr(why));
  }
  Result<wire::SubmitReply> submit(House& house, const std::string& name) {
    job::JobSpec spec;
    spec.name = name;
    spec.framework = job::Framework::generic;
    spec.suspend = true;  // nothing of it runs: it is about the log
    job::RoleSpec role;
    role.replicas = role.min_replicas = 1;
    role.command = {"true"};
    spec.roles["worker"] = role;
    wire::SubmitRequest request;
    request.spec = wire::encode(spec);
    const std::uint64_t before = house.requests();
    (void)house.ask<wire::SubmitReply>(MessageType::submit, request, 1000);
    for (Duration waited{}; !house.answers.contains(before + 1) && waited < 15s; waited += 10ms) town.run_for(10ms);
    return house.answer<wire::SubmitReply>(before + 1);
  }
  std::vector<std::string> jobs(House& house) {
    std::vector<std::string> names;
    const auto reply = house.ask<wire::JobsReply>(MessageType::query_jobs, wire::JobsRequest{});
    if (reply)
      for (const auto& view : reply->jobs) names.push_back(view.name);
    return names;
  }

  Town town;
  std::vector<House*> houses;
};

TEST_F(RecoveryTest, IsRefusedWhereNothingIsLost) {
  start_all(3);
  for (House* house : houses) expect_refused(recover(*house), "n1 coordinates");
  EXPECT_EQ(houses[0]->status().quorum.next, "");
  EXPECT_EQ(houses[0]->status().quorum.history, 1u);
  town.kill(*houses[0]);
  expect_refused(recover(*houses[1]), "coordinate");
  House lone(town, "lone", 9);
  lone.started.members.found = true;
  lone.started.members.holds_ledger = true;
  lone.start();
  expect_refused(lone.ask<wire::RecoveryView>(MessageType::recover_quorum, wire::RecoverRequest{true, true}), "lone coordinates");
  for (House* house : houses) EXPECT_LE(house->disk.hard.history.number, 1u);
}

TEST_F(RecoveryTest, IsRefusedToStrangersAndWhileAMajorityIsUp) {
  start_all(3);
  town.kill(*houses[0]);
  town.kill(*houses[1]);
  town.run_for(5s);
  expect_refused(recover(*houses[2], true, true, 1000), "only operators may");
  EXPECT_EQ(houses[2]->disk.hard.history.number, 1u);
  // Two of three are up again, and have not found each other yet.
  start_again(*houses[0]);
  for (Duration waited{}; waited < 500ms; waited += 10ms, town.run_for(10ms)) {
    if (houses[2]->status().coordinator) break;
    const auto answer = recover(*houses[2], false, true);
    if (answer) continue;
    EXPECT_THAT(answer.error().text(), ::testing::AnyOf(HasSubstr("a majority of the voters is alive: n1, n3"), HasSubstr("coordinates")));
  }
  EXPECT_EQ(houses[2]->disk.hard.history.number, 1u);
}

TEST_F(RecoveryTest, ASurvivorGoesOnAndTheOthersComeBack) {
  start_all(3);
  ASSERT_TRUE(submit(*houses[1], "before"));
  House& survivor = *houses[2];
  town.kill(*houses[0]);
  town.kill(*houses[1]);
  town.run_for(5s);
  EXPECT_FALSE(submit(survivor, "refused"));
  EXPECT_THAT(survivor.status().quorum.next, HasSubstr("Start the agents of n1, n2; where they run, dtrainctl doctor says what is in the "
                                                       "way; only if they are lost for good: dtrainctl recover-quorum"));
  // Asked only: nothing happens.
  const auto would = recover(survivor, false);
  ASSERT_TRUE(would) << would.error().text();
  EXPECT_EQ(would->lost, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(would->new_history, 0u);
  EXPECT_GT(would->index, 3u);
  EXPECT_EQ(survivor.disk.hard.history.number, 1u);
  const auto done = recover(survivor);
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_EQ(done->new_history, 2u);
  EXPECT_GT(done->epoch, 1ull << 32) << "orders of the older history are refused";
  EXPECT_EQ(survivor.log.count("council.recovered"), 1u);
  EXPECT_THAT(survivor.status().quorum.voters, ::testing::ElementsAre("n3"));
  EXPECT_EQ(survivor.status().quorum.history, 2u);
  const auto after = submit(survivor, "after");
  ASSERT_TRUE(after);
  EXPECT_GT(after->id, cluster::kJobsOfHistory) << "no id is given that one of the lost may have given";
  expect_refused(recover(survivor), "n3 coordinates");
  bool told = false;
  for (const auto& event : survivor.events()) told = told || event.type == "council.recovered";
  EXPECT_TRUE(told);
  // One comes back with its old log, and then the other.
  start_again(*houses[0]);
  expect_refused(recover(*houses[0], true, true), "just started");
  town.run_for(30s);
  EXPECT_EQ(houses[0]->disk.hard.history.number, 2u);
  EXPECT_EQ(houses[0]->log.count("council.followed"), 1u);
  EXPECT_EQ(jobs(*houses[0]), jobs(survivor));
  EXPECT_THAT(jobs(survivor), ::testing::AllOf(Contains("before"), Contains("after")));
  EXPECT_FALSE(houses[0]->status().stale);
  start_again(*houses[1]);
  town.run_for(2min);
  for (House* house : houses) {
    EXPECT_EQ(house->status().quorum.voters, (std::vector<std::string>{"n1", "n2", "n3"}));
    EXPECT_EQ(house->status().quorum.next, "");
    EXPECT_EQ(jobs(*house), jobs(survivor));
  }
  // They are voters like any: the survivor may die now, and come back.
  town.kill(survivor);
  ASSERT_TRUE(submit(*houses[0], "later"));
  start_again(survivor);
  town.run_for(20s);
  EXPECT_THAT(jobs(survivor), Contains("later"));
}

// Both the voter and the learner are left: the one with the shorter log must be forced, and the other follows it then.
TEST_F(RecoveryTest, WhoseLogReachesFurtherIsTheOne) {
  start_all(4);
  House& voter = *houses[2];
  House& learner = *houses[3];
  ASSERT_EQ(voter.status().quorum.voters, (std::vector<std::string>{"n1", "n2", "n3"}));
  town.kill(learner);
  town.run_for(2s);
  ASSERT_TRUE(submit(voter, "more"));
  town.run_for(1s);
  town.kill(*houses[0]);
  town.kill(*houses[1]);
  start_again(learner);
  town.run_for(20s);
  expect_refused(recover(learner), "the log of n3 reaches further");
  const auto would = recover(voter, false);
  ASSERT_TRUE(would) << would.error().text();
  ASSERT_FALSE(would->others.empty());
  EXPECT_EQ(would->others.back().node, "n4");
  EXPECT_EQ(would->others.back().role, "learner");
  EXPECT_GT(would->others.back().index, 0u);
  EXPECT_LT(would->others.back().index, would->index);
  const auto forced = recover(learner, true, true);
  ASSERT_TRUE(forced) << forced.error().text();
  town.run_for(2s);  // gossip
  expect_refused(recover(voter, true, true), "n4 has begun history 2");
  town.run_for(30s);
  EXPECT_EQ(voter.disk.hard.history.number, 2u);
  EXPECT_EQ(voter.log.count("council.followed"), 1u);
  EXPECT_EQ(jobs(voter), std::vector<std::string>{}) << "what only it had is lost";
  ASSERT_TRUE(submit(voter, "after"));
  EXPECT_EQ(jobs(learner), std::vector<std::string>{"after"});
}

// A crash between: the one or the other, and it can be said again.
TEST_F(RecoveryTest, SurvivesACrash) {
  start_all(3);
  House& survivor = *houses[2];
  town.kill(*houses[0]);
  town.kill(*houses[1]);
  town.run_for(5s);
  town.disk = 50ms;
  (void)survivor.ask<wire::RecoveryView>(MessageType::recover_quorum, wire::RecoverRequest{true, false}, 0);
  town.kill(survivor);
  town.disk = {};
  start_again(survivor);
  town.run_for(12s);
  if (survivor.disk.hard.history.number == 1) {
    ASSERT_TRUE(recover(survivor));
  }
  EXPECT_EQ(survivor.disk.hard.history.number, 2u);
  EXPECT_TRUE(submit(survivor, "after"));
}

// Who led knows that a majority was there a moment ago: it hears nobody else who leads, and may only be about to lose an election.
TEST_F(RecoveryTest, WhoJustLedWaitsForAnElection) {
  start_all(3);
  ASSERT_EQ(houses[0]->status().coordinator.value_or(wire::CoordinatorView{}).node, "n1");
  House& leader = *houses[0];
  town.beyond = {&leader};
  town.run_for(7s);
  ASSERT_FALSE(leader.status().coordinator) << "it hears no majority";
  ASSERT_EQ(leader.nodes("n2").front().state, "suspect");
  expect_refused(recover(leader, false), "a majority of the voters is alive");
  EXPECT_EQ(leader.status().quorum.next, "");
  town.run_for(10s);
  EXPECT_THAT(leader.status().quorum.next, HasSubstr("no majority of the voters is reached"));
  EXPECT_TRUE(recover(leader, false));
  EXPECT_TRUE(houses[1]->status().coordinator) << "which is why it is told what it would do";
}

// Two learners are left on one side of a cut, and no voter.
TEST_F(RecoveryTest, LearnersBehindACutKeepTheirCopyAndGoOnFromIt) {
  start_all(5);
  ASSERT_TRUE(submit(*houses[0], "before"));
  town.run_for(1s);
  ASSERT_EQ(houses[3]->status().quorum.voters, (std::vector<std::string>{"n1", "n2", "n3"}));
  town.beyond = {houses[3], houses[4]};
  town.run_for(2min);
  House& survivor = *houses[3];
  EXPECT_TRUE(survivor.status().ledger) << "nobody else is known to coordinate";
  EXPECT_TRUE(survivor.status().stale);
  EXPECT_FALSE(survivor.status().coordinator);
  EXPECT_EQ(jobs(survivor), std::vector<std::string>{"before"});
  EXPECT_THAT(survivor.status().quorum.next, HasSubstr("Start the agents of n1, n2, n3; where they run, dtrainctl doctor says what is in "
                                                       "the way; only if they are lost for good: dtrainctl recover-quorum"));
  EXPECT_FALSE(submit(survivor, "refused"));
  const auto done = recover(survivor);
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_EQ(done->lost, (std::vector<std::string>{"n1", "n2", "n3"}));
  ASSERT_TRUE(submit(survivor, "after"));
  town.run_for(30s);
  EXPECT_EQ(houses[4]->log.count("council.followed"), 1u) << "the other learner goes with it";
  EXPECT_THAT(jobs(*houses[4]), ::testing::AllOf(Contains("before"), Contains("after")));
  // They were not lost: both sides have leaders, and both are told.
  town.beyond.clear();
  town.run_for(2min);
  EXPECT_THAT(survivor.status().quorum.next, HasSubstr("recover-quorum was run while a majority was alive"));
  EXPECT_THAT(houses[0]->status().quorum.next, HasSubstr("recover-quorum was run while a majority was alive"));
  EXPECT_EQ(jobs(*houses[0]), std::vector<std::string>{"before"}) << "each has all that it acknowledged";
}

TEST_F(RecoveryTest, AFailedDiskRecoversNothing) {
  start_all(3);
  House& survivor = *houses[2];
  town.kill(*houses[0]);
  town.kill(*houses[1]);
  town.run_for(5s);
  survivor.give(PersistFailed{77, {ErrorCode::io, "could not write: no space", ""}});
  expect_refused(recover(survivor), "disk failed");
  EXPECT_EQ(survivor.disk.hard.history.number, 1u);
}

// Silent hosts cannot be told from a cut of one's own: the only one left suspected them for ever, so that no task of theirs was given up.
TEST_F(RecoveryTest, TheOthersAreDeadOnceTheQuorumIsRecovered) {
  start_all(3);
  House& survivor = *houses[2];
  power_off({houses[0], houses[1]});
  town.run_for(40s);
  ASSERT_EQ(survivor.log.count("membership.frozen"), 1u);
  ASSERT_EQ(state(survivor, "n1"), "suspect");
  const Status early = forget(survivor, "n1");
  ASSERT_FALSE(early);
  EXPECT_THAT(early.error().text(), HasSubstr("it is suspect"));
  const auto done = recover(survivor);
  ASSERT_TRUE(done) << done.error().text();
  for (const char* name : {"n1", "n2"}) EXPECT_EQ(state(survivor, name), "dead") << name;
  EXPECT_EQ(survivor.log.count("membership.thawed"), 1u);
  EXPECT_TRUE(forget(survivor, "n1"));
  EXPECT_EQ(state(survivor, "n1"), "left");
  // Who is there after all says so.
  town.beyond.clear();
  start_again(*houses[1]);
  town.run_for(30s);
  EXPECT_EQ(state(survivor, "n2"), "alive");
  EXPECT_EQ(houses[1]->disk.hard.history.number, 2u);
}

// The voters are left, and most hosts are not: with a coordinator an operator's word counts.
TEST_F(RecoveryTest, ASuspectIsForgottenWhereNobodyIsJudged) {
  start_all(7);
  House& coordinator = *houses[0];
  ASSERT_EQ(coordinator.status().quorum.voters, (std::vector<std::string>{"n1", "n2", "n3"}));
  power_off({houses[3], houses[4], houses[5], houses[6]});
  town.run_for(1min);
  ASSERT_TRUE(coordinator.status().coordinator);
  ASSERT_GE(coordinator.log.count("membership.frozen"), 1u);
  for (const char* name : {"n4", "n5"}) {
    ASSERT_EQ(state(coordinator, name), "suspect") << name;
    const Status forgotten = forget(coordinator, name);
    EXPECT_TRUE(forgotten) << forgotten.error().text();
    EXPECT_EQ(state(coordinator, name), "left") << name;
  }
  town.run_for(30s);
  EXPECT_EQ(coordinator.log.count("membership.thawed"), 1u);
  EXPECT_EQ(state(coordinator, "n7"), "dead") << "so few others are suspected that they are judged again";
}

// They had followed history 2, whose only leader is gone, and what they have got of it does not reach its configuration.
TEST_F(RecoveryTest, VotersOfAnOlderHistoryAreNoMajority) {
  start_all(3);
  ASSERT_TRUE(submit(*houses[1], "before"));
  for (House* house : houses) town.kill(*house);
  for (House* house : {houses[1], houses[2]}) {
    house->disk.hard.history = {2, {77, 77}};
    start_again(*house);
  }
  town.run_for(30s);
  House& survivor = *houses[2];
  ASSERT_FALSE(survivor.status().coordinator) << "by a configuration of history 1 nobody is elected in history 2";
  EXPECT_THAT(survivor.status().quorum.next, HasSubstr("of a history before 2 and elect nobody"));
  const auto done = recover(survivor, true, true);
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_EQ(done->new_history, 3u);
  town.run_for(30s);
  EXPECT_EQ(houses[1]->disk.hard.history.number, 3u);
  EXPECT_THAT(jobs(*houses[1]), Contains("before"));
}

// All lost power, and the host of a task never came back: the new coordinator had not seen it die, and it was looked at by nobody.
class AfterAPowerCut : public WorkingTown {
 protected:
  void start_again(House& house, const House& absent) {
    ++house.started.life;
    house.started.members.found = false;
    auto& record = house.started.members.record;
    record.cluster_id = {0xc1, 0x57e2};
    wire::Identity gone;
    gone.id = *MemberId::parse(absent.started.facts.id);
    gone.name = absent.started.facts.name;
    gone.address = absent.address();
    gone.boot_id = "boot-1";
    gone.life = 1;
    record.book = {gone};
    house.start();
    for (House* other : houses)
      if (other != &house && other->runs()) house.give(Gossiped{gossip::SeedsResolved{{other->address()}}});
  }
  void lose_power() {
    for (House* house : houses) {
      town.kill(*house);
      done[house] = house->effects.size();
    }
    start_again(*houses[0], *houses[2]);
    start_again(*houses[1], *houses[2]);
  }
};

TEST_F(AfterAPowerCut, WhatAHostHadThatNobodyHasSeenSinceIsBegunElsewhere) {
  submit(generic("j", 3));
  work(5s);
  ASSERT_TRUE(any_on("j", "n3")) << where("j");
  lose_power();
  work(4s);
  EXPECT_TRUE(any_on("j", "n3")) << "it may be starting as well: " << where("j");
  work(30s);
  EXPECT_FALSE(any_on("j", "n3")) << where("j");
  EXPECT_EQ(tasks("j").size(), 3u);
}

TEST_F(AfterAPowerCut, ItCanBeForgotten) {
  job::JobSpec spec = generic("j", 3);
  spec.roles["worker"].exclusive = true;
  spec.roles["worker"].on_disconnect = job::OnDisconnect::keep;
  submit(spec);
  work(5s);
  ASSERT_TRUE(any_on("j", "n3")) << where("j");
  lose_power();
  work(40s);
  EXPECT_TRUE(any_on("j", "n3")) << "it may run there: " << where("j");
  EXPECT_NE(described("j").waiting_for.find("dtrainctl forget-node n3"), std::string::npos) << described("j").waiting_for;
  const auto forgotten = ask<wire::Empty>(*houses[1], wire::MessageType::leave, wire::LeaveRequest{"n3"});
  ASSERT_TRUE(forgotten) << forgotten.error().text();
  work(20s);
  EXPECT_FALSE(any_on("j", "n3")) << where("j");
}

// What the lost ones had begun of a job since the survivor's last entry no log remembers. Under its lease it may run yet, so the new
// history begins none of that job before a lease is over, and then by a number that the lost ones cannot have given.
class AfterALostMajority : public WorkingTown {};

TEST_F(AfterALostMajority, WhatTheLostOnesMayHaveBegunIsNotBegunTwice) {
  job::JobSpec spec = generic("j", 1);
  spec.roles["worker"].exclusive = true;
  spec.suspend = true;
  submit(spec);
  spec.name = "free";
  spec.roles["worker"].exclusive = false;
  submit(spec);
  town.run_for(2s);
  House& survivor = *houses[2];
  town.beyond = {houses[0], houses[1]};
  town.kill(*houses[0]);
  town.kill(*houses[1]);
  const Instant lost = town.now.boot;
  std::optional<Instant> recovered;
  for (; !recovered && town.now.boot - lost < 1min; town.run_for(1s)) {
    const Instant asked = town.now.boot;
    if (ask<wire::RecoveryView>(survivor, wire::MessageType::recover_quorum, wire::RecoverRequest{true, false})) recovered = asked;
  }
  ASSERT_TRUE(recovered);
  for (const char* name : {"j", "free"}) {
    wire::ActionRequest resume;
    resume.action = wire::Action::resume;
    resume.job = name;
    ASSERT_TRUE(ask<wire::SubmitReply>(survivor, wire::MessageType::action, resume)) << name;
  }
  const auto begun = [&](const std::string& name) -> std::optional<Generation> {
    for (const Effect& effect : survivor.effects)
      if (const auto* stage = std::get_if<Stage>(&effect); stage != nullptr && stage->job_name == name) return stage->id.generation;
    return std::nullopt;
  };
  EXPECT_EQ(begun("free"), cluster::kGenerationsOfHistory) << "what may run twice waits for nothing";
  EXPECT_FALSE(begun("j"));
  town.run_for(*recovered + survivor.options.lease - town.now.boot);
  EXPECT_FALSE(begun("j"));
  town.run_for(2s);
  EXPECT_EQ(begun("j"), cluster::kGenerationsOfHistory);
}

// World cluster, five hosts, seed 386: a member that follows installed a snapshot that already had a report of its life, took itself for
// current, and killed what had been begun since.
class AfterALostMajorityWithSnapshots : public WorkingTown {
 protected:
  AfterALostMajorityWithSnapshots() : WorkingTown(kEvery) {}
  static constexpr std::uint64_t kEvery = 120;  // entries; fewer are written from the snapshot to the end of the test
};

TEST_F(AfterALostMajorityWithSnapshots, WhoFollowsKeepsWhatTheSnapshotHasNot) {
  grow(4);
  work(20s);
  for (int i = 0; i < 40 && houses[2]->disk.snapshot.value_or(raft::StoredSnapshot{}).index < kEvery; ++i) {
    submit(generic("old" + std::to_string(i), 1));
    work(2s);
  }
  House& survivor = *houses[2];
  const std::uint64_t snapshot = survivor.disk.snapshot.value_or(raft::StoredSnapshot{}).index;
  ASSERT_GE(snapshot, kEvery);
  submit(generic("j", 4));
  work(3s);
  ASSERT_TRUE(any_on("j", "n4")) << where("j");
  ASSERT_EQ(survivor.disk.snapshot.value_or(raft::StoredSnapshot{}).index, snapshot) << "it has none of j";
  town.kill(*houses[0]);
  town.kill(*houses[1]);
  work(10s);
  kills = signals = 0;
  const auto recovered = ask<wire::RecoveryView>(survivor, wire::MessageType::recover_quorum, wire::RecoverRequest{true, false});
  ASSERT_TRUE(recovered) << recovered.error().text();
  work(60s);
  ASSERT_EQ(houses[3]->log.count("council.followed"), 1u);
  ASSERT_EQ(survivor.disk.snapshot.value_or(raft::StoredSnapshot{}).index, snapshot) << "which is what n4 was sent";
  EXPECT_EQ(kills + signals, 0);
  for (const auto& [task, view] : tasks("j", 2)) EXPECT_EQ(view.state, "Running") << task << " on " << view.node;
}

}  // namespace
}  // namespace dtrain::node
