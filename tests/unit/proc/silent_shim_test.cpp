// A shim that hangs, or that somebody has stopped: its task is ended all the same.
#include "tests/unit/proc/shim_world.h"

namespace dtrain::proc {
namespace {

class SilentShimTest : public ShimWorld, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    conformance::DirectWorld::Options options;
    options.cgroups = GetParam();
    use(options);
    launch(shell("trap '' TERM; sleep 1000000 & exec sleep 1000000"));
    world_->runner().start(id_, 1);
    ASSERT_TRUE(until<node::AttemptStarted>());
    world_->shim_stops(id_);
  }
  void expect_ended() {
    ASSERT_TRUE(until<node::AttemptExited>());
    EXPECT_TRUE(last<node::AttemptExited>()->exit.unknown);
    EXPECT_EQ(world_->processes(id_), 0);
  }
};

TEST_P(SilentShimTest, AKillEndsItsTask) {
  world_->runner().kill(id_);
  expect_ended();
}

TEST_P(SilentShimTest, AKillByTheNextAgentEndsItsTask) {
  world_->agent_dies();
  world_->agent_returns();
  const auto found = world_->runner().list();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].running);
  world_->runner().kill(id_);
  expect_ended();
}

TEST_P(SilentShimTest, OneThatAnswersInTimeIsNotKilled) {
  world_->runner().kill(id_);
  world_->shim_continues(id_);
  ASSERT_TRUE(until<node::AttemptExited>());
  EXPECT_FALSE(last<node::AttemptExited>()->exit.unknown);
  EXPECT_EQ(last<node::AttemptExited>()->exit.signal, SIGKILL);
}

INSTANTIATE_TEST_SUITE_P(Groups, SilentShimTest, testing::Bool());

}  // namespace
}  // namespace dtrain::proc
