#include "common/node/cluster_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using wire::MessageType;

class ClusterMembersTest : public ::testing::Test {
 protected:
  // n1 founded the cluster, n2 joined it.
  void SetUp() override {
    n1 = &town.add("n1");
    n2 = &town.add("n2");
  }
  void start_both() {
    n1->start();
    n2->start();
    town.run_for(5s);
  }
  template <class T>
  static std::size_t first(const House& house) {
    const auto found =
        std::find_if(house.effects.begin(), house.effects.end(), [](const Effect& e) { return std::holds_alternative<T>(e); });
    return static_cast<std::size_t>(found - house.effects.begin());
  }
  Town town;
  House* n1 = nullptr;
  House* n2 = nullptr;
};

TEST_F(ClusterMembersTest, ANodeAloneWaitsForNothing) {
  n1->started.members.network = false;
  n1->started.members.found = false;
  n1->start();
  town.run_for(2s);  // its record is written
  EXPECT_EQ(n1->deadline(), kNever);
  const auto status = n1->status();
  EXPECT_EQ(status.nodes.alive, 1u);
  EXPECT_EQ(status.gpus.total, 2u);
  ASSERT_TRUE(status.coordinator);
  EXPECT_EQ(status.coordinator->node, "n1");
  EXPECT_EQ(n1->nodes().size(), 1u);
  EXPECT_EQ(n1->log.count("member.alive node=n1"), 1u);
}

TEST_F(ClusterMembersTest, AFounderWithANetworkAndNobodyThereWaitsForNothing) {
  n1->start();
  town.run_for(60s);
  EXPECT_EQ(n1->deadline(), kNever);
}

TEST_F(ClusterMembersTest, BothKnowBothAndWhoCoordinates) {
  start_both();
  for (House* house : {n1, n2}) {
    const auto status = house->status();
    EXPECT_EQ(status.nodes.alive, 2u);
    EXPECT_EQ(status.gpus.total, 4u);
    EXPECT_EQ(status.gpus.free, 4u);
    ASSERT_TRUE(status.coordinator);
    EXPECT_EQ(status.coordinator->node, "n1");
    EXPECT_EQ(status.coordinator->epoch, 2u);
    EXPECT_FALSE(status.stale);
    EXPECT_TRUE(status.ledger);
    EXPECT_EQ(status.cluster.id, (MemberId{0xc1, 0x57e2}.text()));
    EXPECT_EQ(house->log.count("member.alive node=n1"), 1u);
    EXPECT_EQ(house->log.count("member.alive node=n2"), 1u);
  }
  const auto nodes = n2->nodes("n1");
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].role, "coordinator");
  EXPECT_EQ(nodes[0].cpus.total_millis, 8000u);
  EXPECT_EQ(nodes[0].gpus.devices.size(), 2u);
  EXPECT_EQ(nodes[0].version, "9.9");
}

TEST_F(ClusterMembersTest, TheLinksKnowTheClusterAndTheMemberBeforeAnythingIsSent) {
  start_both();
  EXPECT_LT(first<EnterCluster>(*n1), first<gossip::Send>(*n1));
  EXPECT_LT(first<KnowMember>(*n1), first<gossip::Send>(*n1));
  EXPECT_LT(first<EnterCluster>(*n2), n2->effects.size());
}

TEST_F(ClusterMembersTest, MembershipBeginsWithTheNetwork) {
  House& n3 = town.add("n3");
  n3.started.members.network = true;
  auto started = n3.started;
  n3.started.members.network = false;
  Node node(n3.options, Rng(1), n3.log);
  std::vector<Effect> out;
  node.step(town.now, started, out);
  node.step(town.now, Gossiped{gossip::SeedsResolved{{{"10.0.0.1", 7400}}}}, out);
  EXPECT_THAT(out, IsEmpty());
  EXPECT_EQ(node.deadline(), kNever);
  node.step(town.now, NetworkUp{}, out);
  EXPECT_EQ(std::count_if(out.begin(), out.end(), [](const auto& e) { return std::holds_alternative<gossip::ResolveSeeds>(e); }), 1);
}

