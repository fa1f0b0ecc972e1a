#include "tests/conformance/runner_suite.h"

#include <signal.h>

namespace dtrain::conformance {

namespace {

constexpr Duration kVeryLong = 24h;

}  // namespace

RunnerSuite::RunnerSuite() : world_(GetParam().make()) {
  sink_ = [this](node::Event event) { events_.push_back(std::move(event)); };
  EXPECT_TRUE(world_->runner().list().empty());
}

RunnerSuite::~RunnerSuite() {
  for (const AssignmentId& id : launched_) {
    events_.clear();
    world_->runner().end(id);
    EXPECT_TRUE(pump([&] { return last<node::ShimGone>(id) != nullptr; })) << id.text();
    EXPECT_EQ(world_->processes(id), 0);
    world_->runner().remove_files(id);
  }
}

void RunnerSuite::launch(const AssignmentId& id, const Behaviour& behaviour) {
  launched_.insert(id);
  world_->runner().launch(world_->spec(id, behaviour));
  ASSERT_TRUE(pump([&] { return last<node::ShimUp>(id) != nullptr; }));
  const Status& result = last<node::ShimUp>(id)->result;
  ASSERT_TRUE(result) << result.error().text();
}

std::int32_t RunnerSuite::start(const AssignmentId& id, AttemptNumber attempt) {
  world_->runner().start(id, attempt);
  const auto started = [&] {
    const auto* event = last<node::AttemptStarted>(id);
    return event != nullptr && event->attempt == attempt;
  };
  EXPECT_TRUE(pump([&] { return started() || last<node::AttemptRefused>(id) != nullptr; }));
  if (started()) return last<node::AttemptStarted>(id)->pid;
  if (const auto* refused = last<node::AttemptRefused>(id)) ADD_FAILURE() << refused->error.text();
  return 0;
}

task::Exit RunnerSuite::wait_exit(const AssignmentId& id, AttemptNumber attempt) {
  const auto exited = [&] {
    const auto* event = last<node::AttemptExited>(id);
    return event != nullptr && event->attempt == attempt;
  };
  EXPECT_TRUE(pump(exited));
  return exited() ? last<node::AttemptExited>(id)->exit : task::Exit{};
}

void RunnerSuite::settle(const AssignmentId& id, int processes) {
  EXPECT_TRUE(pump([&] { return world_->running_processes(id) == processes; })) << world_->running_processes(id) << " processes run";
}

std::vector<task::FoundShim> RunnerSuite::restart_agent() {
  world_->agent_dies();
  events_.clear();
  world_->agent_returns();
  return world_->runner().list();
}

TEST_P(RunnerSuite, AnAttemptRunsAndItsExitIsTold) {
  launch(worker_, {.kind = Behaviour::exits, .code = 3, .says = "last words"});
  EXPECT_GT(start(worker_, 1), 0);
  const task::Exit exit = wait_exit(worker_, 1);
  EXPECT_EQ(exit.code, 3);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_FALSE(exit.unknown);
  EXPECT_EQ(count<node::AttemptStarted>(worker_), 1);
  EXPECT_EQ(count<node::AttemptExited>(worker_), 1);
  EXPECT_EQ(world_->processes(worker_), 0);
}

TEST_P(RunnerSuite, SuccessIsCodeZero) {
  launch(worker_, {.kind = Behaviour::exits});
  start(worker_, 1);
  EXPECT_TRUE(wait_exit(worker_, 1).success());
}

TEST_P(RunnerSuite, AKilledTaskIsStartedAgainInItsShim) {
  launch(worker_, {});
  for (AttemptNumber attempt = 1; attempt <= 5; ++attempt) {
    const std::int32_t pid = start(worker_, attempt);
    world_->process_dies(worker_, pid);
    EXPECT_EQ(wait_exit(worker_, attempt).signal, SIGKILL);
  }
  EXPECT_EQ(count<node::ShimUp>(worker_), 1);
  EXPECT_EQ(count<node::ShimGone>(worker_), 0);
}

TEST_P(RunnerSuite, StartIsIdempotent) {
  launch(worker_, {});
  const std::int32_t pid = start(worker_, 1);
  world_->runner().start(worker_, 1);
  EXPECT_TRUE(pump([&] { return count<node::AttemptStarted>(worker_) == 2; }));
  EXPECT_EQ(last<node::AttemptStarted>(worker_)->pid, pid);
  settle(worker_, 1);
}

TEST_P(RunnerSuite, AttemptNumbersOnlyGrow) {
  launch(worker_, {});
  const std::int32_t pid = start(worker_, 5);
  for (const AttemptNumber attempt : {4u, 6u}) {  // lower; and higher while another one runs
    events_.clear();
    world_->runner().start(worker_, attempt);
    EXPECT_TRUE(pump([&] { return last<node::AttemptRefused>(worker_) != nullptr; }));
    EXPECT_EQ(last<node::AttemptRefused>(worker_)->attempt, attempt);
  }
  world_->process_dies(worker_, pid);
  wait_exit(worker_, 5);
  for (const AttemptNumber attempt : {4u, 5u}) {  // nor the same one twice
    events_.clear();
    world_->runner().start(worker_, attempt);
    EXPECT_TRUE(pump([&] { return last<node::AttemptRefused>(worker_) != nullptr; }));
    EXPECT_EQ(count<node::AttemptStarted>(worker_), 0);
  }
  events_.clear();
  EXPECT_GT(start(worker_, 9), 0);
}

TEST_P(RunnerSuite, AMissingProgramIsAnExitWithItsCause) {
  launch(worker_, {.kind = Behaviour::missing_program});
  world_->runner().start(worker_, 1);
  const task::Exit exit = wait_exit(worker_, 1);
  EXPECT_EQ(exit.code, 127);
  EXPECT_NE(exit.cause.find("could not execute"), std::string::npos) << exit.cause;
  EXPECT_EQ(count<node::AttemptStarted>(worker_), 1);
}

TEST_P(RunnerSuite, ASignalReachesTheMainProcess) {
  launch(worker_, {.ready = true});
  start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->runner().signal({worker_, SIGTERM});
  EXPECT_EQ(wait_exit(worker_, 1).signal, SIGTERM);
}

TEST_P(RunnerSuite, WhatIgnoresASignalIsKilled) {
  launch(worker_, {.ready = true, .ignores_term = true});
  start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->runner().signal({worker_, SIGTERM, true, 30s});
  world_->runner().kill(worker_);
  EXPECT_EQ(wait_exit(worker_, 1).signal, SIGKILL);
}

TEST_P(RunnerSuite, ASignalToAllReachesAll) {
  launch(worker_, {.ready = true, .leaves_children = true});
  start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  settle(worker_, 1 + world_->children());
  world_->runner().signal({worker_, SIGTERM, true, kVeryLong});
  EXPECT_EQ(wait_exit(worker_, 1).signal, SIGTERM) << "with all of them its grace has ended";
  EXPECT_EQ(world_->processes(worker_), 0);
}

TEST_P(RunnerSuite, WhatOutlivesTheMainProcessHasItsGrace) {
  launch(worker_, {.ready = true, .leaves_children = true});
  start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  settle(worker_, 1 + world_->children());
  world_->runner().signal({worker_, SIGTERM, false, kVeryLong});
  settle(worker_, world_->children());
  EXPECT_EQ(last<node::AttemptExited>(worker_), nullptr);
  world_->runner().kill(worker_);
  EXPECT_EQ(wait_exit(worker_, 1).signal, SIGTERM) << "the end of its main process";
  EXPECT_EQ(world_->processes(worker_), 0);
  // Its successor's end is none that anybody asked for.
  events_.clear();
  const std::int32_t pid = start(worker_, 2);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->process_dies(worker_, pid);
  EXPECT_EQ(wait_exit(worker_, 2).signal, SIGKILL);
}

TEST_P(RunnerSuite, GraceIsOverWithItsTime) {
  launch(worker_, {.ready = true, .leaves_children = true});
  start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->runner().signal({worker_, SIGTERM, false, 200ms});
  EXPECT_EQ(wait_exit(worker_, 1).signal, SIGTERM);
  EXPECT_EQ(world_->processes(worker_), 0);
}

TEST_P(RunnerSuite, NotificationsAreTold) {
  launch(worker_, {.ready = true, .status = "step 10"});
  start(worker_, 1);
  bool ready = false;
  std::string status;
  EXPECT_TRUE(pump([&] {
    for (const node::Event& event : events_)
      if (const auto* news = std::get_if<node::Notified>(&event)) {
        EXPECT_EQ(news->attempt, 1u);
        ready = ready || news->ready;
        if (news->status) status = *news->status;
      }
    return ready && !status.empty();
  }));
  EXPECT_EQ(status, "step 10");
}

TEST_P(RunnerSuite, NothingIsLeftOfAnAttempt) {
  launch(worker_, {.ready = true, .leaves_children = true});
  const std::int32_t pid = start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->process_dies(worker_, pid);
  wait_exit(worker_, 1);
  EXPECT_EQ(world_->processes(worker_), 0);
}

TEST_P(RunnerSuite, EndKillsWhatIsLeft) {
  launch(worker_, {.ready = true, .ignores_term = true, .leaves_children = true});
  start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->runner().end(worker_);
  EXPECT_TRUE(pump([&] { return last<node::ShimGone>(worker_) != nullptr; }));
  EXPECT_TRUE(last<node::ShimGone>(worker_)->expected);
  EXPECT_EQ(count<node::AttemptExited>(worker_), 1);
  EXPECT_EQ(world_->processes(worker_), 0);
  launched_.clear();
  world_->runner().remove_files(worker_);
  EXPECT_TRUE(restart_agent().empty());
}

TEST_P(RunnerSuite, FrozenMeansThatNothingRuns) {
  launch(worker_, {.ready = true, .leaves_children = true});
  start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->runner().freeze(worker_, true);
  EXPECT_TRUE(pump([&] { return last<node::FreezeDone>(worker_) != nullptr; }));
  ASSERT_TRUE(last<node::FreezeDone>(worker_)->result) << last<node::FreezeDone>(worker_)->result.error().text();
  EXPECT_TRUE(last<node::FreezeDone>(worker_)->frozen);
  EXPECT_EQ(world_->running_processes(worker_), 0);
  EXPECT_GT(world_->processes(worker_), 0);
  events_.clear();
  world_->runner().freeze(worker_, false);
  EXPECT_TRUE(pump([&] { return last<node::FreezeDone>(worker_) != nullptr; }));
  EXPECT_TRUE(last<node::FreezeDone>(worker_)->result);
  EXPECT_FALSE(last<node::FreezeDone>(worker_)->frozen);
  EXPECT_TRUE(pump([&] { return world_->running_processes(worker_) == world_->processes(worker_); }));
}

TEST_P(RunnerSuite, AFrozenTaskCanBeKilledAndItsSuccessorRuns) {
  launch(worker_, {.ready = true});
  start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->runner().freeze(worker_, true);
  EXPECT_TRUE(pump([&] { return last<node::FreezeDone>(worker_) != nullptr; }));
  world_->runner().kill(worker_);
  EXPECT_EQ(wait_exit(worker_, 1).signal, SIGKILL);
  events_.clear();
  start(worker_, 2);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
}

TEST_P(RunnerSuite, FreezingNothingIsAnError) {
  launch(worker_, {});
  world_->runner().freeze(worker_, true);
  EXPECT_TRUE(pump([&] { return last<node::FreezeDone>(worker_) != nullptr; }));
  EXPECT_FALSE(last<node::FreezeDone>(worker_)->result);
}

TEST_P(RunnerSuite, ADeadShimTakesItsTaskWithIt) {
  launch(worker_, {.ready = true, .leaves_children = true});
  start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->shim_dies(worker_);
  EXPECT_TRUE(pump([&] { return last<node::ShimGone>(worker_) != nullptr; }));
  EXPECT_FALSE(last<node::ShimGone>(worker_)->expected);
  ASSERT_EQ(count<node::AttemptExited>(worker_), 1);
  EXPECT_TRUE(last<node::AttemptExited>(worker_)->exit.unknown);
  EXPECT_LT(first<node::ShimGone>(), first<node::AttemptExited>()) << "or the next attempt is ordered of it";
  EXPECT_EQ(world_->processes(worker_), 0);
  // Another shim in the same place, and the numbers go on.
  events_.clear();
  launch(worker_, {});
  world_->runner().start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::AttemptRefused>(worker_) != nullptr; }));
  events_.clear();
  EXPECT_GT(start(worker_, 2), 0);
}

