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
    all(id, TaskState::staged);
    return id;
  }
  void see(JobId id, const transfer::CheckpointInfo& info, CheckpointState state, const NodeId& host,
           std::optional<Generation> generation = {}) {
    apply(CommandType::checkpoint, CheckpointSeen{id, info, state, "", host, generation});
  }
  void again(JobId id, std::int64_t step, bool begins = true) {
    act(id, ActionKind::restart);
    everything_ended(id);
    const std::string number = std::to_string(step);
    ASSERT_TRUE(begin(id, job::Restore{"/c/ckpt-" + number, step}, "d" + number).status);
    if (begins) all(id, TaskState::staged);
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

TEST_F(LedgerCheckpoints, FilesThatNobodyRecognisesAreSaidOnce) {
  const JobId id = running();
  const auto said = [&] {
    return std::ranges::count_if(ledger_.events(), [](const LedgerEvent& e) { return e.type == "checkpoint.unrecognised"; });
  };
  for (const char* text : {"3 files such as a.pt", "4 files such as a.pt"})
    apply(CommandType::checkpoint, CheckpointSeen{id, {}, CheckpointState::deleted, "", "n1", {}, text});
  EXPECT_EQ(job(id).unrecognised, "3 files such as a.pt");
  EXPECT_EQ(said(), 1);
  EXPECT_TRUE(job(id).checkpoints.empty()) << "they are no checkpoint";
  EXPECT_FALSE(job(id).committed_once);
}

// A job that never had a whole one begins from scratch again, and does not wait for a person: a rule of version 3.
TEST_F(LedgerCheckpoints, AFirstSaveThatWasBrokenOffIsNoCommit) {
  auto unfinished = checkpoint(5);
  unfinished.complete = false;
  unfinished.digest.clear();
  const JobId older = running();
  see(older, unfinished, CheckpointState::damaged, "n1");
  EXPECT_TRUE(job(older).committed_once);

  apply(CommandType::raise_version, RaiseVersion{3});
  job::JobSpec spec = ps_job();
  spec.name = "newer";
  spec.checkpoint = job::CheckpointSpec{};
  spec.checkpoint->dir = "/c";
  const JobId newer = submit(spec);
  begin(newer);
  see(newer, unfinished, CheckpointState::damaged, "n1");
  EXPECT_FALSE(job(newer).committed_once);
  see(newer, checkpoint(6), CheckpointState::damaged, "n1");
  EXPECT_TRUE(job(newer).committed_once) << "its table of contents was read";
}

TEST_F(LedgerCheckpoints, WhatWasSetAsideStaysKnownAsThat) {
  const JobId id = running();
  see(id, checkpoint(5), CheckpointState::complete, "n1");
  see(id, checkpoint(5), CheckpointState::quarantined, "n1");
  see(id, checkpoint(5), CheckpointState::deleted, "n1");
  EXPECT_EQ(state(id), CheckpointState::quarantined);
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

// What it was to restore says nothing of what there is: that may have become known since.
TEST_F(LedgerCheckpoints, AGenerationThatNeverBeganLeftNothingBehind) {
  const JobId id = running();
  see(id, checkpoint(50), CheckpointState::verified, "n2");
  again(id, 40);
  again(id, 30, false);
  EXPECT_TRUE(job(id).unbegun);
  EXPECT_TRUE(job(id).is_stale(1, 35)) << "as long as it may begin";
  again(id, 60);
  EXPECT_FALSE(job(id).unbegun);
  EXPECT_FALSE(job(id).is_stale(1, 35));
  EXPECT_TRUE(job(id).is_stale(1, 50)) << "the second generation began from step 40";
}

TEST_F(LedgerCheckpoints, WhoAskedForScratchHasItThoughTheFirstTryNeverBegan) {
  const JobId id = running();
  see(id, checkpoint(50), CheckpointState::verified, "n2");
  act(id, ActionKind::restart, [](JobAction& a) { a.from_scratch = true; });
  everything_ended(id);
  ASSERT_TRUE(begin(id).status);
  EXPECT_FALSE(job(id).unbegun);
  EXPECT_TRUE(job(id).is_stale(1, 50));
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

TEST_F(LedgerCheckpoints, TheWaitForAHostBeginsAnewOnceItWasBack) {
  const JobId id = running();
  see(id, checkpoint(5), CheckpointState::verified, "n2");
  apply(CommandType::host_lost, HostLost{"n2", "n2", false, 0});
  const std::uint64_t lost = ledger_.state().lost.at("n2").index;
  apply(CommandType::waits, JobWaits{id, "its newest checkpoint is away", true});
  ASSERT_TRUE(job(id).restore_waits_since);
  apply(CommandType::report, HostReport{"n2", {}, 0, 0, "n2", lost});
  EXPECT_FALSE(job(id).restore_waits_since);
  apply(CommandType::waits, JobWaits{id, "its newest checkpoint is away again", true});
  EXPECT_TRUE(job(id).restore_waits_since);
  act(id, ActionKind::suspend);
  everything_ended(id);
  act(id, ActionKind::resume);
  EXPECT_FALSE(job(id).restore_waits_since) << "a new run";
}

// What it begins from is of no generation of its own: where none of its own is left, it begins from that again.
TEST_F(LedgerCheckpoints, TheOneThatTheJobFileNamesIsNotItsOwn) {
  const JobId id = running();
  auto base = checkpoint(900);
  base.path = "/models/base";
  see(id, base, CheckpointState::verified, "n1");
  EXPECT_FALSE(job(id).committed_once);
  see(id, checkpoint(5), CheckpointState::complete, "n1");
  EXPECT_TRUE(job(id).committed_once);
}

// Else a failure before the first commit of the new run blocked the job: what it gave up was to be restored.
TEST_F(LedgerCheckpoints, FromScratchNothingIsCommittedYet) {
  const JobId id = running();
  see(id, checkpoint(5), CheckpointState::verified, "n1", 1);
  ASSERT_TRUE(job(id).committed_once);
  act(id, ActionKind::restart, [](JobAction& a) { a.from_scratch = true; });
  everything_ended(id);
  ASSERT_TRUE(begin(id).status);
  EXPECT_FALSE(job(id).committed_once);
  see(id, checkpoint(5), CheckpointState::complete, "n2", 1);
  EXPECT_FALSE(job(id).committed_once) << "of the branch that was left behind";
  see(id, checkpoint(7), CheckpointState::complete, "n1", 2);
  EXPECT_TRUE(job(id).committed_once);
}

TEST_F(LedgerCheckpoints, WhatTasksReadIsNotForgotten) {
  const JobId id = running();
  see(id, checkpoint(1), CheckpointState::verified, "n1");
  see(id, checkpoint(2), CheckpointState::verified, "n1");
  see(id, checkpoint(3), CheckpointState::verified, "n1");
  see(id, checkpoint(3), CheckpointState::quarantined, "n1");
  again(id, 1);  // what is beyond is left behind
  for (std::int64_t step = 10; job(id).checkpoints.size() < limits::kCheckpointsPerJob; ++step)
    see(id, checkpoint(step), CheckpointState::verified, "n1");
  const auto steps = [&] {
    std::vector<std::int64_t> all;
    for (const auto& r : job(id).checkpoints) all.push_back(r.info.step);
    all.resize(3);
    return all;
  };
  see(id, checkpoint(1001), CheckpointState::verified, "n1");
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 10})) << "the one that was set aside went";
  see(id, checkpoint(1002), CheckpointState::verified, "n1");
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 10, 11})) << "the one that was left behind went";
  see(id, checkpoint(1003), CheckpointState::verified, "n1");
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 11, 12})) << "the oldest but the one that tasks read went";
}

