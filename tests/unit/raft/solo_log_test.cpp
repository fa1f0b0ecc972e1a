#include "common/raft/solo_log.h"

#include <gtest/gtest.h>

namespace dtrain::raft {
namespace {

TEST(SoloLog, CommitsWhatIsDurableInOrder) {
  SoloLog log(0, 0);
  EXPECT_EQ(log.term(), 1u);
  EXPECT_EQ(log.propose("a"), 1u);
  EXPECT_EQ(log.propose("b"), 2u);
  const auto batch = log.take_batch();
  ASSERT_TRUE(batch);
  ASSERT_EQ(batch->size(), 2u);
  EXPECT_EQ((*batch)[1].payload, "b");
  EXPECT_EQ(log.committed(), 0u) << "nothing is committed before it is durable";
  const auto committed = log.persisted();
  ASSERT_EQ(committed.size(), 2u);
  EXPECT_EQ(log.committed(), 2u);
}

TEST(SoloLog, OneBatchInFlightTheRestGoesTogether) {
  SoloLog log(7, 3);
  EXPECT_EQ(log.term(), 4u) << "each life leads in a term of its own";
  log.propose("a");
  ASSERT_TRUE(log.take_batch());
  log.propose("b");
  log.propose("c");
  EXPECT_FALSE(log.take_batch());
  log.persisted();
  const auto batch = log.take_batch();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->size(), 2u);
  EXPECT_EQ(batch->front().index, 9u);
  EXPECT_EQ(batch->front().term, 4u);
}

TEST(SoloLog, NothingToPersistNothingTaken) {
  SoloLog log(0, 0);
  EXPECT_FALSE(log.take_batch());
  EXPECT_EQ(log.pending(), 0u);
}

}  // namespace
}  // namespace dtrain::raft
