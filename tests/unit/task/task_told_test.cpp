// What the ledger is told of tasks, and when.
#include "tests/unit/task/tasks_world.h"

namespace dtrain::task {
namespace {

TEST_F(Tasks, ObservationsComeInTurns) {
  give({order(0), order(1)});
  const auto next = [&] {
    const auto seen = host_.take_observations(1);
    return seen.size() == 1 ? seen.front().id.task.index : 9;
  };
  for (const std::uint32_t index : {0u, 1u}) {
    task(index).staged(std::string("/w"));
    task(index).shim_up(now_, {});
  }
  EXPECT_TRUE(host_.take_observations(0).empty());
  EXPECT_EQ(next(), 0u);
  started(0);  // has something new to tell, but had its turn
  EXPECT_EQ(next(), 1u);
  EXPECT_EQ(next(), 0u);
  EXPECT_EQ(next(), 9u) << "nothing";
  exits(died(1), 0);
  started(1);
  EXPECT_EQ(host_.take_observations(5).size(), 2u);
}

TEST_F(Tasks, NewsOfAStandbyAreToldOnce) {
  give({order()});
  task().staged(std::string("/w"));
  task().shim_up(now_, {});
  started();
  EXPECT_EQ(host_.take_observations(5).size(), 1u);
  task().standby_told(job::StandbyNews::failed, "a thread runs");
  const auto told = host_.take_observations(5);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told.front().standby, job::StandbyNews::failed);
  EXPECT_EQ(told.front().standby_cause, "a thread runs");
  EXPECT_TRUE(host_.take_observations(5).empty());
  exits(died(1));
  EXPECT_EQ(host_.take_observations(5).front().standby, job::StandbyNews::none);
}

TEST_F(Tasks, StagingIsToldOnceItLasts) {
  TaskOrder waits = order();
  waits.go = false;
  give({waits});
  EXPECT_TRUE(host_.take_observations(5).empty());
  EXPECT_EQ(host_.deadline(), now_ + kTellStagingAfter);
  now_ += kTellStagingAfter;
  host_.tick(now_);
  const auto told = host_.take_observations(5);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told.front().state, TaskState::fetching);
  EXPECT_EQ(host_.deadline(), kNever) << "once";
  task().staged(std::string("/w"));
  host_.settle(now_, 1);
  EXPECT_TRUE(host_.take_observations(5).empty()) << "launching is told as the same";
  task().shim_up(now_, {});
  EXPECT_EQ(host_.take_observations(5).front().state, TaskState::staged);
}

TEST_F(Tasks, StagingThatIsQuickIsNotTold) {
  TaskOrder waits = order();
  waits.go = false;
  give({waits});
  now_ += kTellStagingAfter / 2;
  task().staged(std::string("/w"));
  host_.settle(now_, 1);
  EXPECT_EQ(host_.deadline(), now_ + kTellStagingAfter / 2) << "its launch may take long, too";
  task().shim_up(now_, {});
  EXPECT_EQ(host_.deadline(), kNever);
  EXPECT_EQ(host_.take_observations(5).front().state, TaskState::staged);
  // What it waits for is told at once.
  give({waits, order(1)});
  task(1).waits("for package 1234");
  EXPECT_EQ(host_.take_observations(5).front().reason, "for package 1234");
}

// Frozen beside a ps that is restarted alone, it died with its host; its next attempt cannot begin there.
TEST_F(Tasks, ALaunchThatFailsAfterAnOrderedEndIsNotOrdered) {
  give({order()});
  bring_up();
  TaskOrder freezes = order();
  freezes.freeze = true;
  give({freezes});
  exits(died(0, 9));
  EXPECT_TRUE(seen().on_request);
  host_.shim_gone(now_, order().id);
  give({order()});
  task().shim_up(now_, fail(ErrorCode::unavailable, "could not launch: no more processes"));
  const auto o = seen();
  EXPECT_EQ(o.state, TaskState::failed);
  EXPECT_TRUE(o.stage_failed);
  EXPECT_FALSE(o.on_request);
}

// It left for a drain that is over, and the host heard of its end and of its return in one.
TEST_F(Tasks, WhatIsGivenBackBeginsAnew) {
  TaskOrder first = order();
  first.placed = 5;
  give({first});
  bring_up();
  first.desire = Desire::stop;
  first.stop_known = true;
  give({first});
  exits(died(143));
  host_.shim_gone(now_, first.id);
  EXPECT_TRUE(seen().ended);
  did_.take();
  give({first});
  EXPECT_EQ(did_.take(), Done{}) << "the same, said again";
  TaskOrder again = order();
  again.placed = 9;
  again.known_attempt = again.exit_attempt = 1;
  again.first_attempt = 2;
  give({again});
  EXPECT_EQ(did_.take(), Done{"stage worker-0"});
  task().staged(std::string("/w"));
  task().shim_up(now_, {});
  EXPECT_EQ(did_.take(), (Done{"launch worker-0", "start2 worker-0"}));
}

TEST_F(Tasks, ALaunchThatFailsWhileItIsToBeStoppedIsNoFailure) {
  give({order()});
  task().staged(std::string("/w"));
  TaskOrder stops = order();
  stops.desire = Desire::stop;
  give({stops});
  task().shim_up(now_, fail(ErrorCode::unavailable, "could not launch: no more processes"));
  const auto o = seen();
  EXPECT_TRUE(o.on_request);
  EXPECT_FALSE(o.stage_failed);
  EXPECT_TRUE(o.ended);
}

TEST_F(Tasks, AStoppedProcessIsToldApartFromOtherReasons) {
  give({order()});
  bring_up();
  (void)host_.take_observations(5);
  EXPECT_EQ(std::pair(seen().process_stopped, seen().reason), std::pair(false, std::string()));
  task().process_stopped("process 7 was stopped");
  const auto told = host_.take_observations(5);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told.front().state, TaskState::running);
  EXPECT_EQ(std::pair(told.front().process_stopped, told.front().reason), std::pair(true, std::string("process 7 was stopped")));
  task().process_stopped("process 7 was stopped");
  EXPECT_TRUE(host_.take_observations(5).empty()) << "once";
  exits(died(1));
  EXPECT_FALSE(seen().process_stopped) << "why there is none now is another reason";
  EXPECT_NE(seen().reason, "");
}

TEST_F(Tasks, EachJobHasADeadlineOfItsOwn) {
  TaskOrder waits = order();
  waits.go = false;
  give({waits});
  const Instant first = now_ + kTellStagingAfter;
  now_ += 50ms;
  waits.id.job = 2;
  host_.update(now_, {2, {}, {waits}});
  EXPECT_EQ(host_.deadline(), first);
  now_ = first;
  host_.tick(now_);
  auto told = host_.take_observations(5);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told.front().id.job, 1u);
  EXPECT_EQ(host_.deadline(), first + 50ms) << "of the job of which nothing happened";
  now_ += 50ms;
  host_.tick(now_);
  told = host_.take_observations(5);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told.front().id.job, 2u);
  EXPECT_EQ(host_.deadline(), kNever);
}

}  // namespace
}  // namespace dtrain::task
