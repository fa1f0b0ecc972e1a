#include "common/gossip/local_health.h"

#include <gtest/gtest.h>

namespace dtrain::gossip {
namespace {

TEST(Rule07LocalHealth, StaysWithinItsBounds) {
  LocalHealth health(8);
  EXPECT_TRUE(health.healthy());
  EXPECT_EQ(health.factor(), 1u);
  health.better();
  EXPECT_EQ(health.score(), 0u);
  health.worse(3);
  EXPECT_EQ(health.factor(), 4u);
  health.worse(100);
  EXPECT_EQ(health.score(), 7u);
  health.better();
  EXPECT_EQ(health.score(), 6u);
  EXPECT_FALSE(health.healthy());
}

TEST(Rule07LocalHealth, OfOneLevelNeverChanges) {
  LocalHealth health(1), none(0);
  health.worse(5);
  none.worse();
  EXPECT_EQ(health.factor(), 1u);
  EXPECT_EQ(none.factor(), 1u);
}

}  // namespace
}  // namespace dtrain::gossip