TEST_F(LedgerCheckpoints, HostsOfTheNewestGenerationAreAllRemembered) {
  job::JobSpec spec = generic_job(limits::kHostsOfJob + 36);
  spec.checkpoint.emplace().dir = "/c";
  const JobId id = submit(spec);
  const auto begin_on = [&](std::uint32_t hosts) {
    BeginGeneration b;
    b.job = id;
    b.generation = job(id).generation + 1;
    for (std::uint32_t i = 0; i < spec.roles["worker"].replicas; ++i)
      b.placements.push_back({{"worker", i}, "h" + std::to_string(i % hosts), {"127.0.0.1", next_port_++}, {}});
    ASSERT_TRUE(apply(CommandType::begin_generation, b).status);
  };
  ASSERT_NO_FATAL_FAILURE(begin_on(limits::kHostsOfJob + 36));
  EXPECT_EQ(job(id).ran.size(), limits::kHostsOfJob + 36);
  act(id, ActionKind::restart);
  std::map<NodeId, std::vector<TaskObservation>> ended;
  for (const auto& [task, t] : job(id).tasks) {
    auto o = seen(id, task, TaskState::stopping);
    o.ended = o.on_request = true;
    ended[t.place.node].push_back(o);
  }
  for (auto& [host, tasks] : ended) apply(CommandType::report, HostReport{host, tasks, 0, 0, ""});
  ASSERT_NO_FATAL_FAILURE(begin_on(2));
  EXPECT_EQ(job(id).ran.size(), limits::kHostsOfJob);
  EXPECT_EQ(job(id).ran.at("h0"), 2u);
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
