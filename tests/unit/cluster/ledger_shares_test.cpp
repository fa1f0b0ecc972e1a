// What the ledger knows of checkpoints of which each host has a share.
#include <gtest/gtest.h>

#include "common/base/limits.h"
#include "common/transfer/format.h"
#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

class LedgerShares : public LedgerWorld {
 protected:
  JobId running() {
    EXPECT_TRUE(apply(CommandType::raise_version, RaiseVersion{kNewestVersion}).status);
    job::JobSpec spec = ps_job();
    spec.checkpoint = job::CheckpointSpec{};
    spec.checkpoint->dir = "/c";
    const JobId id = submit(spec);
    begin(id);
    all(id, TaskState::staged);
    return id;
  }
  static transfer::CheckpointInfo share(std::int64_t step, const std::string& file, bool first) {
    transfer::CheckpointInfo info;
    for (std::size_t i = 0; i < transfer::formats().size(); ++i)
      if (transfer::formats()[i]->name == "torch-distributed") info.format = transfer::FormatId(i);
    info.path = "/c/step_" + std::to_string(step);
    info.step = step;
    info.bytes = 10;
    info.digest = file;
    info.shares.files.push_back({file, 10, "1"});
    if (first) info.shares.list = "__0_0.distcp\n__1_0.distcp\n";
    return info;
  }
  void see(JobId id, const transfer::CheckpointInfo& info, const NodeId& host, CheckpointState state = CheckpointState::shares,
           std::optional<Generation> generation = {}) {
    apply(CommandType::checkpoint, CheckpointSeen{id, info, state, "", host, generation});
  }
  const CheckpointRecord& record(JobId id, std::size_t i = 0) const { return job(id).checkpoints.at(i); }
};

TEST_F(LedgerShares, AreWholeOnceTheLastIsReported) {
  const JobId id = running();
  see(id, share(5, "__0_0.distcp", true), "n1");
  EXPECT_FALSE(is_whole(record(id)));
  EXPECT_EQ(record(id).info.defect, "__1_0.distcp is missing");
  EXPECT_FALSE(job(id).committed_once) << "nothing can be restored yet";
  see(id, share(5, "__1_0.distcp", false), "n2");
  ASSERT_EQ(job(id).checkpoints.size(), 1u);
  EXPECT_TRUE(is_whole(record(id)));
  EXPECT_FALSE(is_good(record(id).state)) << "no host has all of it";
  EXPECT_EQ(record(id).info.bytes, 20u);
  EXPECT_TRUE(job(id).committed_once);
  see(id, share(5, "__1_0.distcp", false), "n2", CheckpointState::deleted);
  EXPECT_FALSE(is_whole(record(id)));
  see(id, share(5, "__0_0.distcp", true), "n1", CheckpointState::quarantined);
  EXPECT_EQ(record(id).state, CheckpointState::quarantined);
  EXPECT_TRUE(record(id).places.empty());
}

TEST_F(LedgerShares, AreQuarantinedInOneEvent) {
  const JobId id = running();
  const auto events = [&] {
    return std::ranges::count_if(ledger_.events(), [](const LedgerEvent& e) { return e.type == "checkpoint.quarantined"; });
  };
  const auto quarantine = [&](const std::string& file, const NodeId& host, const std::string& why) {
    apply(CommandType::checkpoint, CheckpointSeen{id, share(5, file, file == "__0_0.distcp"), CheckpointState::quarantined, why, host, {}});
  };
  for (int round = 1; round <= 2; ++round) {
    see(id, share(5, "__0_0.distcp", true), "n1");
    see(id, share(5, "__1_0.distcp", false), "n2");
    quarantine("__0_0.distcp", "n1", "left behind");
    EXPECT_EQ(record(id, job(id).checkpoints.size() - 1).info.defect, "left behind");
    quarantine("__1_0.distcp", "n2", "left behind");
    EXPECT_EQ(events(), round) << "what is written there later is another checkpoint";
  }
}

