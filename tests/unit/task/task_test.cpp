#include "common/job/restart.h"
#include "tests/unit/task/tasks_world.h"

namespace dtrain::task {
namespace {

TEST_F(Tasks, StagedLaunchedStartedOnlyWhenOrdered) {
  TaskOrder waits = order();
  waits.go = false;
  give({waits});
  EXPECT_EQ(did_.take(), Done{"stage worker-0"});
  task().staged(std::string("/w"));
  EXPECT_EQ(did_.take(), Done{"launch worker-0"});
  task().shim_up(now_, {});
  EXPECT_EQ(did_.take(), Done{}) << "the barrier holds it";
  EXPECT_EQ(seen().state, TaskState::staged);
  give({order()});
  EXPECT_EQ(did_.take(), Done{"start1 worker-0"});
}

TEST_F(Tasks, AFailedWorkerStartsAgainInTheSameTurn) {
  give({order()});
  bring_up();
  did_.take();
  exits(died(0, 9));
  EXPECT_EQ(did_.take(), Done{"start2 worker-0"}) << "the first restart has no delay";
  started();
  const auto o = seen();
  EXPECT_EQ(o.state, TaskState::running);
  EXPECT_EQ(o.attempt, 2u);
  EXPECT_EQ(o.exit_attempt, 1u);
}

TEST_F(Tasks, TheSecondRestartInARowIsDelayed) {
  give({order()});
  bring_up();
  exits(died(1));
  started();
  did_.take();
  exits(died(1));
  EXPECT_EQ(did_.take(), Done{});
  EXPECT_EQ(seen().state, TaskState::backoff);
  const Instant due = host_.deadline();
  EXPECT_GT(due, now_);
  EXPECT_LE(due, now_ + 100ms);
  now_ = due;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{"start3 worker-0"});
}

TEST_F(Tasks, AHealthyPeriodResetsTheDelay) {
  give({order()});
  bring_up();
  exits(died(1));
  started();
  now_ += 11min;
  did_.take();
  exits(died(1));
  EXPECT_EQ(did_.take(), Done{"start3 worker-0"});
}

struct PolicyCase {
  job::RestartPolicy policy;
  std::int32_t code, signal;
  TaskState becomes;
};
class Policies : public Tasks, public ::testing::WithParamInterface<PolicyCase> {};
TEST_P(Policies, Decide) {
  spec().roles["worker"].restart_policy = GetParam().policy;
  give({order()});
  bring_up();
  exits(died(GetParam().code, GetParam().signal));
  EXPECT_EQ(seen().state, GetParam().becomes);
}
using P = job::RestartPolicy;
INSTANTIATE_TEST_SUITE_P(
    Table, Policies,
    ::testing::Values(PolicyCase{P::on_failure, 0, 0, TaskState::succeeded}, PolicyCase{P::on_failure, 1, 0, TaskState::starting},
                      PolicyCase{P::on_failure, 0, 9, TaskState::starting}, PolicyCase{P::never, 1, 0, TaskState::failed},
                      PolicyCase{P::never, 0, 0, TaskState::succeeded}, PolicyCase{P::always, 0, 0, TaskState::starting},
                      PolicyCase{P::always, 3, 0, TaskState::starting}, PolicyCase{P::exit_code, 1, 0, TaskState::failed},
                      PolicyCase{P::exit_code, 127, 0, TaskState::failed}, PolicyCase{P::exit_code, 128, 0, TaskState::starting},
                      PolicyCase{P::exit_code, 137, 0, TaskState::starting}, PolicyCase{P::exit_code, 0, 15, TaskState::starting}));

TEST_F(Tasks, WhatCouldNotBeExecutedIsNotTriedAgain) {
  give({order()});
  bring_up();
  Exit e = died(127);
  e.cause = "could not execute python4: No such file or directory";
  exits(e);
  EXPECT_EQ(seen().state, TaskState::failed);
}

TEST_F(Tasks, ATaskOfTheCoordinatorsFailsAtOnce) {
  TaskOrder o = order();
  o.in_place = false;
  give({o});
  bring_up();
  did_.take();
  exits(died(0, 9));
  EXPECT_EQ(seen().state, TaskState::failed);
  EXPECT_EQ(did_.take(), Done{"end worker-0"});
  host_.shim_gone(now_, o.id);
  EXPECT_TRUE(seen().ended);
}

TEST_F(Tasks, TheBudgetIsSharedByTheJobsTasks) {
  give({order(0), order(1)}, 1);
  bring_up(0);
  bring_up(1);
  exits(died(1), 0);
  exits(died(1), 1);
  EXPECT_EQ(seen(0).state, TaskState::starting);
  EXPECT_EQ(seen(1).state, TaskState::failed);
  EXPECT_NE(seen(1).reason.find("backoffLimit"), std::string::npos);
}

TEST_F(Tasks, TheFailureThresholdCountsInItsWindow) {
  spec().policy.failure_threshold = {2, 1h};
  spec().policy.restart_backoff = {0s, 0s, 0s, 10min, false};
  give({order()});
  bring_up();
  exits(died(1));
  started();
  now_ += 2h;
  exits(died(1));
  EXPECT_EQ(seen().state, TaskState::starting);
  started();
  exits(died(1));
  EXPECT_EQ(seen().state, TaskState::failed);
}

// Found by the simulator (world cluster, seed 15020): on a slow disk a worker was restarted between a ps's death and
// the halt, and cost budget.
TEST_F(Tasks, NothingIsRestartedInPlaceWhileAHaltIsExpected) {
  TaskOrder stateful = order(1);
  stateful.in_place = false;
  give({order(0), stateful});
  bring_up(0);
  bring_up(1);
  exits(died(0, 9), 1);
  did_.take();
  exits(died(0, 9), 0);
  EXPECT_EQ(did_.take(), Done{});
  EXPECT_EQ(host_.deadline(), kNever);
  TaskOrder killed = order(0);
  killed.desire = Desire::kill;
  give({killed});
  EXPECT_EQ(did_.take(), Done{"end worker-0"});
}

TEST_F(Tasks, StopGivesGraceThenKills) {
  give({order()});
  bring_up();
  did_.take();
  TaskOrder stop = order();
  stop.desire = Desire::stop;
  give({stop});
  EXPECT_EQ(did_.take(), Done{}) << "the ledger knows it first";
  EXPECT_EQ(seen().state, TaskState::stopping);
  stop.stop_known = true;
  give({stop});
  EXPECT_EQ(did_.take(), Done{"signal15 worker-0"});
  EXPECT_EQ(host_.deadline(), now_ + 30s);
  give({stop});
  EXPECT_EQ(did_.take(), Done{}) << "the same order again changes nothing";
  now_ += 30s;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{"kill worker-0"});
  exits(died(0, 9));
  EXPECT_TRUE(seen().on_request);
  EXPECT_EQ(did_.take(), Done{"end worker-0"});
}

