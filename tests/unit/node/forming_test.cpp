// Whole nodes that begin a cluster together: in any order, late, killed in between, without their disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/node/forming.h"
#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using wire::MessageType;

class FormingTest : public ::testing::Test {
 protected:
  void add(std::size_t count) {
    std::vector<std::string> names;
    for (std::size_t i = 1; i <= count; ++i) {
      houses.push_back(&town.add("n" + std::to_string(i)));
      names.push_back("10.0.0." + std::to_string(i));
    }
    for (House* house : houses) {
      MemberStart& members = house->started.members;
      members.found = members.holds_ledger = false;
      members.new_cluster_id = {};
      members.seeds = members.founders = names;
      members.founder = members.endpoint.ip;
      members.waiting_for = "the other founders";
    }
  }
  // The next life: with what was written.
  void start_again(House& house) {
    ++house.started.life;
    for (const Effect& effect : house.effects)
      if (const auto* save = std::get_if<SaveMembers>(&effect)) house.started.members.record = *gossip::MemberRecord::decode(save->record);
    house.effects.clear();
    house.start();
  }
  // The machine is new: nothing is left but its name and address.
  void start_without_its_disk(House& house) {
    const MemberId id{0x2000 + house.started.life, 0x77};
    house.started.facts.id = id.text();
    house.started.members.formation = {};
    house.started.members.record = {};
    house.disk = {};
    house.effects.clear();
    ++house.started.life;
    house.start();
  }
  bool formed() {
    std::set<std::string> clusters;
    for (House* house : houses) {
      if (!house->runs()) return false;
      const auto status = house->status();
      if (!status.coordinator || status.nodes.alive != houses.size() || status.stale) return false;
      clusters.insert(status.cluster.id);
    }
    return clusters.size() == 1 && !clusters.contains("");
  }
  ::testing::AssertionResult forms_within(Duration patience) {
    for (Duration waited{}; waited < patience; waited += 50ms, town.run_for(50ms))
      if (formed()) return ::testing::AssertionSuccess();
    std::string what = "no cluster of all;";
    for (House* house : houses)
      if (house->runs()) {
        const auto status = house->status();
        what += " " + house->started.facts.name + ": " + status.cluster.id.substr(0, 8) + " alive " + std::to_string(status.nodes.alive) +
                " waits for '" + status.waiting_for + "'";
      }
    return ::testing::AssertionFailure() << what;
  }
  void expect_one_cluster() {
    std::set<std::string> clusters;
    for (House* house : houses)
      if (house->runs() && !house->status().cluster.id.empty()) clusters.insert(house->status().cluster.id);
    EXPECT_LE(clusters.size(), 1u);
  }
  Result<wire::Empty> form_without(House& house, std::vector<std::string> names, std::uint32_t uid = 0) {
    return house.ask<wire::Empty>(MessageType::form, wire::FormRequest{std::move(names)}, uid);
  }

  Town town;
  std::vector<House*> houses;
};

TEST_F(FormingTest, ThreeFormOneClusterWithAllOfThemAsVoters) {
  add(3);
  for (House* house : houses) house->start();
  ASSERT_TRUE(forms_within(10s));
  for (House* house : houses) {
    const auto status = house->status();
    EXPECT_EQ(status.quorum.voters, (std::vector<std::string>{"n1", "n2", "n3"}));
    EXPECT_EQ(status.waiting_for, "");
    EXPECT_EQ(house->log.count("cluster.founded"), 1u);
    EXPECT_EQ(house->log.count("cluster.joined"), 0u) << "nobody needed to be admitted";
  }
}

TEST_F(FormingTest, TwoFormACouncilOfOneWithALearner) {
  add(2);
  for (House* house : houses) house->start();
  ASSERT_TRUE(forms_within(10s));
  EXPECT_EQ(houses[1]->status().quorum.voters, (std::vector<std::string>{"n1"}));
  EXPECT_TRUE(houses[1]->status().ledger);
}

