// Tasks under a lease: what the agent makes of their shims' questions and of the answers.
#include "tests/unit/task/tasks_world.h"

namespace dtrain::task {
namespace {

class LeasedTasks : public Tasks {
 protected:
  LeasedTasks() {
    spec().roles["worker"].exclusive = true;
    host_.need_leases(now_);
  }
};

TEST_F(LeasedTasks, FrozenForWantOfALeaseItIsShownAndItsWatchdogStandsStill) {
  spec().roles["worker"].watchdog = 3s;
  give({order()});
  bring_up();
  EXPECT_EQ(did_.lease, 10s);
  EXPECT_EQ(seen().lease, 10s);
  task().lease_froze(now_, 1, true);
  const auto frozen = seen();
  EXPECT_EQ(frozen.state, TaskState::frozen);
  EXPECT_EQ(frozen.reason, "no word from the council for 9 s");
  did_.take();
  now_ += 60s;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{});
  task().lease_froze(now_, 1, false);
  EXPECT_EQ(seen().state, TaskState::running);
  now_ += 4s;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{"kill worker-0"});
}

TEST_F(LeasedTasks, AStartThatWaitsForItsGrantCanBeStopped) {
  give({order()});
  task().staged(std::string("/w"));
  task().shim_up(now_, {});
  EXPECT_EQ(did_.take(), (Done{"stage worker-0", "launch worker-0", "start1 worker-0"}));
  TaskOrder stop = order();
  stop.desire = Desire::stop;
  give({stop});
  EXPECT_EQ(did_.take(), Done{"end worker-0"});
}

TEST_F(LeasedTasks, WhatIsSupersededIsNotStartedAgain) {
  give({order()});
  bring_up();
  did_.take();
  task().lease_asked(5);
  EXPECT_FALSE(task().lease_answered(6, false));
  EXPECT_TRUE(task().lease_answered(5, false));
  exits(died(0, 9));
  EXPECT_EQ(did_.take(), Done{});
  EXPECT_EQ(task().deadline(), kNever) << "no spinning";
  EXPECT_TRUE(seen().on_request);
  give({});
  EXPECT_EQ(did_.take(), Done{"end worker-0"});
}

TEST_F(Tasks, WithASecondHostALeaseIsRequiredOnce) {
  spec().roles["worker"].exclusive = true;
  give({order()});
  bring_up();
  EXPECT_EQ(did_.lease, 0s);
  EXPECT_EQ(seen().lease, 0s);
  did_.take();
  host_.need_leases(now_);
  EXPECT_EQ(did_.take(), Done{"require worker-0"});
  host_.tick(now_ += 1s);
  give({order()});
  EXPECT_EQ(did_.take(), Done{});
  EXPECT_EQ(seen().lease, 0s) << "not before its shim asks for one";
  now_ += 10s;
  EXPECT_LE(task().deadline(), now_);
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{"require worker-0"}) << "its shim may not have been there";
  task().lease_asked(5);
  EXPECT_EQ(seen().lease, 10s);
}

TEST_F(Tasks, WhatHasALeaseKeepsItOverALifeOfTheAgent) {
  spec().roles["worker"].exclusive = true;
  FoundShim found;
  found.id = order().id;
  found.shim_alive = found.running = found.leased = true;
  found.attempt = 1;
  host_.adopt({found});
  TaskOrder o = order();
  o.known_attempt = 1;
  o.lease = 20s;
  give({o});
  EXPECT_EQ(seen().lease, 20s);
  host_.need_leases(now_);
  EXPECT_EQ(did_.take(), Done{});
}

}  // namespace
}  // namespace dtrain::task