// Found by the simulator (world cluster, seed 1155 of an earlier tree).
TEST_F(Tasks, AnExitThatCameBeforeTheStopIsASuccess) {
  give({order()});
  bring_up();
  TaskOrder stop = order();
  stop.desire = Desire::stop;
  give({stop});
  exits(died(0));
  EXPECT_EQ(seen().state, TaskState::succeeded);
  EXPECT_FALSE(seen().on_request);
}

// Found by the simulator (world cluster, seed 74).
TEST_F(Tasks, AnExitThatAnswersTheStopIsNoneAlsoForAReturnedAgent) {
  FoundShim f;
  f.id = order().id;
  f.shim_alive = true;
  f.attempt = 1;
  f.exit = died(0);
  host_.adopt({f});
  TaskOrder stop = order();
  stop.known_attempt = 1;
  stop.desire = Desire::stop;
  stop.stop_known = true;
  give({stop});
  EXPECT_TRUE(seen().on_request);
  EXPECT_NE(seen().state, TaskState::succeeded);
}

TEST_F(Tasks, WhatIsNotOrderedAnyMoreIsKilled) {
  give({order()});
  bring_up();
  did_.take();
  give({});
  EXPECT_EQ(did_.take(), Done{"kill worker-0"});
}

TEST_F(Tasks, ARequestedRestartIsGracefulAndFree) {
  give({order()}, 0);
  bring_up();
  did_.take();
  TaskOrder again = order();
  again.known_attempt = 1;
  again.restart_attempt = 1;
  again.stop_known = true;
  give({again}, 0);
  EXPECT_EQ(did_.take(), Done{"signal15 worker-0"});
  exits(died(0, 15));
  EXPECT_EQ(did_.take(), Done{"start2 worker-0"}) << "no budget is asked";
  started();
  give({again}, 0);
  EXPECT_EQ(did_.take(), Done{}) << "the order speaks of attempt 1";
}

TEST_F(Tasks, ASilentTaskIsKilledByItsWatchdog) {
  spec().roles["worker"].watchdog = 10s;
  give({order()});
  bring_up();
  did_.take();
  now_ += 9s;
  task().notified(now_, 1, false, true);
  EXPECT_EQ(host_.deadline(), now_ + 10s);
  now_ += 10s;
  host_.tick(now_);
  EXPECT_EQ(did_.take(), Done{"kill worker-0"});
  exits(died(0, 9));
  EXPECT_NE(seen().exit->cause.find("watchdog"), std::string::npos);
}

