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

// worker-1 is killed while worker-0 is frozen.
TEST_F(LeasedTasks, WhatExitsBesideAFrozenTaskWaitsAndCostsNothing) {
  spec().roles["worker"].watchdog = 3s;
  spec().policy.failure_threshold.count = 1;
  give({order(0), order(1)}, 0);
  bring_up(0);
  bring_up(1);
  task(0).lease_froze(now_, 1, true);
  host_.settle(now_, 1);
  did_.take();
  now_ += 60s;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{}) << "its watchdog stands still, too";
  exits(died(0, 9), 1);
  const auto waits = seen(1);
  EXPECT_EQ(waits.state, TaskState::backoff);
  EXPECT_TRUE(waits.spared);
  EXPECT_FALSE(waits.on_request);
  EXPECT_EQ(task(1).unreported_restarts(), 0u);
  EXPECT_EQ(task(1).deadline(), kNever) << "no spinning";
  host_.tick(now_ += 60s);
  EXPECT_EQ(did_.take(), Done{});
  task(0).lease_froze(now_, 1, false);
  host_.settle(now_, 1);
  EXPECT_EQ(did_.take(), Done{"start2 worker-1"}) << "at once";
  EXPECT_EQ(seen(0).stood_still, 120s);
  started(1);
  EXPECT_TRUE(seen(1).spared);
  host_.tick(now_ += 2s);
  EXPECT_EQ(did_.take(), Done{});
  host_.tick(now_ += 2s);
  EXPECT_EQ(did_.take(), (Done{"kill worker-0", "kill worker-1"})) << "the watchdogs go on";
  exits(died(0, 9), 1);
  EXPECT_EQ(seen(1).state, TaskState::failed) << "the next one counts";
}

TEST_F(Tasks, ByTheCoordinatorsWordAJobStandsStill) {
  TaskOrder o = order();
  o.still = true;
  spec().roles["worker"].watchdog = 3s;
  give({o}, 0);
  bring_up();
  did_.take();
  host_.tick(now_ += 10s);
  EXPECT_EQ(did_.take(), Done{});
  exits(died(1));
  EXPECT_TRUE(seen().spared);
  EXPECT_EQ(did_.take(), Done{});
  give({order()}, 0);
  EXPECT_EQ(did_.take(), Done{"start2 worker-0"});
}

TEST_F(Tasks, WhereNobodyCoordinatesWhatHasLeasesElsewhereStandsStill) {
  TaskOrder beside = order(0);
  beside.beside_leased = true;
  give({beside, order(1)});
  bring_up(0);
  bring_up(1);
  host_.cut_off(now_, true);
  did_.take();
  exits(died(1), 0);
  exits(died(1), 1);
  EXPECT_EQ(did_.take(), Done{"start2 worker-1"}) << "only what stands beside such tasks";
  host_.cut_off(now_, false);
  EXPECT_EQ(did_.take(), Done{"start2 worker-0"});
}

// The agent was away when worker-1 ended, and worker-0 was frozen meanwhile.
TEST_F(Tasks, WhatIsFoundFrozenIsKnownBeforeAnyOrder) {
  spec().roles["worker"].exclusive = true;
  host_.need_leases(now_);
  std::vector<FoundShim> found{found_leased(0, 1), found_leased(1, 1)};
  found[0].exit = died(0, 9);
  found[1].running = true;
  host_.adopt(found);
  host_.found_frozen(order(1).id, true);
  TaskOrder first = order(0), second = order(1);
  first.known_attempt = second.known_attempt = 1;
  give({first, second});
  EXPECT_EQ(did_.take(), Done{});
  EXPECT_TRUE(seen(0).spared);
  EXPECT_EQ(seen(1).state, TaskState::frozen);
  task(1).lease_froze(now_, 1, false);
  host_.settle(now_, 1);
  EXPECT_EQ(did_.take(), Done{"start2 worker-0"});
}

// The agent before had ordered its next attempt, and said so; its shim took that back with the connection.
TEST_F(Tasks, AnAttemptThatWaitedForItsLeaseWhenTheAgentEndedIsNoRestart) {
  spec().roles["worker"].exclusive = true;
  host_.need_leases(now_);
  std::vector<FoundShim> found{found_leased(0, 0), found_leased(1, 1)};
  found[1].exit = died(1, 9);
  host_.adopt(found);
  TaskOrder first = order(0), second = order(1);
  first.known_attempt = 1;
  second.known_attempt = 2;
  second.exit_attempt = 1;
  give({first, second});
  EXPECT_FALSE(seen(0).exit);
  EXPECT_EQ(seen(1).exit_attempt, 1u);
  host_.settle(now_ += 1min, 1);
  EXPECT_EQ(did_.take(), (Done{"start1 worker-0", "start2 worker-1"}));
}

// The generation before had four attempts; of this one none was ordered yet.
TEST_F(Tasks, AShimThatWasLaunchedWhenTheAgentEndedBeginsWithTheGenerationsFirstAttempt) {
  FoundShim found;
  found.id = order().id;
  found.shim_alive = true;
  host_.adopt({found});
  TaskOrder o = order();
  o.first_attempt = 5;
  o.known_attempt = 4;
  o.exit_attempt = 3;
  give({o});
  EXPECT_EQ(did_.take(), Done{"start5 worker-0"});
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