// Its death is not yet known here.
TEST_P(RunnerSuite, WhatIsOrderedOfADyingShimIsRefusedBehindTheWordOfItsEnd) {
  launch(worker_, {.kind = Behaviour::exits});
  start(worker_, 1);
  wait_exit(worker_, 1);
  events_.clear();
  world_->shim_dies(worker_);
  world_->runner().start(worker_, 2);
  EXPECT_TRUE(pump([&] { return last<node::AttemptRefused>(worker_) != nullptr && last<node::ShimGone>(worker_) != nullptr; }));
  EXPECT_LT(first<node::ShimGone>(), first<node::AttemptRefused>());
}

TEST_P(RunnerSuite, ARunningTaskIsAdopted) {
  launch(worker_, {.ready = true, .status = "step 10"});
  const std::int32_t pid = start(worker_, 3);
  EXPECT_TRUE(pump([&] {
    const auto* news = last<node::Notified>(worker_);
    return news != nullptr && news->status;
  }));
  const auto found = restart_agent();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, worker_);
  EXPECT_TRUE(found[0].shim_alive);
  EXPECT_TRUE(found[0].running);
  EXPECT_EQ(found[0].attempt, 3u);
  EXPECT_EQ(found[0].pid, pid);
  EXPECT_TRUE(found[0].ready);
  EXPECT_EQ(found[0].status, "step 10");
  EXPECT_FALSE(found[0].frozen);
  EXPECT_FALSE(found[0].exit);
  // And it is ours again.
  world_->process_dies(worker_, pid);
  EXPECT_EQ(wait_exit(worker_, 3).signal, SIGKILL);
  EXPECT_GT(start(worker_, 4), 0);
}

