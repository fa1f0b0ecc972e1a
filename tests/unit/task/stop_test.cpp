// Whom a stop goes to, and what the signal before the deadline means for the end of a task.
#include "tests/unit/task/tasks_world.h"

namespace dtrain::task {
namespace {

TEST_F(Tasks, AStopGoesToWhomTheRoleSaysWithTheGraceOfThePolicy) {
  for (const job::SignalTo to : {job::SignalTo::all, job::SignalTo::main}) {
    spec().roles.at("worker").signal_to = to;
    spec().policy.stop_grace_period = 7s;
    const std::uint32_t index = to == job::SignalTo::all ? 0 : 1;
    TaskOrder stop = order(index);
    give({stop});
    bring_up(index);
    stop.desire = Desire::stop;
    stop.stop_known = true;
    give({stop});
    did_.take();
    EXPECT_EQ(did_.signalled_to, to);
    EXPECT_EQ(did_.grace_of_signal, 7s);
    exits(died(0, 15), index);
    task(index).shim_gone(now_);
    host_.settle(now_, 1);
    give({});
  }
}

TEST_F(Tasks, WhatEndsAfterTheSignalBeforeTheDeadlineIsNotBegunAgain) {
  give({order(0), order(1)});
  bring_up(0);
  bring_up(1);
  TaskOrder first = order(0), second = order(1);
  first.last_attempt = second.last_attempt = true;
  give({first, second});
  did_.take();
  exits(died(0, 10), 0);
  EXPECT_EQ(did_.take(), Done{"end worker-0"});
  EXPECT_TRUE(seen(0).on_request) << "it costs no budget and is no fault";
  exits(died(0), 1);
  EXPECT_EQ(seen(1).state, TaskState::succeeded);
}

}  // namespace
}  // namespace dtrain::task
