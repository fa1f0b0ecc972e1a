// startTimeout: an attempt that does not come up in time. runTimeout: one that does not end in time.
#include "tests/unit/task/tasks_world.h"

#include <algorithm>

namespace dtrain::task {
namespace {

TEST_F(Tasks, ATaskThatIsNotReadyInTimeIsDead) {
  spec().roles["worker"].notify = true;
  spec().roles["worker"].start_timeout = 10s;
  give({order()});
  bring_up();
  did_.take();
  EXPECT_EQ(host_.deadline(), now_ + 10s);
  now_ += 10s;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{"kill worker-0"});
  exits(died(0, 9));
  EXPECT_EQ(seen().exit->cause, "startTimeout: not ready within 10 s");
  EXPECT_FALSE(seen().on_request) << "it counts";
}

TEST_F(Tasks, ATaskThatIsReadyInTimeLives) {
  spec().roles["worker"].notify = true;
  spec().roles["worker"].start_timeout = 10s;
  give({order()});
  bring_up();
  did_.take();
  task().notified(now_, 1, true, false);
  now_ += 100s;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{});
}

TEST_F(Tasks, WithoutNotifyAStartTimeoutIsOverOnceItRuns) {
  spec().roles["worker"].start_timeout = 10s;
  give({order()});
  bring_up();
  did_.take();
  now_ += 100s;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{});
}

TEST_F(Tasks, WhileItIsFrozenItsStartTakesNoTime) {
  spec().roles["worker"].notify = true;
  spec().roles["worker"].start_timeout = 10s;
  give({order()});
  bring_up();
  did_.take();
  now_ += 9s;
  task().freeze_done(now_, true, {});
  now_ += 60s;
  host_.tick(now_);
  EXPECT_EQ(std::ranges::count(did_.take(), "kill worker-0"), 0);
  task().freeze_done(now_, false, {});
  EXPECT_EQ(host_.deadline(), now_ + 10s);
}

TEST_F(Tasks, AnAttemptThatRunsForTooLongIsKilledAndCounts) {
  spec().roles["worker"].run_timeout = 1h;
  give({order()});
  bring_up();
  did_.take();
  EXPECT_EQ(host_.deadline(), now_ + 1h);
  now_ += 1h - 1s;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{});
  now_ += 1s;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{"kill worker-0"});
  exits(died(0, 9));
  EXPECT_EQ(seen().exit->cause, "runTimeout: ran for 3600 s");
  EXPECT_FALSE(seen().on_request) << "it counts";
}

}  // namespace
}  // namespace dtrain::task
