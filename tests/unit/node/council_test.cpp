// Several nodes with one log: whoever is asked answers, whoever leads coordinates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cluster/command.h"
#include "common/node/requests.h"
#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using wire::MessageType;

class CouncilTest : public ::testing::Test {
 protected:
  CouncilTest() {
    for (const char* name : {"n1", "n2", "n3"}) houses.push_back(&town.add(name));
  }
  void start_all() {
    for (House* house : houses) {
      house->start();
      town.run_for(1s);
    }
    town.run_for(10s);
  }
  wire::SubmitRequest job(const std::string& name, const std::string& request_id = "") {
    job::JobSpec spec;
    spec.name = name;
    spec.framework = job::Framework::generic;
    spec.suspend = true;  // nothing of it runs: it is about the log
    job::RoleSpec role;
    role.replicas = role.min_replicas = 1;
    role.command = {"true"};
    spec.roles["worker"] = role;
    wire::SubmitRequest submit;
    submit.spec = wire::encode(spec);
    submit.request_id = request_id;
    return submit;
  }
  // Asks, and lets time go on until the answer is there.
  template <class Reply, class Query>
  Result<Reply> ask(House& house, MessageType type, const Query& query, Duration patience = 15s) {
    const std::uint64_t before = house.requests();
    (void)house.ask<Reply>(type, query, 1000);
    for (Duration waited{}; !house.answers.contains(before + 1) && waited < patience; waited += 2ms) town.run_for(2ms);
    return house.answer<Reply>(before + 1);
  }
  Result<wire::Empty> leave(House& house) {
    const std::uint64_t before = house.requests();
    (void)house.ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}, 0);
    for (Duration waited{}; !house.answers.contains(before + 1) && waited < 15s; waited += 10ms) town.run_for(10ms);
    return house.answer<wire::Empty>(before + 1);
  }
  // After kill(): the next life, which finds the others through n2.
  void start_again(House& house) {
    ++house.started.life;
    house.started.members.found = false;
    house.started.members.record.cluster_id = {0xc1, 0x57e2};
    house.started.members.record.book = {};
    house.started.members.seeds = {"10.0.0.2"};
    house.start();
    house.give(Gossiped{gossip::SeedsResolved{{{"10.0.0.2", 7400}}}});
  }
  std::vector<std::string> jobs(House& house) {
    std::vector<std::string> names;
    const auto reply = house.ask<wire::JobsReply>(MessageType::query_jobs, wire::JobsRequest{});
    if (reply)
      for (const auto& view : reply->jobs) names.push_back(view.name);
    return names;
  }
  House& coordinator() {
    for (House* house : houses)
      if (house->runs())
        if (const auto status = house->status(); status.coordinator)
          for (House* named : houses)
            if (named->started.facts.name == status.coordinator->node) return *named;
    return *houses.front();
  }

  Town town;
  std::vector<House*> houses;
};

TEST_F(CouncilTest, ThreeMembersAreThreeVotersAndEachAnswers) {
  start_all();
  for (House* house : houses) {
    const auto status = house->status();
    EXPECT_EQ(status.quorum.voters, (std::vector<std::string>{"n1", "n2", "n3"}));
    ASSERT_TRUE(status.coordinator);
    EXPECT_EQ(status.coordinator->node, "n1");
    EXPECT_FALSE(status.stale);
  }
  ASSERT_TRUE(ask<wire::SubmitReply>(*houses[0], MessageType::submit, job("at-n1")));
  const auto at_n2 = ask<wire::SubmitReply>(*houses[1], MessageType::submit, job("at-n2"));
  ASSERT_TRUE(at_n2) << at_n2.error().text();
  EXPECT_EQ(at_n2->name, "at-n2");
  EXPECT_NE(at_n2->id, 0u);
  EXPECT_THAT(jobs(*houses[1]), ::testing::Contains("at-n2")) << "who was answered sees it there";
  town.run_for(1s);
  for (House* house : houses) EXPECT_EQ(jobs(*house), (std::vector<std::string>{"at-n1", "at-n2"}));
}