TEST_F(LedgerShares, HostThatHasAllOfItTakesTheirPlace) {
  const JobId id = running();
  see(id, share(5, "__0_0.distcp", true), "n1");
  see(id, share(5, "__1_0.distcp", false), "n2");
  transfer::CheckpointInfo all = share(5, "__0_0.distcp", true);
  all.shares = {};
  all.complete = true;
  all.digest = "all";
  see(id, all, "n1", CheckpointState::verified);
  ASSERT_EQ(job(id).checkpoints.size(), 1u);
  EXPECT_EQ(record(id).state, CheckpointState::verified);
  see(id, share(5, "__1_0.distcp", false), "n2");  // of an agent that began anew
  EXPECT_EQ(job(id).checkpoints.size(), 1u);
}

TEST_F(LedgerShares, OfALaterGenerationDoNotMixWithThoseBefore) {
  const JobId id = running();
  see(id, share(5, "__0_0.distcp", true), "n1");
  act(id, ActionKind::restart);
  everything_ended(id);
  ASSERT_TRUE(begin(id).status);
  all(id, TaskState::staged);
  see(id, share(5, "__1_0.distcp", false), "n2");
  EXPECT_FALSE(is_whole(record(id)));
  EXPECT_EQ(record(id).places.size(), 1u);
}

// Hosts of each generation look again at what lies there: that is nothing new, whether its names are noted yet or not.
TEST_F(LedgerShares, WhatIsSeenAgainStaysAsItWasFirstSeen) {
  const JobId id = running();
  const std::int64_t last = static_cast<std::int64_t>(limits::kSharedNoted) + 2;
  for (std::int64_t step = 1; step <= last; ++step) {
    see(id, share(step, "__0_0.distcp", true), "n1");
    see(id, share(step, "__1_0.distcp", false), "n2");
  }
  const auto before = job(id).checkpoints;
  ASSERT_TRUE(before[0].places[0].shares.files.empty());
  act(id, ActionKind::restart);
  everything_ended(id);
  ASSERT_TRUE(begin(id).status);
  all(id, TaskState::staged);
  pass(1h);
  for (std::int64_t step = 1; step <= last; ++step) {
    see(id, share(step, "__0_0.distcp", true), "n1");
    see(id, share(step, "__1_0.distcp", false), "n2");
  }
  ASSERT_EQ(job(id).checkpoints.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(is_whole(record(id, i))) << i << ": " << record(id, i).info.defect;
    EXPECT_EQ(record(id, i).info.bytes, 20u) << i;
    EXPECT_EQ(record(id, i).generation, before[i].generation) << i;
    EXPECT_EQ(record(id, i).seen, before[i].seen) << i;
  }
  // Other files of the same host under this path are new ones.
  transfer::CheckpointInfo anew = share(1, "__0_0.distcp", true);
  anew.place = 9;
  see(id, anew, "n1");
  EXPECT_EQ(job(id).checkpoints.size(), before.size());
  EXPECT_EQ(job(id).checkpoints.back().info.step, 1);
  EXPECT_EQ(job(id).checkpoints.back().generation, job(id).generation);
  EXPECT_FALSE(is_whole(job(id).checkpoints.back()));
}

TEST_F(LedgerShares, OneOfWhichAShareIsLostIsNotWholeWhetherItsNamesAreNotedOrNot) {
  const JobId id = running();
  const std::int64_t last = static_cast<std::int64_t>(limits::kSharedNoted) + 1;
  for (std::int64_t step = 1; step <= last; ++step) {
    see(id, share(step, "__0_0.distcp", true), "n1");
    see(id, share(step, "__1_0.distcp", false), "n2");
  }
  for (const std::int64_t step : {std::int64_t{1}, last}) see(id, share(step, "__1_0.distcp", false), "n2", CheckpointState::deleted);
  EXPECT_FALSE(is_whole(record(id, 0)));
  EXPECT_EQ(record(id, 0).info.defect, "a host lost its share");
  EXPECT_EQ(record(id, limits::kSharedNoted).info.defect, "__1_0.distcp is missing");
}