TEST_F(ClusterMembersTest, WhoWaitsSaysForWhatAndRefusesJobs) {
  n2->start();
  town.run_for(3s);
  const auto status = n2->status();
  EXPECT_THAT(status.waiting_for, HasSubstr("--join"));
  EXPECT_FALSE(status.coordinator);
  EXPECT_TRUE(status.stale);
  const auto refused = n2->ask<wire::JobsReply>(MessageType::query_jobs, wire::JobsRequest{});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("waits for the cluster of --join"));
}

TEST_F(ClusterMembersTest, AMemberAnswersAboutJobsByItsCopy) {
  start_both();
  EXPECT_FALSE(n2->ask<wire::JobDescription>(MessageType::query_status, wire::JobName{"digits"}));
  EXPECT_FALSE(n2->ask<wire::EventsReply>(MessageType::query_events, wire::EventsRequest{"digits", 0, false, 0}));
  EXPECT_EQ(n2->ask<wire::VersionReply>(MessageType::query_version, wire::Empty{})->node, "n2");
  for (House* house : {n1, n2}) EXPECT_TRUE(house->ask<wire::JobsReply>(MessageType::query_jobs, wire::JobsRequest{}));
}

TEST_F(ClusterMembersTest, AnUnknownNodeIsNotFound) {
  start_both();
  const auto missing = n2->ask<wire::NodesReply>(MessageType::query_nodes, wire::NodeName{"n11"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().next, HasSubstr("did you mean n1?"));
  EXPECT_EQ(n2->nodes(n1->started.facts.id).size(), 1u);  // by its id too
}

TEST_F(ClusterMembersTest, ChangedLabelsReachTheOthers) {
  start_both();
  n2->give(Reconfigured{{{"zone", "a"}}, "", {}});
  town.run_for(2s);
  EXPECT_EQ(n1->nodes("n2").at(0).labels.at("zone"), "a");
  EXPECT_EQ(n2->nodes("n2").at(0).labels.at("zone"), "a");
}

TEST_F(ClusterMembersTest, WhatIsTooLongToBeToldIsCut) {
  n2->started.facts.topology = "two packages";
  n2->started.facts.task_interface = "ib0";
  start_both();
  EXPECT_EQ(n1->nodes("n2").at(0).topology, "two packages");
  std::map<std::string, std::string> labels;
  for (int i = 0; i < 400; ++i) labels["label" + std::to_string(i)] = std::string(60, 'v');
  n2->give(Reconfigured{labels, "", {}});
  town.run_for(2s);
  const auto told = n1->nodes("n2").at(0);
  EXPECT_EQ(told.topology, "");
  EXPECT_THAT(told.labels, IsEmpty());
  EXPECT_EQ(told.gpus.total, 2u);
  EXPECT_EQ(n2->nodes("n2").at(0).labels, labels) << "of itself it knows all";
  EXPECT_EQ(n2->log.count("member.facts-cut left_out=topology, labels"), 1u);
}

TEST(HostFacts, AreCutNoFurtherThanNeeded) {
  HostFacts facts;
  facts.task_interface = "ib0";
  facts.topology = std::string(2048, 't');
  facts.labels = {{"rack", "r1"}};
  facts.gpus.resize(64);
  for (Gpu& g : facts.gpus) g.nics = {"mlx5_0"};
  for (Gpu& g : facts.gpus) g.model = std::string(96, 'm'), g.uuid = std::string(96, 'u');
  const auto size = wire::encode(facts).size();
  EXPECT_EQ(encode_within(facts, size).value, wire::encode(facts));
  EXPECT_EQ(encode_within(facts, size).left_out, "");
  const auto cut = [&](std::size_t most) {
    const CutFacts got = encode_within(facts, most);
    EXPECT_LE(got.value.size(), most);
    return got.left_out;
  };
  EXPECT_EQ(cut(size - 1), "topology");
  EXPECT_EQ(cut(size - 2048), "topology");
  EXPECT_EQ(cut(wire::kFactBytes), "topology, surroundings of GPUs, names of GPUs");
  EXPECT_EQ(cut(200), "topology, surroundings of GPUs, names of GPUs, labels, GPUs");
  const auto told = wire::decode<HostFacts>(encode_within(facts, wire::kFactBytes).value);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->gpus.size(), 64u);
  EXPECT_EQ(told->labels, facts.labels);
}

