// What the ledger knows of checkpoints on several hosts.
#include <gtest/gtest.h>

#include "common/base/limits.h"
#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

class LedgerCheckpoints : public LedgerWorld {
 protected:
  static transfer::CheckpointInfo checkpoint(std::int64_t step, std::uint64_t place = 0) {
    transfer::CheckpointInfo info;
    info.path = "/c/ckpt-" + std::to_string(step);
    info.step = step;
    info.complete = true;
    info.digest = "d" + std::to_string(step);
    info.place = place;
    return info;
  }
  JobId running() {
    job::JobSpec spec = ps_job();
    spec.checkpoint = job::CheckpointSpec{};
    spec.checkpoint->dir = "/c";
    const JobId id = submit(spec);
    begin(id);
    return id;
  }
  void see(JobId id, const transfer::CheckpointInfo& info, CheckpointState state, const NodeId& host,
           std::optional<Generation> generation = {}) {
    apply(CommandType::checkpoint, CheckpointSeen{id, info, state, "", host, generation});
  }
  void again(JobId id, std::int64_t step) {
    act(id, ActionKind::restart);
    everything_ended(id);
    const std::string number = std::to_string(step);
    ASSERT_TRUE(begin(id, job::Restore{"/c/ckpt-" + number, step}, "d" + number).status);
  }
  std::vector<NodeId> hosts(JobId id, std::size_t record = 0) const {
    std::vector<NodeId> all;
    for (const auto& p : job(id).checkpoints.at(record).places) all.push_back(p.host);
    return all;
  }
  CheckpointState state(JobId id, std::size_t record = 0) const { return job(id).checkpoints.at(record).state; }
};

TEST_F(LedgerCheckpoints, EachHostThatHasOneIsNoted) {
  const JobId id = running();
  see(id, checkpoint(5), CheckpointState::complete, "n1");
  see(id, checkpoint(5), CheckpointState::verified, "n1");
  see(id, checkpoint(5), CheckpointState::complete, "n2");
  EXPECT_EQ(hosts(id), (std::vector<NodeId>{"n1", "n2"}));
  EXPECT_EQ(state(id), CheckpointState::verified) << "that n2 has it too takes nothing back";
  for (int i = 0; i < 20; ++i) see(id, checkpoint(5), CheckpointState::complete, "m" + std::to_string(i));
  EXPECT_EQ(hosts(id).size(), limits::kCheckpointPlaces);
}

TEST_F(LedgerCheckpoints, DamageIsOfTheFilesThatWereRead) {
  const JobId id = running();
  see(id, checkpoint(5, 11), CheckpointState::verified, "n1");
  see(id, checkpoint(5, 11), CheckpointState::complete, "n2");  // the same directory
  see(id, checkpoint(5, 12), CheckpointState::complete, "n3");
  see(id, checkpoint(5, 11), CheckpointState::damaged, "n2");
  EXPECT_EQ(hosts(id), std::vector<NodeId>{"n3"});
  EXPECT_EQ(state(id), CheckpointState::verified);
  see(id, checkpoint(5, 12), CheckpointState::quarantined, "n3");
  EXPECT_TRUE(hosts(id).empty());
  EXPECT_EQ(state(id), CheckpointState::quarantined);
}

TEST_F(LedgerCheckpoints, WhatIsOverwrittenIsNotThereAnyMore) {
  const JobId id = running();
  auto latest = checkpoint(5), next = checkpoint(6);
  latest.path = next.path = "/c/latest";
  see(id, latest, CheckpointState::verified, "n1");
  see(id, next, CheckpointState::complete, "n1");
  EXPECT_TRUE(hosts(id, 0).empty());
  EXPECT_EQ(state(id, 0), CheckpointState::deleted);
  EXPECT_EQ(hosts(id, 1), std::vector<NodeId>{"n1"});
}

TEST_F(LedgerCheckpoints, WhatLiesBeyondALaterRestorePointIsStale) {
  const JobId id = running();
  see(id, checkpoint(50), CheckpointState::verified, "n2");
  again(id, 30);
  EXPECT_TRUE(job(id).is_stale(1, 50));
  EXPECT_FALSE(job(id).is_stale(1, 30));
  EXPECT_FALSE(job(id).is_stale(2, 50));
  see(id, checkpoint(60), CheckpointState::complete, "n2", Generation{1});
  EXPECT_EQ(job(id).checkpoints.back().generation, 1u) << "it was there before";
  again(id, 70);
  EXPECT_TRUE(job(id).is_stale(1, 50)) << "of the second generation nothing is forgotten";
  EXPECT_EQ(job(id).lineage.size(), 3u);
  again(id, 20);
  EXPECT_EQ(job(id).lineage.size(), 2u) << "all beyond step 20 is stale anyway";
  EXPECT_TRUE(job(id).is_stale(3, 70));
}

TEST_F(LedgerCheckpoints, TheWaitForAHostCountsFromItsFirstWord) {
  const JobId id = running();
  apply(CommandType::waits, JobWaits{id, "its newest checkpoint is away", true});
  const Duration since = job(id).restore_waits_since.value();
  pass(5s);
  apply(CommandType::waits, JobWaits{id, "its newest checkpoint is still away", true});
  EXPECT_EQ(job(id).restore_waits_since, since);
  again(id, 30);
  EXPECT_FALSE(job(id).restore_waits_since);
}

// Records of an agent that knew of one host only.
TEST_F(LedgerCheckpoints, AVerdictWithoutAHostIsOfAll) {
  const JobId id = running();
  see(id, checkpoint(5), CheckpointState::verified, "");
  EXPECT_TRUE(hosts(id).empty());
  see(id, checkpoint(5), CheckpointState::damaged, "");
  EXPECT_EQ(state(id), CheckpointState::damaged);
}

}  // namespace
}  // namespace dtrain::cluster
