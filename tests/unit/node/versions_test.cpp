// Members whose programs know different versions of the ledger (node/ledger_versions.h).
#include <gmock/gmock.h>

#include "common/cluster/command.h"
#include "common/cluster/ledger.h"
#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {
namespace {

using testing::HasSubstr;
using wire::MessageType;

constexpr std::uint32_t kLater = wire::kRehearsal.version;

class VersionsTest : public ::testing::Test {
 protected:
  VersionsTest() {
    for (const char* name : {"n1", "n2", "n3"}) houses.push_back(&town.add(name));
  }
  void start_all() {
    for (House* house : houses) {
      house->start();
      town.run_for(1s);
    }
    town.run_for(10s);
  }
  // As an upgrade does it, or its opposite.
  void give(House& house, std::uint32_t knows) {
    house.kill();
    town.run_for(1s);
    house.options.ledger_knows = knows;
    ++house.started.life;
    house.started.members.found = false;
    house.started.members.record.cluster_id = {0xc1, 0x57e2};
    house.start();
    town.run_for(15s);
  }
  Result<wire::SubmitReply> submit(House& house, const std::string& name, bool later) {
    job::JobSpec spec;
    spec.name = name;
    spec.suspend = true;  // nothing of it runs: it is about the log
    job::RoleSpec role;
    role.replicas = role.min_replicas = 1;
    role.command = {"true"};
    spec.roles["worker"] = role;
    if (later) spec.rehearsal = "it";
    wire::SubmitRequest request;
    request.spec = wire::encode(spec);
    const std::uint64_t before = house.requests();
    (void)house.ask<wire::SubmitReply>(MessageType::submit, request, 1000);
    for (Duration waited{}; !house.answers.contains(before + 1) && waited < 15s; waited += 2ms) town.run_for(2ms);
    return house.answer<wire::SubmitReply>(before + 1);
  }

  Town town;
  std::vector<House*> houses;
};

TEST_F(VersionsTest, ItIsRaisedWhenTheLastOfThemKnowsIt) {
  start_all();
  give(*houses[1], kLater);
  give(*houses[0], kLater);
  const auto early = submit(*houses[0], "early", true);
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, ErrorCode::refused);
  EXPECT_THAT(early.error().message, HasSubstr("an older dtrain: n3"));
  EXPECT_THAT(early.error().message, testing::Not(HasSubstr("n1")));
  ASSERT_TRUE(submit(*houses[2], "plain", false)) << "what all know goes on";
  give(*houses[2], kLater);
  for (House* house : houses) {
    const auto taken = submit(*house, "newer-" + house->started.facts.name, true);
    EXPECT_TRUE(taken) << taken.error().text();
  }
}

TEST_F(VersionsTest, WhoIsGivenAnOlderProgramStopsReadingAndSaysSo) {
  for (House* house : houses) house->options.ledger_knows = kLater;
  start_all();
  ASSERT_TRUE(submit(*houses[0], "newer", true));
  House& old = *houses[2];
  give(old, cluster::kFirstVersion);
  ASSERT_TRUE(submit(*houses[0], "after", true));
  EXPECT_EQ(old.log.count("ledger.behind node=n3 needs=1000000 knows=1"), 1u);
  EXPECT_FALSE(old.status().ledger);
  for (House* house : houses) {
    const auto nodes = house->nodes("n3");
    ASSERT_EQ(nodes.size(), 1u);
    EXPECT_FALSE(nodes.front().schedulable);
    EXPECT_EQ(nodes.front().unfit, "this host's dtrain knows version 1 of the ledger, which has version 1000000");
  }
  // It leads nothing, whoever is left.
  houses[0]->kill();
  town.run_for(10s);
  EXPECT_EQ(houses[1]->status().coordinator->node, "n2");
  ++houses[0]->started.life;
  houses[0]->started.members.found = false;
  houses[0]->started.members.record.cluster_id = {0xc1, 0x57e2};
  houses[0]->start();
  town.run_for(10s);
  give(old, kLater);
  EXPECT_TRUE(old.status().ledger);
  EXPECT_TRUE(old.nodes("n3").front().schedulable);
  const auto jobs = old.ask<wire::JobsReply>(MessageType::query_jobs, wire::JobsRequest{});
  ASSERT_TRUE(jobs);
  EXPECT_EQ(jobs->jobs.size(), 2u);
}

// A cluster that began with the newer program; one with an older program joins it.
TEST_F(VersionsTest, WhoJoinsWithAnOlderProgramIsGivenNoCopyAndNoTasks) {
  houses[0]->options.ledger_knows = houses[1]->options.ledger_knows = kLater;
  start_all();
  ASSERT_TRUE(submit(*houses[0], "newer", true));
  House& old = *houses[2];
  EXPECT_EQ(old.log.count("ledger.behind"), 0u) << "it never had anything to read";
  EXPECT_FALSE(old.status().ledger);
  EXPECT_EQ(houses[0]->nodes("n3").front().role, "member");
  EXPECT_THAT(houses[0]->nodes("n3").front().unfit,
              HasSubstr("knows version " + std::to_string(cluster::kNewestVersion) + " of the ledger"));
}