TEST_F(ClusterMembersTest, ANewKeyIsANewIdentity) {
  start_both();
  const auto key_of_n2_at_n1 = [&] {
    std::string key = "never told";
    for (const Effect& e : n1->effects)
      if (const auto* known = std::get_if<KnowMember>(&e); known && known->identity.name == "n2") key = known->identity.key_print;
    return key;
  };
  const auto before = n1->nodes("n2").at(0).incarnation;
  n2->give(Reconfigured{{}, "feedfacefeedface", {}});
  EXPECT_EQ(key_of_n2_at_n1(), "") << "the links know the old one";
  town.run_for(2s);
  EXPECT_EQ(key_of_n2_at_n1(), "feedfacefeedface");
  EXPECT_EQ(n1->nodes("n2").at(0).key_print, "feedfacefeedface");
  EXPECT_GT(n1->nodes("n2").at(0).incarnation, before);
}

TEST_F(ClusterMembersTest, FactsAreAnnouncedAtMostEveryPause) {
  start_both();
  const auto facts_sent = [&] {
    std::size_t n = 0;
    for (const Effect& e : n2->effects)
      if (const auto* send = std::get_if<gossip::Send>(&e))
        if (const auto* gossip = std::get_if<wire::Gossip>(&send->body))
          for (const auto& rumour : gossip->rumours) n += rumour.kind == wire::RumourKind::fact && rumour.subject.low == 2;
    return n;
  };
  const auto before = facts_sent();
  for (int i = 0; i < 50; ++i) {
    n2->give(Reconfigured{{{"n", std::to_string(i)}}, "", {}});
    town.run_for(1ms);
  }
  EXPECT_LE(facts_sent(), before + 4);
  town.run_for(2s);
  EXPECT_EQ(n1->nodes("n2").at(0).labels.at("n"), "49");
}

TEST_F(ClusterMembersTest, EventsStandInOrderAndGoOnWhereTheyWereLeft) {
  start_both();
  const auto events = n1->events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events[0].type, "council.elected");
  EXPECT_EQ(events[0].local, 0u);
  std::uint64_t seq = 0, local = 0;
  for (const auto& e : events) {
    EXPECT_GE(e.seq, seq);
    seq = e.seq;
    if (e.local == 0) continue;
    EXPECT_GT(e.local, local);
    local = e.local;
  }
  EXPECT_THAT(n1->events(seq, local), IsEmpty());
  EXPECT_EQ(n1->events(seq, local - 1).size(), 1u);
  const auto last = std::find_if(events.rbegin(), events.rend(), [](const auto& e) { return e.local != 0; });
  EXPECT_EQ(last->object, "n2");
  EXPECT_EQ(last->message.substr(0, 8), "node=n2 ");
}

TEST_F(ClusterMembersTest, EventsOfALaterLifeAreLater) {
  start_both();
  const auto before = n2->events();
  n2->started.life = 2;
  n2->started.members.record.cluster_id = {0xc1, 0x57e2};
  n2->start();
  town.run_for(2s);
  const auto after = n2->events(0, before.back().local);
  ASSERT_FALSE(after.empty());
  EXPECT_EQ(after.size(), n2->events().size());
  EXPECT_EQ(n1->log.count("member.restarted node=n2"), 1u);
}

TEST_F(ClusterMembersTest, StatusCountsWhatWasDropped) {
  start_both();
  auto membership = n1->status().membership;
  EXPECT_EQ(membership.drops.size(), wire::kDrops);
  EXPECT_EQ(membership.drops.at("other-cluster"), 0u);
  EXPECT_EQ(membership.health, 0u);
  for (const auto why : {wire::Drop::other_cluster, wire::Drop::other_cluster, wire::Drop::bad_body})
    n1->give(Gossiped{gossip::Dropped{why, "10.0.0.66"}});
  wire::Rumour suspect;
  suspect.kind = wire::RumourKind::suspect;
  suspect.subject = {0x1001, 1};
  suspect.from = {0x1002, 2};
  suspect.incarnation = n1->nodes("n1").at(0).incarnation;
  wire::PeerHeader header;
  header.cluster = {0xc1, 0x57e2};
  header.sender = {0x1002, 2};
  header.incarnation = n1->nodes("n2").at(0).incarnation;
  n1->give(Gossiped{gossip::Received{header, wire::Gossip{{suspect}}, 2, "10.0.0.2"}});
  membership = n1->status().membership;
  EXPECT_EQ(membership.drops.at("other-cluster"), 2u);
  EXPECT_EQ(membership.drops.at("bad-body"), 1u);
  EXPECT_EQ(membership.refutes, 1u);
}