TEST_F(CouncilTest, TheCoordinatorDiesAndNothingAcknowledgedIsLost) {
  start_all();
  ASSERT_TRUE(ask<wire::SubmitReply>(*houses[1], MessageType::submit, job("before")));
  town.kill(*houses[0]);
  const Instant died = town.now.boot;
  const auto after = ask<wire::SubmitReply>(*houses[1], MessageType::submit, job("after"));
  ASSERT_TRUE(after) << after.error().text();
  EXPECT_LT(town.now.boot - died, 1s);
  town.run_for(1s);
  EXPECT_NE(coordinator().started.facts.name, "n1");
  for (House* house : {houses[1], houses[2]}) EXPECT_EQ(jobs(*house), (std::vector<std::string>{"before", "after"}));
  start_again(*houses[0]);
  town.run_for(20s);
  EXPECT_EQ(jobs(*houses[0]), (std::vector<std::string>{"before", "after"}));
  EXPECT_EQ(houses[0]->status().quorum.voters.size(), 3u);
}

// What it has on its disk may be long past, and how much of it is committed only a leader can tell.
TEST_F(CouncilTest, WhoStartedAgainSaysNothingOfJobsBeforeItIsToldWhatHolds) {
  start_all();
  ASSERT_TRUE(ask<wire::SubmitReply>(*houses[0], MessageType::submit, job("before")));
  House& again = *houses[0];
  town.kill(again);
  ASSERT_TRUE(ask<wire::SubmitReply>(*houses[1], MessageType::submit, job("after")));
  start_again(again);
  (void)again.ask<wire::JobsReply>(MessageType::query_jobs, wire::JobsRequest{});
  const std::uint64_t asked = again.requests();
  EXPECT_FALSE(again.answers.contains(asked));
  EXPECT_TRUE(again.status().stale);
  for (Duration waited{}; !again.answers.contains(asked) && waited < 8s; waited += 10ms) town.run_for(10ms);
  const auto reply = again.answer<wire::JobsReply>(asked);
  ASSERT_TRUE(reply) << reply.error().text();
  EXPECT_EQ(reply->jobs.size(), 2u);
  EXPECT_FALSE(reply->stale);
  EXPECT_FALSE(again.status().stale);
}

TEST_F(CouncilTest, WhatWaitsIsBoundedInBytes) {
  start_all();
  town.kill(*houses[0]);
  town.kill(*houses[1]);
  town.kill(*houses[2]);
  House& alone = *houses[0];
  start_again(alone);
  wire::SubmitRequest long_one = job("long");
  long_one.spec.resize(4 << 20);
  for (std::size_t sent = 4 << 20; sent < kWaitingBytes; sent += 4 << 20) {
    (void)alone.ask<wire::SubmitReply>(MessageType::submit, long_one);
    EXPECT_FALSE(alone.answers.contains(alone.requests()));
  }
  (void)alone.ask<wire::SubmitReply>(MessageType::submit, long_one);
  ASSERT_TRUE(alone.answers.contains(alone.requests()));
  EXPECT_THAT(alone.answer<wire::SubmitReply>(alone.requests()).error().text(), HasSubstr("too many requests wait"));
}

TEST_F(CouncilTest, WithoutAMajorityItRefusesAfterAWhile) {
  start_all();
  ASSERT_TRUE(ask<wire::SubmitReply>(*houses[0], MessageType::submit, job("before")));
  for (House* house : houses) town.kill(*house);
  House& alone = *houses[0];
  start_again(alone);
  (void)alone.ask<wire::JobsReply>(MessageType::query_jobs, wire::JobsRequest{});
  const std::uint64_t asked = alone.requests();
  town.run_for(kCurrentWithin - 1s);
  EXPECT_FALSE(alone.answers.contains(asked));
  town.run_for(2s);
  const auto refused = alone.answer<wire::JobsReply>(asked);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text(), HasSubstr("since this agent started no coordinator told it"));
}

// With a disk and a network that take time: nobody waits for what could be said at once.
class CouncilIsSoonBack : public CouncilTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, CouncilIsSoonBack, ::testing::Range(1, 21));

TEST_P(CouncilIsSoonBack, AfterItsCoordinatorsEnd) {
  town.seed = static_cast<std::uint64_t>(GetParam());
  town.travel = 1ms;
  town.disk = 10ms;
  start_all();
  town.kill(*houses[0]);
  const Instant died = town.now.boot;
  const auto after = ask<wire::SubmitReply>(*houses[1], MessageType::submit, job("after"));
  ASSERT_TRUE(after) << after.error().text();
  EXPECT_LT(town.now.boot - died, 300ms);
}

