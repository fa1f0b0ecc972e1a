// What waits for a leader is bounded.
#include "common/node/proposals.h"

#include <gtest/gtest.h>

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
    c.replicated.emplace(raft::Self{{1, 1}}, raft::Options{}, Rng(1), log, disk, std::nullopt);
  }
  LinesLog log;
  Context c{Options{}, Rng(1), log};
  std::vector<Effect> out;
  Proposals proposals{c};
};

TEST_F(ProposalsTest, WithoutALeaderAReportTakesSoManyTasksAndNoMore) {
  for (std::size_t tasks = 0; tasks < kReportTasks; ++tasks) {
    ASSERT_EQ(proposals.report_room(), kReportTasks - tasks);
    proposals.report({job::TaskObservation{}});
    proposals.drive();
  }
  EXPECT_EQ(proposals.report_room(), 0u);
  EXPECT_TRUE(out.empty());
}

}  // namespace
}  // namespace dtrain::node
