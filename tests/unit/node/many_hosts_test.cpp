// More hosts than have a copy of the log while nothing is to be done: who is given tasks gets one.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "common/cluster/council.h"
#include "common/node/host_capacities.h"
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

// The log does not reach it any more, but it is told by gossip that others go on. What runs there is asked of it alone.
TEST_F(ManyHosts, WhoWasLetGoByTheLogLeavesNoTasksBehind) {
  House& host = outside();
  submit(on("j", name_of(host)));
  work(2s);
  ASSERT_EQ(running_on("j"), std::set<std::string>{name_of(host)});
  town.without_log = &host;
  work(20s);
  ASSERT_FALSE(host.status().ledger);
  const auto refused = ask<wire::Empty>(host, wire::MessageType::leave, wire::LeaveRequest{});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "could not leave the cluster: tasks of job j run on " + name_of(host));
  town.without_log = nullptr;
  wire::ActionRequest cancel;
  cancel.job = "j";
  cancel.action = wire::Action::cancel;
  ASSERT_TRUE(ask<wire::Empty>(*houses[0], wire::MessageType::action, cancel, 1000));
  work(5s);
  EXPECT_TRUE(ask<wire::Empty>(host, wire::MessageType::leave, wire::LeaveRequest{}));
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

// The log has room for so many copies beside the voters', whoever they are.
TEST(ManyCopies, AreCountedBeforeAJobBegins) {
  raft::Configuration configuration;
  for (std::uint64_t v = 1; v <= 5; ++v) configuration.voters.push_back({1, v});
  std::set<NodeId> busy;
  std::vector<cluster::TaskPlacement> placements;
  for (std::uint64_t host = 1; host <= 5 + 200; ++host) busy.insert(MemberId{1, host}.text());
  EXPECT_EQ(copies_needed(configuration, busy), 200u);
  for (std::uint64_t host = 100; host <= 5 + wire::kMostLearners; ++host) {
    placements.emplace_back();
    placements.back().node = MemberId{1, host}.text();
  }
  EXPECT_EQ(too_wide(configuration, busy, placements), "");
  placements.emplace_back();
  placements.back().node = MemberId{1, 1000}.text();
  EXPECT_EQ(too_wide(configuration, busy, placements),
            "with it 251 hosts beside the voters would have tasks, and the log has room for copies on 250: ask for fewer and larger "
            "tasks, or for placement: pack");
  for (std::uint64_t host = 1001; host <= 1300; ++host) busy.insert(MemberId{1, host}.text());
  placements.resize(1);
  EXPECT_EQ(too_wide(configuration, busy, placements), "") << "its host has tasks already";
}

class SnapshotsForMany : public WorkingTown {
 protected:
  SnapshotsForMany() : WorkingTown(10) {}
  std::size_t chunks_to(const House& house) {
    return static_cast<std::size_t>(std::ranges::count_if(houses[0]->effects, [&](const Effect& effect) {
      const auto* send = std::get_if<SendLog>(&effect);
      const auto* raft = send == nullptr || send->to != house.address() ? nullptr : std::get_if<wire::RaftMessage>(&send->message);
      return raft != nullptr && std::holds_alternative<wire::SnapshotChunk>(raft->body);
    }));
  }
};

// More than are sent a snapshot at one time, and each takes nearly as long as a host may be without its copy.
TEST_F(SnapshotsForMany, WhoWaitsForItsTurnIsNotGivenUp) {
  const std::size_t hosts = kStanding + raft::RaftOptions{}.snapshots_under_way + 3;
  grow(hosts);
  town.run_for(15s);
  // What a newcomer needs is in the snapshot alone: the log before it is larger than what is kept.
  for (int i = 0; i < 12; ++i) {
    job::JobSpec large = generic("large" + std::to_string(i), 1);
    large.suspend = true;
    large.roles["worker"].command.resize(8, std::string(100 << 10, 'x'));
    submit(large);
    wire::ActionRequest remove;
    remove.job = large.name;
    remove.action = wire::Action::remove;
    remove.force = true;
    ASSERT_TRUE(ask<wire::Empty>(*houses[0], wire::MessageType::action, remove, 1000));
  }
  town.chunks = 45s;
  submit(generic("wide", static_cast<std::uint32_t>(hosts)));
  work(30s);
  std::vector<std::string> waiting;
  for (House* house : houses)
    if (!house->status().ledger && chunks_to(*house) == 0) waiting.push_back(house->started.facts.name);
  EXPECT_EQ(waiting.size(), 3u);
  work(75s);
  const std::map<std::string, wire::TaskView> views = tasks("wide");
  for (const std::string& name : waiting) {
    EXPECT_EQ(houses[0]->log.count("host.without-copy node=" + name), 0u);
    EXPECT_TRUE(std::ranges::any_of(views, [&](const auto& v) { return v.second.node == name && v.second.state == "Running"; })) << name;
  }
}

}  // namespace
}  // namespace dtrain::node
