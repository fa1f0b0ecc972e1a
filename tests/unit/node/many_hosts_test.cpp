// More hosts than have a copy of the log while nothing is to be done: who is given tasks gets one.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "common/cluster/council.h"
#include "common/wire/raft.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

constexpr std::size_t kHosts = 26;
const std::size_t kStanding = wire::kMostVoters + cluster::CouncilOptions{}.standing_learners;

class ManyHosts : public WorkingTown {
 protected:
  ManyHosts() {
    grow(kHosts);
    town.run_for(15s);
  }
  static job::JobSpec on(const std::string& name, const std::string& host) {
    job::JobSpec spec = generic(name, 1);
    spec.roles["worker"].node_selector = {{"house", host}};
    return spec;
  }
  // Whose names the coordinator shows in that role.
  std::set<std::string> in_role(const std::string& role, std::size_t at = 0) {
    std::set<std::string> names;
    for (const wire::NodeView& node : houses[at]->nodes())
      if (node.role == role) names.insert(node.name);
    return names;
  }
  House& outside() {
    const std::set<std::string> members = in_role("member");
    return *houses[std::stoul(members.begin()->substr(1)) - 1];
  }
  std::string name_of(const House& house) { return house.started.facts.name; }
  std::set<std::string> running_on(const std::string& job, std::size_t at = 0) {
    std::set<std::string> hosts;
    for (const auto& [name, view] : tasks(job, at))
      if (view.state == "Running") hosts.insert(view.node);
    return hosts;
  }
};

TEST_F(ManyHosts, IdleOnesHaveNoCopyAndMayBeGivenTasks) {
  EXPECT_EQ(in_role("voter").size() + 1, wire::kMostVoters);
  EXPECT_EQ(in_role("member").size(), kHosts - kStanding);
  for (const wire::NodeView& node : houses[0]->nodes()) EXPECT_TRUE(node.schedulable) << node.name;
  for (const wire::NodeView& node : outside().nodes()) EXPECT_TRUE(node.schedulable) << node.name;
}

TEST_F(ManyHosts, OneTaskEachRunsOnEach) {
  submit(generic("j", kHosts));
  work(5s);
  EXPECT_EQ(running_on("j").size(), kHosts) << where("j");
  EXPECT_TRUE(in_role("member").empty()) << "who has tasks has a copy";
}

TEST_F(ManyHosts, OnlyWhoIsGivenTasksGetsACopy) {
  House& host = outside();
  const std::size_t others = in_role("member").size() - 1;
  submit(on("j", name_of(host)));
  work(2s);
  EXPECT_EQ(running_on("j"), std::set<std::string>{name_of(host)}) << where("j");
  EXPECT_EQ(in_role("member").size(), others);
  EXPECT_TRUE(in_role("learner").contains(name_of(host)));
  wire::ActionRequest cancel;
  cancel.job = "j";
  cancel.action = wire::Action::cancel;
  ASSERT_TRUE(ask<wire::Empty>(*houses[0], wire::MessageType::action, cancel, 1000));
  work(60s);
  EXPECT_TRUE(running_on("j").empty());
  EXPECT_TRUE(in_role("learner").contains(name_of(host))) << "logs of what ran there are asked for there";
}

TEST_F(ManyHosts, WhatMustNotRunTwiceHasItsLeaseFromTheFirst) {
  House& host = outside();
  job::JobSpec spec = on("j", name_of(host));
  spec.roles["worker"].exclusive = true;
  submit(spec);
  work(2s);
  const auto launched = std::ranges::find_if(host.effects, [](const Effect& e) { return std::holds_alternative<LaunchShim>(e); });
  ASSERT_NE(launched, host.effects.end());
  const task::ShimSpec& shim = std::get<LaunchShim>(*launched).spec;
  EXPECT_EQ(shim.lease, host.options.lease);
  EXPECT_EQ(shim.epoch, houses[0]->status().coordinator->epoch);
}

TEST_F(ManyHosts, AHostThatDiesBeforeItHasACopyIsReplaced) {
  House& host = outside();
  town.without_log = &host;
  submit(generic("j", kHosts));
  EXPECT_TRUE(any_on("j", name_of(host)));
  town.kill(host);
  work(20s);
  EXPECT_FALSE(any_on("j", name_of(host))) << where("j");
  EXPECT_EQ(tasks("j").size(), kHosts);
  EXPECT_EQ(running_on("j").size(), kHosts - 1) << where("j");
}

// It is alive, but the log never gets there: what waits for it is begun elsewhere, and it is given nothing more until it is back.
TEST_F(ManyHosts, AHostThatGetsNoCopyIsGivenUp) {
  House& host = outside();
  town.without_log = &host;
  submit(generic("j", kHosts));
  work(50s);
  EXPECT_TRUE(running_on("j").empty()) << "all begin together";
  EXPECT_TRUE(any_on("j", name_of(host)));
  work(30s);
  EXPECT_FALSE(any_on("j", name_of(host))) << where("j");
  EXPECT_EQ(running_on("j").size(), kHosts - 1) << where("j");
  EXPECT_FALSE(houses[0]->nodes(name_of(host)).front().schedulable);
  EXPECT_EQ(houses[0]->log.count("host.without-copy node=" + name_of(host)), 1u);
  town.without_log = nullptr;
  work(5s);
  EXPECT_TRUE(houses[0]->nodes(name_of(host)).front().schedulable) << "it got its copy, and said that it has nothing";
  submit(on("k", name_of(host)));
  work(3s);
  EXPECT_EQ(running_on("k"), std::set<std::string>{name_of(host)});
}

// Who was away for long made room for another, and nobody tells it.
TEST_F(ManyHosts, WhoWasTakenOutOfTheLogAnswersAsAMember) {
  House& host = *houses[std::stoul(in_role("learner").begin()->substr(1)) - 1];
  town.kill(host);
  town.run_for(cluster::CouncilOptions{}.replace_after + 30s);
  ASSERT_TRUE(in_role("member").contains(name_of(host)));
  ++host.started.life;
  host.started.members.record.cluster_id = {0xc1, 0x57e2};
  host.start();
  town.run_for(10s);
  EXPECT_TRUE(host.status().ledger) << "the log may be on its way";
  town.run_for(10s);
  EXPECT_FALSE(host.status().ledger);
  EXPECT_FALSE(host.status().stale);
  EXPECT_EQ(host.nodes(name_of(host)).front().role, "member");
  submit(on("j", name_of(host)));
  work(3s);
  EXPECT_EQ(running_on("j"), std::set<std::string>{name_of(host)});
  EXPECT_TRUE(host.status().ledger);
}

TEST_F(ManyHosts, ANewCoordinatorGivesTheCopyThatTheOldOneOwed) {
  House& host = outside();
  town.without_log = &host;
  submit(on("j", name_of(host)));
  town.kill(*houses[0]);
  town.run_for(3s);
  town.without_log = nullptr;
  work(5s);
  EXPECT_EQ(running_on("j", 1), std::set<std::string>{name_of(host)});
}

}  // namespace
}  // namespace dtrain::node