TEST_F(ClusterMembersTest, FollowersAreToldOfMembers) {
  n1->start();
  (void)n1->ask<wire::EventsReply>(MessageType::query_events, wire::EventsRequest{"", 0, true, 0});
  const std::uint64_t request = n1->answers.rbegin()->first;
  n2->start();
  town.run_for(3s);
  const auto told = wire::decode<wire::EventsReply>(n1->answers[request].payload);
  ASSERT_TRUE(told && !told->events.empty());
  EXPECT_EQ(told->events.back().object, "n2");
}

TEST_F(ClusterMembersTest, TheEventsKeptAreBounded) {
  start_both();
  for (std::uint32_t life = 2; life < kLocalEvents / 2 + 20; ++life) {
    wire::Rumour alive;
    alive.subject = {9, 9};
    alive.incarnation = std::uint64_t{life} << 20;
    wire::Identity other;
    other.id = {9, 9};
    other.name = "n9";
    other.address = {"10.0.0.9", 7400};
    other.boot_id = "boot-9";
    other.life = life;
    alive.identity = std::make_shared<const wire::Identity>(other);
    wire::PeerHeader header;
    header.cluster = {0xc1, 0x57e2};
    header.sender = {0x1002, 2};
    header.incarnation = 1 << 20;
    n1->give(Gossiped{gossip::Received{header, wire::Gossip{{alive}}, 2, "10.0.0.2"}});
  }
  EXPECT_GE(n1->log.count("member.restarted node=n9"), kLocalEvents / 2);
  const auto events = n1->events();
  EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const auto& e) { return e.local != 0; }),
            static_cast<std::ptrdiff_t>(kLocalEvents));
}

// ---------------------------------------------------------------- leaving

TEST_F(ClusterMembersTest, LeaveIsAnsweredWhenItIsDurable) {
  start_both();
  n2->hold_saves = true;
  EXPECT_FALSE(n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}));
  ASSERT_FALSE(n2->unsaved.empty());
  const auto record = gossip::MemberRecord::decode(n2->unsaved.back().record);
  ASSERT_TRUE(record);
  EXPECT_TRUE(record->left);
  const std::uint64_t request = n2->unsaved.empty() ? 0 : 1;
  EXPECT_EQ(n2->answers.count(request), 0u);
  n2->give(MembersSaved{n2->unsaved.back().ticket, {}});
  EXPECT_EQ(n2->answers[request].type, MessageType::ok);
  town.run_for(2s);
  EXPECT_EQ(n1->status().nodes.left, 1u);
  EXPECT_THAT(n2->status().waiting_for, HasSubstr("left its cluster for good"));
  EXPECT_TRUE(n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}));  // again
}

TEST_F(ClusterMembersTest, LeaveThatCannotBeWrittenIsAnErrorAndIsTriedAgain) {
  start_both();
  n2->hold_saves = true;
  EXPECT_FALSE(n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}));
  n2->give(MembersSaved{n2->unsaved.back().ticket, fail(ErrorCode::limit, "could not write members: no space")});
  EXPECT_EQ(n2->answers[1].type, MessageType::error);
  const std::size_t failed = n2->unsaved.size();
  EXPECT_FALSE(n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{})) << "nothing is durable yet";
  ASSERT_EQ(n2->unsaved.size(), failed + 1);
  EXPECT_EQ(n2->unsaved.back().record, n2->unsaved[failed - 1].record);
  EXPECT_FALSE(n2->answers.contains(2));
  n2->give(MembersSaved{n2->unsaved.back().ticket, {}});
  EXPECT_EQ(n2->answers[2].type, MessageType::ok);
  EXPECT_TRUE(n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}));
  EXPECT_EQ(n2->unsaved.size(), failed + 1) << "it is durable";
}