TEST_F(FormingTest, NothingBeginsBeforeAllAreThereAndStatusNamesWhoIsMissing) {
  add(3);
  houses[0]->start();
  houses[2]->start();
  town.run_for(30s);
  for (House* house : {houses[0], houses[2]}) {
    const auto status = house->status();
    EXPECT_EQ(status.cluster.id, "");
    EXPECT_THAT(status.waiting_for, HasSubstr("waits for 10.0.0.2, not reachable of 3 founders"));
    EXPECT_EQ(house->log.count("cluster.founded"), 0u);
    EXPECT_THAT(house->log.lines, ::testing::Contains(HasSubstr("formation.waits reason=waits for 10.0.0.2")));
    const auto refused = house->ask<wire::JobsReply>(MessageType::query_jobs, wire::JobsRequest{});
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().text(), HasSubstr("belongs to no cluster; it waits for the cluster to be formed"));
  }
  houses[1]->start();
  ASSERT_TRUE(forms_within(10s));
}

TEST_F(FormingTest, ClustersOfDifferentNamesAreNotBegunTogether) {
  add(2);
  houses[1]->options.cluster_name = "other";
  for (House* house : houses) house->start();
  town.run_for(10s);
  for (House* house : houses) EXPECT_EQ(house->status().cluster.id, "");
  EXPECT_THAT(houses[0]->status().waiting_for,
              HasSubstr("another machine names the founders other: 10.0.0.1,10.0.0.2, this one 10.0.0.1,10.0.0.2"));
}

// Each is killed at each moment of the forming, which begins when all have asked a second time; and comes back.
TEST_F(FormingTest, WhoeverIsKilledInBetweenGoesOn) {
  std::size_t bound = 0, begun = 0;
  for (std::size_t victim = 0; victim < 3; ++victim)
    for (int at = 495; at < 535; ++at) {
      houses.clear();
      town = Town();
      town.seed = victim * 1000 + static_cast<std::uint64_t>(at);
      town.disk = 3ms;
      town.travel = 2ms;
      add(3);
      for (House* house : houses) house->start();
      town.run_for(std::chrono::milliseconds(at));
      town.kill(*houses[victim]);
      bound += houses[victim]->started.members.formation.promise.none() ? 0 : 1;
      begun += houses[victim]->started.members.formation.started ? 1 : 0;
      town.run_for(3s);
      expect_one_cluster();
      start_again(*houses[victim]);
      ASSERT_TRUE(forms_within(20s)) << "n" << victim + 1 << " killed after " << at << " ms";
      expect_one_cluster();
    }
  EXPECT_LT(bound, 120u) << "nobody was killed without a promise: the test is too late";
  EXPECT_GT(bound, begun) << "nobody was killed with a promise alone";
  EXPECT_GT(begun, 0u) << "nobody was killed with a log: the test is too early";
}

TEST_F(FormingTest, WhoLostItsDiskIsAdmittedToWhatTheOthersFormed) {
  add(3);
  for (House* house : houses) house->start();
  ASSERT_TRUE(forms_within(10s));
  const std::string cluster = houses[0]->status().cluster.id;
  town.kill(*houses[2]);
  town.run_for(1s);
  start_without_its_disk(*houses[2]);
  ASSERT_TRUE(forms_within(30s));
  EXPECT_EQ(houses[2]->status().cluster.id, cluster);
  EXPECT_EQ(houses[2]->log.count("cluster.founded"), 1u) << "of its first life";
  EXPECT_EQ(houses[2]->log.count("cluster.joined"), 1u);
}

TEST_F(FormingTest, AFounderWithoutItsDiskBeforeAnybodyBeganBreaksTheFoundingAndAllFormAnother) {
  add(3);
  town.travel = 2ms;
  town.disk = 3ms;
  for (House* house : houses) house->start();
  // n1 proposes; n3 is lost the moment it has promised.
  while (houses[2]->started.members.formation.promise.none()) town.run_for(1ms);
  ASSERT_FALSE(houses[0]->started.members.formation.started);
  town.kill(*houses[2]);
  town.run_for(1s);
  start_without_its_disk(*houses[2]);
  ASSERT_TRUE(forms_within(30s));
}

TEST_F(FormingTest, WithoutOneThatWillNotCome) {
  add(3);
  houses[0]->start();
  houses[1]->start();
  town.run_for(5s);
  EXPECT_EQ(form_without(*houses[0], {"10.0.0.3"}, 1000).error().code, ErrorCode::refused) << "not everybody may";
  EXPECT_EQ(form_without(*houses[0], {"10.0.0.9"}).error().code, ErrorCode::not_found);
  EXPECT_EQ(form_without(*houses[0], {"10.0.0.2"}).error().code, ErrorCode::refused) << "it is there";
  ASSERT_TRUE(form_without(*houses[0], {"10.0.0.3:7400"}));
  for (Duration waited{}; waited < 10s && !houses[1]->status().coordinator; waited += 100ms) town.run_for(100ms);
  EXPECT_TRUE(houses[0]->status().coordinator);
  EXPECT_TRUE(houses[1]->status().coordinator);
  expect_one_cluster();
  houses[2]->start();
  ASSERT_TRUE(forms_within(30s));
}

