// What waits for a leader is bounded, and what was said once stays as it was said.
#include "common/node/proposals.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/cluster/command.h"
#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {
namespace {

class ProposalsTest : public ::testing::Test {
 protected:
  ProposalsTest() {
    c.now = {Instant(1000s), WallTime{}};
    c.out = &out;
    // One of three voters, and nobody else is there.
    const raft::Stored disk = raft::found({1, {7, 7}}, {{{1, 1}, {2, 2}, {3, 3}}, {}});
    c.replicated.emplace(raft::Self{{1, 1}}, raft::RaftOptions{}, Rng(1), log, disk, std::nullopt);
  }
  LinesLog log;
  Context c{NodeOptions{}, Rng(1), log};
  std::vector<Effect> out;
  Proposals proposals{c};
};

TEST_F(ProposalsTest, WithoutALeaderAReportTakesSoManyTasksAndNoMore) {
  for (std::size_t tasks = 0; tasks < kReportTasks; ++tasks) {
    ASSERT_EQ(proposals.report_room(), kReportTasks - tasks);
    proposals.report({job::TaskObservation{}});
    proposals.log_advanced();
  }
  EXPECT_EQ(proposals.report_room(), 0u);
  EXPECT_TRUE(out.empty());
}

// Its number is how a repetition is known: with more in it under the same number, the rest would never be applied.
TEST_F(ProposalsTest, AReportThatWasProposedIsNeverAddedTo) {
  const raft::Stored disk = raft::found({1, {7, 7}}, {{{1, 1}}, {}});
  c.replicated.emplace(raft::Self{{1, 1}}, raft::RaftOptions{}, Rng(1), log, disk, MemberId{7, 7});
  c.replicated->step(c.now.boot, raft::Tick{});
  c.serving = true;
  std::map<std::uint64_t, std::set<AssignmentId>> said;  // by the report's number
  const auto turn = [&] {
    proposals.log_advanced();
    c.replicated->flush(c.now.boot);
    while (const auto taken = c.replicated->take()) {
      if (!taken->persist) continue;
      for (const raft::LogEntry& entry : taken->persist->entries) {
        const auto command = wire::decode<cluster::Command>(entry.payload);
        if (entry.kind != raft::EntryKind::command || !command) continue;
        const auto report = wire::decode<cluster::HostReport>(command->body);
        ASSERT_TRUE(report);
        std::set<AssignmentId> tasks;
        for (const auto& seen : report->tasks) tasks.insert(seen.id);
        const auto known = said.emplace(report->sequence, tasks).first;
        EXPECT_EQ(known->second, tasks) << "report " << report->sequence;
      }
      c.replicated->step(c.now.boot, raft::Persisted{taken->persist->token});
    }
  };
  job::TaskObservation first, second;
  first.id = {1, 1, {"worker", 0}};
  second.id = {1, 1, {"worker", 1}};
  turn();  // it leads
  proposals.report({first});
  turn();
  proposals.leadership_changed();  // nobody knows whether the entry is lost
  proposals.report({second});
  turn();
  EXPECT_EQ(said.size(), 2u);
}

}  // namespace
}  // namespace dtrain::node