// The ledger is copied to every voter: it keeps the names of a bounded number.
TEST_F(LedgerShares, NamesOfOldOnesAreForgottenTheirHostsAreNot) {
  const JobId id = running();
  const std::int64_t last = static_cast<std::int64_t>(limits::kSharedNoted) + 1;
  for (std::int64_t step = 1; step <= last; ++step) {
    see(id, share(step, "__0_0.distcp", true), "n1");
    see(id, share(step, "__1_0.distcp", false), "n2");
  }
  EXPECT_TRUE(record(id, 0).places[0].shares.files.empty());
  EXPECT_TRUE(is_whole(record(id, 0))) << "as it was judged";
  EXPECT_EQ(record(id, 1).places[1].shares.files.size(), 1u);
  for (std::size_t i = 0; i < 2 * limits::kShareHosts; ++i) see(id, share(last, "__1_0.distcp", false), "m" + std::to_string(i));
  EXPECT_EQ(record(id, limits::kSharedNoted).places.size(), limits::kShareHosts);
}

TEST_F(LedgerShares, AreVerifiedTogetherOnceEachHostHasReadItsOwn) {
  const JobId id = running();
  const auto first = share(5, "__0_0.distcp", true), second = share(5, "__1_0.distcp", false);
  see(id, first, "n1");
  see(id, first, "n1", CheckpointState::verified);
  EXPECT_FALSE(is_verified(record(id))) << "it is not whole";
  see(id, second, "n2");
  EXPECT_FALSE(is_verified(record(id)));
  auto anew = second;
  anew.place = 9;
  see(id, anew, "n2", CheckpointState::verified);
  EXPECT_FALSE(is_verified(record(id))) << "these are not the files that are noted";
  see(id, second, "n2", CheckpointState::verified);
  EXPECT_TRUE(is_verified(record(id)));
  EXPECT_EQ(record(id).state, CheckpointState::shares);
  see(id, anew, "n2");
  EXPECT_FALSE(is_verified(record(id))) << "it was written again";
  see(id, anew, "n2", CheckpointState::verified);
  EXPECT_TRUE(is_verified(record(id)));
  see(id, first, "n1", CheckpointState::damaged);
  EXPECT_FALSE(is_whole(record(id)));
}

// Only the first of the hosts that see one directory tells of it; any of them may move it away.
TEST_F(LedgerShares, WhatIsMovedAwayInADirectoryOfAllIsGoneForAll) {
  const JobId id = running();
  auto half = share(5, "__0_0.distcp", true);
  half.place = 7;
  see(id, half, "n1");
  see(id, half, "n2", CheckpointState::quarantined);
  EXPECT_TRUE(record(id).places.empty());
  EXPECT_EQ(record(id).state, CheckpointState::quarantined);
}

// A host that was away meanwhile removes its share when it is back, and does not find it anew before that.
TEST_F(LedgerShares, RemovedOnOneHostAreToBeRemovedOnAll) {
  const JobId id = running();
  auto first = share(5, "__0_0.distcp", true), second = share(5, "__1_0.distcp", false);
  second.place = 2;
  see(id, first, "n1");
  see(id, second, "n2");
  auto removed = first;
  removed.complete = true;
  see(id, removed, "n1", CheckpointState::deleted);
  EXPECT_TRUE(is_half_removed(record(id)));
  EXPECT_FALSE(is_whole(record(id)));
  EXPECT_EQ(record(id).places.size(), 1u);
  see(id, second, "n2");
  ASSERT_EQ(job(id).checkpoints.size(), 1u);
  auto anew = second;
  anew.place = 3;
  see(id, anew, "n2");
  ASSERT_EQ(job(id).checkpoints.size(), 2u) << "the job wrote it again";
  second.complete = true;
  see(id, second, "n2", CheckpointState::deleted);
  EXPECT_FALSE(is_half_removed(record(id)));
  EXPECT_EQ(record(id).state, CheckpointState::deleted);
  EXPECT_EQ(record(id, 1).places.size(), 1u);
}

}  // namespace
}  // namespace dtrain::cluster