TEST_F(Tasks, FreezeAndThawAndNoRestartMeanwhile) {
  give({order()});
  bring_up();
  did_.take();
  TaskOrder frozen = order();
  frozen.freeze = true;
  give({frozen});
  EXPECT_EQ(did_.take(), Done{"freeze worker-0"});
  task().freeze_done(now_, true, {});
  EXPECT_EQ(seen().state, TaskState::frozen);
  exits(died(0, 9));
  EXPECT_EQ(did_.take(), Done{}) << "restarts wait while others are frozen";
  give({order()});
  EXPECT_EQ(did_.take(), Done{"start2 worker-0"});
}

TEST_F(Tasks, AStopOfAFrozenTaskThawsFirst) {
  give({order()});
  bring_up();
  TaskOrder o = order();
  o.freeze = true;
  give({o});
  task().freeze_done(now_, true, {});
  did_.take();
  o = order();
  o.desire = Desire::stop;
  o.stop_known = true;
  give({o});
  EXPECT_EQ(did_.take(), Done{"thaw worker-0"});
  task().freeze_done(now_, false, {});
  EXPECT_EQ(did_.take(), Done{"signal15 worker-0"});
}

TEST_F(Tasks, AHeldRestartWaitsForItsRelease) {
  TaskOrder o = order();
  o.hold_restart = true;
  give({o});
  bring_up();
  did_.take();
  exits(died(0, 9));
  EXPECT_EQ(did_.take(), Done{});
  o.known_attempt = o.exit_attempt = 1;
  o.release_attempt = 2;
  give({o});
  EXPECT_EQ(did_.take(), Done{"start2 worker-0"});
}

TEST_F(Tasks, AReturnedAgentAdoptsWhatRuns) {
  FoundShim f;
  f.id = order().id;
  f.shim_alive = f.running = true;
  f.attempt = 3;
  f.pid = 77;
  host_.adopt({f});
  TaskOrder o = order();
  o.known_attempt = 3;
  give({o});
  host_.finish_adoption();
  EXPECT_EQ(did_.take(), Done{});
  EXPECT_EQ(seen().state, TaskState::running);
  EXPECT_EQ(task().pid(), 77);
  EXPECT_EQ(task().unreported_restarts(), 0u);
}

TEST_F(Tasks, AnExitThatHappenedMeanwhileIsHandledOnce) {
  FoundShim f;
  f.id = order().id;
  f.shim_alive = true;
  f.attempt = 1;
  f.exit = died(0, 9);
  host_.adopt({f});
  TaskOrder o = order();
  o.known_attempt = 1;
  give({o});
  EXPECT_EQ(did_.take(), Done{"start2 worker-0"});
}

// It saved its state when its host went down, and said that all is well. Not done, nor at fault, however often.
TEST_F(Tasks, AnEndWithTheHostIsNoSuccessAndCostsNothing) {
  spec().policy.failure_threshold = {1, 1h};
  FoundShim f;
  f.id = order().id;
  for (const std::int32_t code : {0, 143}) {
    f.attempt = code == 0 ? 1 : 2;
    f.exit = died(code);
    f.exit->with_host = true;
    Assignments host(HostContext{"n1", "", {}}, did_);
    host.adopt({f});
    TaskOrder o = order();
    o.known_attempt = f.attempt;
    host.update(now_, {1, 0u, {o}});
    EXPECT_EQ(did_.take(), Done{"stage worker-0"}) << "the next attempt";
    const auto before = host.find(o.id)->take_observation();
    EXPECT_NE(before.state, TaskState::succeeded);
    EXPECT_NE(before.state, TaskState::failed);
    EXPECT_TRUE(before.spared);
    EXPECT_EQ(before.exit_attempt, f.attempt);
    host.find(o.id)->staged(std::string("/w"));
    host.find(o.id)->shim_up(now_, {});
    EXPECT_EQ(did_.take(), (Done{"launch worker-0", "start" + std::to_string(f.attempt + 1) + " worker-0"}));
    EXPECT_EQ(host.find(o.id)->unreported_restarts(), 0u);
  }
}

TEST_F(Tasks, AnEndWithTheHostOfATaskOfTheCoordinatorsIsLeftToItAndSpared) {
  FoundShim f;
  f.id = order().id;
  f.attempt = 1;
  f.exit = died(0);
  f.exit->with_host = true;
  host_.adopt({f});
  TaskOrder o = order();
  o.in_place = false;
  o.known_attempt = 1;
  give({o});
  const auto told = seen();
  EXPECT_EQ(told.state, TaskState::failed);
  EXPECT_TRUE(told.spared);
  EXPECT_TRUE(job::may_restart(job::RoleSpec{}, *told.exit)) << "or the coordinator would end the job";
  EXPECT_EQ(job::describe(*told.exit), "its host was stopped (exit code 0)");
}

