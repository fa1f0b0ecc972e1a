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
  }
  // What the next agent finds.
  void until_recorded() {
    EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
    ASSERT_TRUE(world_->pump(sink, [this] {
      const auto state = read_record(world_->directory(id_), "state");
      return state && state->active();
    }));
  }
  void expect_ended() {
    ASSERT_TRUE(until<node::AttemptExited>());
    EXPECT_TRUE(last<node::AttemptExited>()->exit.unknown);
    EXPECT_EQ(world_->processes(id_), 0);
  }
};

// Also where its shim has not written down yet that it began.
TEST_P(SilentShimTest, AKillEndsItsTask) {
  world_->shim_stops(id_);
  world_->runner().kill(id_);
  expect_ended();
}

TEST_P(SilentShimTest, AKillByTheNextAgentEndsItsTask) {
  until_recorded();
  world_->shim_stops(id_);
  world_->agent_dies();
  world_->agent_returns();
  const auto found = world_->runner().list();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].running);
  world_->runner().kill(id_);
  expect_ended();
}

TEST_P(SilentShimTest, OneThatAnswersInTimeIsNotKilled) {
  world_->shim_stops(id_);
  world_->runner().kill(id_);
  world_->shim_continues(id_);
  ASSERT_TRUE(until<node::AttemptExited>());
  EXPECT_FALSE(last<node::AttemptExited>()->exit.unknown);
  EXPECT_EQ(last<node::AttemptExited>()->exit.signal, SIGKILL);
}

INSTANTIATE_TEST_SUITE_P(Groups, SilentShimTest, testing::Bool());

}  // namespace
}  // namespace dtrain::proc