TEST_F(ClusterMembersTest, ARecordThatCouldNotBeWrittenIsTriedAgainEveryMinute) {
  start_both();
  n2->hold_saves = true;
  EXPECT_FALSE(n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}));
  for (std::size_t tries = n2->unsaved.size(); tries < 4; ++tries) {
    n2->give(MembersSaved{n2->unsaved.back().ticket, fail(ErrorCode::limit, "no space")});
    EXPECT_EQ(n2->deadline(), town.now.boot + kSaveRetry);
    town.run_for(kSaveRetry - 1ms);
    EXPECT_EQ(n2->unsaved.size(), tries);
    town.run_for(2ms);
    ASSERT_EQ(n2->unsaved.size(), tries + 1);
  }
  EXPECT_GE(n2->log.count("members.not-saved"), 2u);
  n2->give(MembersSaved{n2->unsaved.back().ticket, {}});
  EXPECT_EQ(n2->deadline(), kNever);
}

TEST_F(ClusterMembersTest, AFailedWriteThatANewerOneFollowsIsNotTriedAgain) {
  start_both();
  n2->hold_saves = true;
  EXPECT_FALSE(n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}));
  EXPECT_FALSE(n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}));
  ASSERT_GE(n2->unsaved.size(), 2u);
  n2->give(MembersSaved{n2->unsaved.back().ticket - 1, fail(ErrorCode::limit, "no space")});
  EXPECT_EQ(n2->answers[1].type, MessageType::error);
  EXPECT_EQ(n2->deadline(), kNever);
}

TEST_F(ClusterMembersTest, WhoLeftSaysHowToJoinAgain) {
  start_both();
  ASSERT_TRUE(n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}));
  const auto refused = n2->ask<wire::JobsReply>(MessageType::query_jobs, wire::JobsRequest{});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::refused);
  EXPECT_EQ(refused.error().message, "could not show jobs: n2 has left its cluster");
  EXPECT_EQ(refused.error().next, "stop the agent, remove the file members of its data directory, start it with --join HOST");
}

TEST_F(ClusterMembersTest, WhoLeftInAnEarlierLifeHasNothingToWrite) {
  n2->started.life = 2;
  n2->started.members.record.cluster_id = {0xc1, 0x57e2};
  n2->started.members.record.left = true;
  n2->hold_saves = true;
  n2->start();
  EXPECT_TRUE(n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}));
  EXPECT_THAT(n2->unsaved, IsEmpty());
}

TEST_F(ClusterMembersTest, WhoWaitsHasNothingToLeave) {
  n2->start();
  const auto refused = n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "could not leave the cluster: n2 belongs to none; it waits for the cluster of --join to admit "
            "this node");
  EXPECT_EQ(refused.error().next, "nothing is to be left: stop the agent");
}

TEST_F(ClusterMembersTest, WhoMayNotLeave) {
  start_both();
  n2->options.agent_uid = 0;
  EXPECT_EQ(n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{}, 1000).error().code, ErrorCode::refused);
  EXPECT_EQ(n1->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{"n2"}).error().code, ErrorCode::refused);
  EXPECT_EQ(n1->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{"n7"}).error().code, ErrorCode::not_found);
  EXPECT_EQ(n1->status().nodes.alive, 2u);
}

TEST_F(ClusterMembersTest, AStoppedMemberIsDownAndCanBeForgotten) {
  start_both();
  n2->give(Stopping{});
  town.run_for(100ms);
  ASSERT_EQ(n1->status().nodes.down, 1u);
  EXPECT_TRUE(n1->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{"n2"}));
  EXPECT_EQ(n1->status().nodes.left, 1u);
  EXPECT_EQ(n1->nodes("n2").at(0).state, "left");
}

TEST_F(ClusterMembersTest, TheLedgersNodeIsNotForgotten) {
  start_both();
  n1->give(Stopping{});
  town.kill(*n1);
  town.run_for(100ms);
  const auto refused = n2->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{"n1"});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("holds the cluster's ledger"));
  const auto status = n2->status();
  EXPECT_FALSE(status.coordinator);
  EXPECT_THAT(status.quorum.voters, ElementsAre("n1"));
  EXPECT_TRUE(status.stale);
}

}  // namespace
}  // namespace dtrain::node