TEST_P(RunnerSuite, AnExitWhileTheAgentWasAwayIsFound) {
  launch(worker_, {});
  const std::int32_t pid = start(worker_, 1);
  world_->agent_dies();
  world_->process_dies(worker_, pid);
  EXPECT_TRUE(pump([&] { return world_->processes(worker_) == 0; }));
  events_.clear();
  world_->agent_returns();
  const auto found = world_->runner().list();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].shim_alive);
  EXPECT_EQ(found[0].attempt, 1u);
  if (found[0].running) {
    // Gone, but its end was not complete when the agent asked: then it is told as an event.
    EXPECT_EQ(wait_exit(worker_, 1).signal, SIGKILL);
  } else {
    ASSERT_TRUE(found[0].exit);
    EXPECT_EQ(found[0].exit->signal, SIGKILL);
    EXPECT_FALSE(found[0].exit->unknown);
  }
  EXPECT_GT(start(worker_, 2), 0);
  EXPECT_LE(count<node::AttemptExited>(worker_), 1);
}

TEST_P(RunnerSuite, AShimThatDiedWhileTheAgentWasAwayIsFound) {
  launch(worker_, {.ready = true, .leaves_children = true});
  start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->agent_dies();
  world_->shim_dies(worker_);
  world_->agent_returns();
  const auto found = world_->runner().list();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].shim_alive);
  EXPECT_FALSE(found[0].running);
  EXPECT_EQ(found[0].attempt, 1u);
  ASSERT_TRUE(found[0].exit);
  EXPECT_TRUE(found[0].exit->unknown);
  EXPECT_EQ(world_->processes(worker_), 0);
}

