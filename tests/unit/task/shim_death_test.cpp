// Shims that die: what runs on, what is begun anew, and what it costs.
#include "tests/unit/task/tasks_world.h"

namespace dtrain::task {
namespace {

// The runner tells that the shim is gone before what that was the end of: no attempt is ordered of a dead one.
TEST_F(Tasks, AShimThatDiedIsReplacedBeforeTheNextAttempt) {
  give({order()}, 1);
  bring_up();
  did_.take();
  host_.shim_gone(now_, order().id);
  EXPECT_EQ(seen().state, TaskState::running) << "its exit follows";
  Exit e;
  e.unknown = true;
  exits(e);
  EXPECT_EQ(did_.take(), Done{"launch worker-0"});
  EXPECT_EQ(seen().attempt, 1u);
  task().shim_up(now_, {});
  EXPECT_EQ(did_.take(), Done{"start2 worker-0"}) << "of the budget of one";
}

// It had told the exit, and died a moment later: the attempt that was ordered meanwhile never began, and costs nothing.
TEST_F(Tasks, AnAttemptThatItsShimsDeathPreventsCostsNothing) {
  spec().policy.failure_threshold = {2, 1h};
  give({order()}, 1);
  bring_up();
  exits(died(1));
  did_.take();
  host_.shim_gone(now_, order().id);
  task().attempt_refused(now_, 2, Error{ErrorCode::unavailable, "could not start 1.1.worker-0: its shim died", ""});
  now_ += 1min;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{"launch worker-0"});
  EXPECT_TRUE(seen().spared);
  task().shim_up(now_, {});
  EXPECT_EQ(did_.take(), Done{"start3 worker-0"});
  started();
  EXPECT_EQ(task().unreported_restarts(), 1u) << "that of the first exit";
  exits(died(1));
  EXPECT_EQ(seen().state, TaskState::failed) << "the second failure";
}

// At the barrier, where nothing began yet.
TEST_F(Tasks, ShimsThatDieBeforeTheFirstAttemptAreReplacedAFewTimes) {
  TaskOrder waits = order();
  waits.go = false;
  give({waits});
  task().staged(std::string("/w"));
  task().shim_up(now_, {});
  did_.take();
  for (std::uint32_t death = 0; death < kIdleShimDeaths; ++death) {
    host_.shim_gone(now_, order().id);
    ASSERT_EQ(did_.take(), Done{"launch worker-0"}) << death;
    task().shim_up(now_, {});
  }
  host_.shim_gone(now_, order().id);
  EXPECT_EQ(did_.take(), Done{});
  EXPECT_TRUE(seen().stage_failed);
  EXPECT_NE(seen().reason.find("5 shims in a row died before it began"), std::string::npos) << seen().reason;
}

TEST_F(Tasks, AttemptsThatShimsDeathsPreventCountWhereThatGoesOn) {
  spec().policy.failure_threshold = {2, 24h};
  give({order()}, 1);
  bring_up();
  exits(died(1));
  for (AttemptNumber attempt = 2; attempt < 2 + kIdleShimDeaths; ++attempt) {
    host_.shim_gone(now_, order().id);
    task().attempt_refused(now_, attempt, Error{ErrorCode::unavailable, "could not start it: its shim died", ""});
    ASSERT_TRUE(seen().spared) << attempt;
    ASSERT_NE(seen().state, TaskState::failed) << attempt;
    now_ += 10min;
    host_.tick(now_);
    task().shim_up(now_, {});
  }
  host_.shim_gone(now_, order().id);
  task().attempt_refused(now_, 2 + kIdleShimDeaths, Error{ErrorCode::unavailable, "could not start it: its shim died", ""});
  EXPECT_EQ(seen().state, TaskState::failed) << "the second failure";
}

}  // namespace
}  // namespace dtrain::task