// Who votes only a second after its start would be missed for that second.
TEST_P(CouncilIsSoonBack, AfterItsCoordinatorsEndThoughAnotherVoterIsOnlyJustBack) {
  town.seed = static_cast<std::uint64_t>(GetParam());
  town.travel = 1ms;
  town.disk = 10ms;
  start_all();
  ASSERT_EQ(&coordinator(), houses[0]);
  town.kill(*houses[2]);
  town.run_for(5s);
  start_again(*houses[2]);
  while (houses[2]->status().nodes.alive != 3 || houses[1]->status().nodes.alive != 3) town.run_for(1ms);
  town.run_for(40ms);  // what a kill after a look at `status` takes
  town.kill(*houses[0]);
  const Instant died = town.now.boot;
  const auto after = ask<wire::SubmitReply>(*houses[1], MessageType::submit, job("after"));
  ASSERT_TRUE(after) << after.error().text();
  EXPECT_LT(town.now.boot - died, 300ms);
}

TEST_F(CouncilTest, WhoAsksAFollowerWaitsForNoHeartbeat) {
  town.travel = 1ms;
  town.disk = 5ms;
  start_all();
  for (int i = 0; i < 10; ++i) {
    const Instant asked = town.now.boot;
    ASSERT_TRUE(ask<wire::SubmitReply>(*houses[1], MessageType::submit, job("job-" + std::to_string(i))));
    EXPECT_LE(town.now.boot - asked, 20ms);
    town.run_for(33ms);
  }
}

TEST_F(CouncilTest, WithoutAMajorityNothingIsWrittenAndReadingSaysThatItMayBeOld) {
  start_all();
  ASSERT_TRUE(ask<wire::SubmitReply>(*houses[2], MessageType::submit, job("before")));
  town.kill(*houses[0]);
  town.kill(*houses[1]);
  town.run_for(5s);
  const auto refused = ask<wire::SubmitReply>(*houses[2], MessageType::submit, job("after"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::refused);
  EXPECT_THAT(refused.error().text(), HasSubstr("majority"));
  EXPECT_THAT(refused.error().next, HasSubstr("start them"));
  const auto reply = houses[2]->ask<wire::JobsReply>(MessageType::query_jobs, wire::JobsRequest{});
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->stale);
  EXPECT_EQ(reply->jobs.size(), 1u);
  EXPECT_TRUE(houses[2]->status().stale);
  EXPECT_FALSE(houses[2]->status().coordinator);
}

TEST_F(CouncilTest, ACommandThatArrivesTwiceIsAppliedOnce) {
  start_all();
  town.copies = 2;
  wire::SubmitRequest named = job("");
  auto spec = *wire::decode<job::JobSpec>(named.spec);
  spec.name = "";
  spec.generate_name = "twice-";  // a second one would get a name of its own
  named.spec = wire::encode(spec);
  ASSERT_TRUE(ask<wire::SubmitReply>(*houses[1], MessageType::submit, named));
  town.run_for(5s);
  for (House* house : houses) EXPECT_EQ(jobs(*house).size(), 1u);
}

TEST_F(CouncilTest, AStoppedCoordinatorHandsOver) {
  start_all();
  houses[0]->give(Stopping{});
  const Instant asked = town.now.boot;
  while (coordinator().started.facts.name == "n1" && town.now.boot < asked + 5s) town.run_for(10ms);
  EXPECT_LT(town.now.boot - asked, 500ms);
  EXPECT_TRUE(ask<wire::SubmitReply>(*houses[0], MessageType::submit, job("after"))) << "it is a member still";
}

// Others vote and lead in its place before it goes; of three, and then of two.
TEST_F(CouncilTest, TheCoordinatorLeaves) {
  start_all();
  ASSERT_TRUE(ask<wire::SubmitReply>(*houses[0], MessageType::submit, job("before")));
  House& first = coordinator();
  const auto left = leave(first);
  ASSERT_TRUE(left) << left.error().text();
  first.kill();
  town.run_for(20s);
  House& second = coordinator();
  ASSERT_NE(&second, &first);
  ASSERT_TRUE(ask<wire::SubmitReply>(second, MessageType::submit, job("between")));
  const auto left_too = leave(second);
  ASSERT_TRUE(left_too) << left_too.error().text();
  second.kill();
  town.run_for(20s);
  House& last = coordinator();
  EXPECT_EQ(last.status().quorum.voters.size(), 1u);
  ASSERT_TRUE(ask<wire::SubmitReply>(last, MessageType::submit, job("after")));
  EXPECT_EQ(jobs(last), (std::vector<std::string>{"before", "between", "after"}));
  const auto refused = leave(last);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text(), HasSubstr("the last of it"));
}