// It alone has begun when it is cut off; the others do without it. When it returns it gives its log up.
TEST_F(FormingTest, WhoBeganAloneGivesItUpForTheOthersCluster) {
  add(3);
  town.travel = 2ms;
  town.disk = 3ms;
  for (House* house : houses) house->start();
  while (!houses[0]->started.members.formation.started) town.run_for(1ms);
  ASSERT_FALSE(houses[1]->started.members.formation.started);
  const MemberId first = houses[0]->started.members.formation.promise.cluster;
  town.kill(*houses[0]);
  ASSERT_FALSE(houses[1]->started.members.formation.started || houses[2]->started.members.formation.started);
  town.run_for(5s);
  ASSERT_TRUE(form_without(*houses[1], {"10.0.0.1"}));
  for (Duration waited{}; waited < 20s && !houses[2]->status().coordinator; waited += 100ms) town.run_for(100ms);
  ASSERT_TRUE(houses[2]->status().coordinator);
  const std::string cluster = houses[2]->status().cluster.id;
  EXPECT_NE(cluster, first.text());
  start_again(*houses[0]);
  ASSERT_TRUE(forms_within(40s));
  EXPECT_EQ(houses[0]->status().cluster.id, cluster);
  EXPECT_EQ(houses[0]->log.count("cluster.abandoned"), 1u);
  // And what it has written does not bring the first back.
  town.kill(*houses[0]);
  town.run_for(1s);
  start_again(*houses[0]);
  ASSERT_TRUE(forms_within(30s));
  EXPECT_EQ(houses[0]->status().cluster.id, cluster);
}

TEST_F(FormingTest, WhoBelongsToAClusterAlreadyTakesTheOthersIn) {
  add(3);
  House& old = *houses[1];
  old.started.members.found = old.started.members.holds_ledger = true;
  old.started.members.new_cluster_id = {0xc1, 0x57e2};
  for (House* house : houses) house->start();
  ASSERT_TRUE(forms_within(30s));
  for (House* house : houses) EXPECT_EQ(house->status().cluster.id, (MemberId{0xc1, 0x57e2}).text());
}

// A log that may never work: whoever was admitted to its cluster would be alone.
TEST_F(FormingTest, AnUnprovenClusterAdmitsNobody) {
  add(3);
  town.travel = 2ms;
  town.disk = 3ms;
  for (House* house : houses) house->start();
  while (!houses[0]->started.members.formation.started) town.run_for(1ms);
  town.kill(*houses[1]);
  town.kill(*houses[2]);
  House& stranger = town.add("n4");
  stranger.start();
  town.run_for(10s);
  EXPECT_EQ(stranger.status().cluster.id, "");
  houses[1]->effects.clear();
  start_again(*houses[1]);
  start_again(*houses[2]);
  for (Duration waited{}; waited < 30s && stranger.status().cluster.id.empty(); waited += 100ms) town.run_for(100ms);
  EXPECT_EQ(stranger.status().cluster.id, houses[0]->status().cluster.id);
}

TEST_F(FormingTest, ARestartWithTheSameFlagsChangesNothing) {
  add(3);
  for (House* house : houses) house->start();
  ASSERT_TRUE(forms_within(10s));
  const std::string cluster = houses[0]->status().cluster.id;
  for (House* house : houses) town.kill(*house);
  town.run_for(5s);
  for (House* house : houses) start_again(*house);
  ASSERT_TRUE(forms_within(20s));
  EXPECT_EQ(houses[0]->status().cluster.id, cluster);
  // The record of members was lost: the log's own says where this node belongs.
  town.kill(*houses[2]);
  houses[2]->effects.clear();
  houses[2]->started.members.record = {};
  start_again(*houses[2]);
  ASSERT_TRUE(forms_within(20s));
  EXPECT_EQ(houses[2]->status().cluster.id, cluster);
}

}  // namespace
}  // namespace dtrain::node