TEST_F(VersionsTest, WhatALeaderCannotReadItDoesNotPropose) {
  start_all();
  const auto before = houses[0]->disk.log.size();
  const wire::PeerHeader header{wire::kPeerFormat, 0, {0xc1, 0x57e2}, {0x1002, 2}, 1, 1, 0};
  const auto submit_type = static_cast<std::uint16_t>(cluster::CommandType::submit);
  houses[0]->give(LogReceived{header, wire::Forward{{1, 7}, 1, submit_type, "x"}});
  job::JobSpec spec;
  spec.name = "newer";
  spec.rehearsal = "it";
  const std::string newer = wire::encode(cluster::SubmitJob{wire::encode(spec), {"a", 1}, "", false, ""});
  houses[0]->give(LogReceived{header, wire::Forward{{1, 8}, 1, submit_type, newer}});
  town.run_for(1s);
  EXPECT_EQ(houses[0]->disk.log.size(), before);
  EXPECT_EQ(houses[0]->log.count("ledger.request-refused"), 2u);
}

// One of them changed a rule without a version of its own.
class CopiesTest : public VersionsTest {
 protected:
  CopiesTest() {
    for (House* house : houses) {
      house->options.ledger_knows = kLater;
      house->options.compare_every = 4;
    }
  }
  // What is applied everywhere: enough for one comparison at least.
  void entries(House& asked) {
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(submit(asked, "plain-" + std::to_string(++entries_), false));
    town.run_for(3s);
  }
  std::string state(House& house) { return house.node().ledger().snapshot(); }
  void breaks_the_rule(std::size_t one) { houses[one]->options.broken_rule = "rehearsal-counts"; }
  int entries_ = 0;
};

TEST_F(CopiesTest, WhoDiffersIsNamedAndTakesTheStateOfTheOthers) {
  breaks_the_rule(2);
  start_all();
  House& wrong = *houses[2];
  ASSERT_TRUE(submit(*houses[0], "newer", true));
  ASSERT_NE(state(wrong), state(*houses[0]));
  entries(*houses[0]);
  EXPECT_EQ(wrong.log.count("ledger.behind node=n3 needs=? knows=1000000"), 1u);
  EXPECT_EQ(houses[0]->log.count("ledger.differs node=n3"), 1u);
  EXPECT_EQ(wrong.log.count("ledger.readable"), 1u);
  EXPECT_EQ(state(wrong), state(*houses[0]));
  EXPECT_EQ(wrong.node().ledger().state().rehearsals, 1u);
  EXPECT_TRUE(wrong.status().ledger);
  EXPECT_TRUE(wrong.nodes("n3").front().schedulable);
  for (House* house : {houses[0], houses[1]}) EXPECT_EQ(house->log.count("ledger.behind"), 0u);
  entries(wrong);
  EXPECT_EQ(wrong.log.count("ledger.behind"), 1u) << "once it is the same it stays so";
}

TEST_F(CopiesTest, ACoordinatorThatDiffersHandsOver) {
  breaks_the_rule(0);
  start_all();
  ASSERT_EQ(houses[1]->status().coordinator->node, "n1");
  ASSERT_TRUE(submit(*houses[1], "newer", true));
  entries(*houses[1]);
  town.run_for(10s);
  EXPECT_EQ(houses[0]->log.count("ledger.behind node=n1"), 1u);
  ASSERT_TRUE(houses[1]->status().coordinator);
  EXPECT_NE(houses[1]->status().coordinator->node, "n1");
  EXPECT_EQ(state(*houses[0]), state(*houses[1]));
  EXPECT_EQ(state(*houses[2]), state(*houses[1]));
  entries(*houses[0]);
}

TEST_F(CopiesTest, OfTwoTheCoordinatorIsRight) {
  breaks_the_rule(0);
  for (House* house : {houses[0], houses[1]}) {
    house->start();
    town.run_for(1s);
  }
  town.run_for(10s);
  ASSERT_EQ(houses[1]->status().coordinator->node, "n1");
  ASSERT_TRUE(submit(*houses[0], "newer", true));
  entries(*houses[0]);
  EXPECT_EQ(houses[0]->log.count("ledger.behind"), 0u);
  EXPECT_EQ(houses[1]->log.count("ledger.behind node=n2"), 1u);
  EXPECT_EQ(state(*houses[1]), state(*houses[0]));
}

}  // namespace
}  // namespace dtrain::node