TEST_P(RunnerSuite, AFrozenTaskIsAdoptedFrozen) {
  launch(worker_, {.ready = true});
  start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->runner().freeze(worker_, true);
  EXPECT_TRUE(pump([&] { return last<node::FreezeDone>(worker_) != nullptr; }));
  const auto found = restart_agent();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].running);
  EXPECT_TRUE(found[0].frozen);
}

TEST_P(RunnerSuite, WhatWasNeverLaunchedIsRefusedOrGone) {
  world_->runner().start(worker_, 1);
  EXPECT_TRUE(pump([&] { return last<node::AttemptRefused>(worker_) != nullptr; }));
  world_->runner().end(worker_);
  EXPECT_TRUE(pump([&] { return last<node::ShimGone>(worker_) != nullptr; }));
  EXPECT_TRUE(last<node::ShimGone>(worker_)->expected);
}

TEST_P(RunnerSuite, ManyAtOnce) {
  constexpr std::uint32_t kTasks = 20;
  std::vector<AssignmentId> ids;
  for (std::uint32_t i = 0; i < kTasks; ++i) ids.push_back({7, 1, {"worker", i}});
  for (const AssignmentId& id : ids) {
    launched_.insert(id);
    world_->runner().launch(world_->spec(id, {}));
  }
  const auto all = [&](auto condition) {
    return pump([&] {
      for (const AssignmentId& id : ids)
        if (!condition(id)) return false;
      return true;
    });
  };
  EXPECT_TRUE(all([&](const AssignmentId& id) { return count<node::ShimUp>(id) == 1; }));
  for (const AssignmentId& id : ids) world_->runner().start(id, 1);
  EXPECT_TRUE(all([&](const AssignmentId& id) { return count<node::AttemptStarted>(id) == 1; }));
  const auto found = restart_agent();
  EXPECT_EQ(found.size(), kTasks);
  for (const task::FoundShim& shim : found) EXPECT_TRUE(shim.running) << shim.id.text();
  for (const AssignmentId& id : ids) world_->runner().kill(id);
  EXPECT_TRUE(all([&](const AssignmentId& id) { return count<node::AttemptExited>(id) == 1; }));
}

}  // namespace dtrain::conformance