// Whoever may signal a shim can have an end called the host's. It restarts for nothing, but not in a tight circle.
TEST_F(Tasks, EndsWithTheHostInARowAreDelayed) {
  give({order()}, 0);
  bring_up();
  Exit e = died(0);
  e.with_host = true;
  exits(e);
  started();
  did_.take();
  exits(e);
  EXPECT_EQ(did_.take(), Done{});
  EXPECT_EQ(seen().state, TaskState::backoff);
  EXPECT_GT(host_.deadline(), now_);
}

TEST_F(Tasks, AShimThatIsGoneMeansAnUnknownEndAndANewShim) {
  TaskOrder o = order();
  o.known_attempt = 1;
  give({o});
  EXPECT_EQ(did_.take(), Done{"stage worker-0"});
  const auto before = seen();
  ASSERT_TRUE(before.exit);
  EXPECT_TRUE(before.exit->unknown);
  task().staged(std::string("/w"));
  task().shim_up(now_, {});
  EXPECT_EQ(did_.take(), (Done{"launch worker-0", "start2 worker-0"}));
}

TEST_F(Tasks, ShimsThatNobodyOrderedEnd) {
  FoundShim f;
  f.id = {9, 1, {"worker", 0}};
  f.shim_alive = f.running = true;
  host_.adopt({f});
  host_.finish_adoption();
  EXPECT_EQ(did_.take(), Done{"end worker-0"});
  EXPECT_FALSE(host_.quiet(9));
  host_.shim_gone(now_, f.id);
  EXPECT_TRUE(host_.quiet(9));
}

TEST_F(Tasks, TheNextGenerationWaitsForTheLastOfTheOld) {
  give({order(0, 1)});
  bring_up(0);
  did_.take();
  give({order(1, 2)});
  EXPECT_EQ(did_.take(), (Done{"kill worker-0", "stage worker-1"}));
  host_.find({1, 2, {"worker", 1}})->staged(std::string("/w"));
  host_.find({1, 2, {"worker", 1}})->shim_up(now_, {});
  EXPECT_EQ(did_.take(), Done{"launch worker-1"});
  task(0, 1).attempt_exited(now_, 1, died(0, 9));
  host_.settle(now_, 1);
  EXPECT_EQ(did_.take(), Done{"end worker-0"});
  host_.shim_gone(now_, {1, 1, {"worker", 0}});
  EXPECT_EQ(did_.take(), Done{"start1 worker-1"});
}

TEST_F(Tasks, StageFailureTellsItsKind) {
  give({order()});
  task().staged(fail(ErrorCode::not_found, "working directory /x does not exist"));
  const auto o = seen();
  EXPECT_TRUE(o.stage_failed);
  EXPECT_TRUE(o.ended);
  EXPECT_EQ(o.stage_error, ErrorCode::not_found);
}

// Its GPUs are another's only once nobody holds them.
TEST_F(Tasks, AnEndWaitsForItsGpus) {
  TaskOrder with_gpu = order();
  with_gpu.gpus = {{"0000:10:00.0", "nvidia", 0}};
  give({with_gpu}, 0);
  bring_up();
  did_.take();
  exits(died(0));
  EXPECT_EQ(did_.take(), Done{"end worker-0"});
  host_.shim_gone(now_, with_gpu.id);
  EXPECT_EQ(did_.take(), Done{"reclaim worker-0"});
  EXPECT_FALSE(seen().ended);
  EXPECT_FALSE(host_.quiet(1));
  task().reclaimed();
  EXPECT_TRUE(seen().ended);
  EXPECT_EQ(seen().state, TaskState::succeeded);
}

TEST_F(Tasks, WhatNeverBeganHoldsNoGpus) {
  TaskOrder with_gpu = order();
  with_gpu.gpus = {{"0000:10:00.0", "nvidia", 0}};
  give({with_gpu}, 0);
  task().staged(fail(ErrorCode::unavailable, "no"));
  did_.take();
  EXPECT_TRUE(seen().ended);
}

// An agent that comes back in between looks again.
TEST_F(Tasks, AReturnedAgentReclaimsWhatEndedMeanwhile) {
  TaskOrder with_gpu = order();
  with_gpu.gpus = {{"0000:10:00.0", "nvidia", 0}};
  with_gpu.known_attempt = 1;
  with_gpu.in_place = false;
  FoundShim found;
  found.id = with_gpu.id;
  found.attempt = 1;
  found.exit = died(3);
  host_.adopt({found});
  give({with_gpu}, 0);
  EXPECT_EQ(did_.take(), Done{"reclaim worker-0"});
  EXPECT_FALSE(seen().ended);
}

}  // namespace
}  // namespace dtrain::task