TEST_F(CouncilTest, OneLeaveOfAConnectionWaits) {
  start_all();
  town.kill(*houses[2]);
  town.run_for(5s);
  House& waits = *houses[1];
  (void)waits.ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}, 0);
  const std::uint64_t first = waits.requests(), second = 1'000'000;
  waits.give(Request{first, second, wire::encode(wire::make_message(MessageType::leave, second, wire::LeaveRequest{}))});
  ASSERT_TRUE(waits.answers.contains(second));
  EXPECT_FALSE(waits.answers.contains(first));
  EXPECT_THAT(waits.answer<wire::Empty>(second).error().text(), HasSubstr("asked already"));
  town.run_for(15s);
  EXPECT_FALSE(waits.answer<wire::Empty>(first)) << "the vote of two is needed";
}

TEST_F(CouncilTest, WhoseVoteIsNeededDoesNotLeave) {
  start_all();
  town.kill(*houses[2]);
  town.run_for(5s);
  for (House* house : {houses[0], houses[1]}) {
    const auto refused = leave(*house);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::refused);
    EXPECT_THAT(refused.error().text(), HasSubstr("can do without " + house->started.facts.name));
    EXPECT_EQ(house->status().nodes.alive, 2u);
  }
  EXPECT_TRUE(ask<wire::SubmitReply>(*houses[0], MessageType::submit, job("after")));
}

// What a follower says that is no command of a user's, no report of a host and no checkpoint that it saw is not proposed.
TEST_F(CouncilTest, OnlyRequestsAndReportsAreForwarded) {
  start_all();
  const auto before = houses[0]->disk.log.size();
  const wire::PeerHeader header{wire::kPeerFormat, 0, {0xc1, 0x57e2}, {0x1002, 2}, 1, 1, 0};
  for (const std::uint16_t type : {0, 3, 4, 6, 8, 9, 10, 11, 255})
    houses[0]->give(LogReceived{header, wire::Forward{{1, type}, 1, type, "x"}});
  houses[0]->give(LogReceived{header, wire::Forward{{}, 1, 1, "x"}});  // a submit without an id
  town.run_for(1s);
  EXPECT_EQ(houses[0]->disk.log.size(), before);
}

// A data directory of the version before the council: entries without a configuration, no hard state.
TEST_F(CouncilTest, AnOlderLogOfOneVoterGoesOn) {
  using cluster::CommandType;
  House& n1 = *houses[0];
  const auto entry = [&](CommandType type, const auto& body) {
    const std::string payload = cluster::make_command(type, 3, town.now, body);
    n1.disk.log.push_back({n1.disk.log.size() + 1, 3, payload, raft::EntryKind::command, {}});
  };
  entry(CommandType::coordinator_started, cluster::CoordinatorStarted{n1.started.facts.id, "n1", "boot-1"});
  entry(CommandType::submit, cluster::SubmitJob{job("old").spec, {"somebody", 1000}, "", false, ""});
  n1.started.life = 9;
  start_all();
  EXPECT_EQ(jobs(n1), std::vector<std::string>{"old"});
  EXPECT_EQ(n1.disk.hard.history.number, 1u);
  EXPECT_GT(n1.status().coordinator->epoch, 3u) << "orders of the older version are refused";
  ASSERT_TRUE(ask<wire::SubmitReply>(*houses[1], MessageType::submit, job("new")));
  EXPECT_EQ(jobs(*houses[1]), (std::vector<std::string>{"old", "new"}));
  // And once more, with what this version left on the disk.
  n1.kill();
  n1.started.life = 10;
  n1.started.members.found = false;
  n1.started.members.record.cluster_id = {0xc1, 0x57e2};
  n1.start();
  town.run_for(20s);
  EXPECT_EQ(jobs(n1).size(), 2u);
}

}  // namespace
}  // namespace dtrain::node
