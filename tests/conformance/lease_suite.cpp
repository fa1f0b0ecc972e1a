// What every Runner must do under a lease (docs/leases.md). The suite plays the coordinator: nothing is granted unless
// the case says so.
#include <signal.h>

#include "tests/conformance/runner_suite.h"

namespace dtrain::conformance {
namespace {

constexpr Duration kShortLease = 3s;  // freezes after 2 s, asks each 0.6 s
constexpr std::uint64_t kEpoch = 5;

}  // namespace

void RunnerSuite::launch_leased(const AssignmentId& id, const Behaviour& behaviour) {
  launched_.insert(id);
  task::ShimSpec spec = world_->spec(id, behaviour);
  spec.exclusive = true;
  spec.lease = kShortLease;
  spec.epoch = kEpoch;
  world_->runner().launch(spec);
  ASSERT_TRUE(pump([&] { return last<node::ShimUp>(id) != nullptr; }));
  const Status& result = last<node::ShimUp>(id)->result;
  ASSERT_TRUE(result) << result.error().text();
}

void RunnerSuite::answer(const node::LeaseAsked& asked, bool granted, std::uint64_t epoch) {
  world_->runner().answer_lease({asked.id, asked.nonce, granted, epoch});
}

bool RunnerSuite::until_asked(const AssignmentId& id) {
  const int before = count<node::LeaseAsked>(id);
  return pump([&] { return count<node::LeaseAsked>(id) > before; });
}

bool RunnerSuite::until_froze(bool frozen) {
  return pump([&] {
    const auto* event = last<node::LeaseFroze>(worker_);
    return event != nullptr && event->frozen == frozen;
  });
}

std::int32_t RunnerSuite::start_granted(const AssignmentId& id, AttemptNumber attempt) {
  world_->runner().start(id, attempt);
  const bool did_ask = until_asked(id);
  EXPECT_TRUE(did_ask);
  if (!did_ask) return 0;
  const node::LeaseAsked asked = *last<node::LeaseAsked>(id);
  EXPECT_EQ(asked.attempt, attempt);
  EXPECT_EQ(count<node::AttemptStarted>(id), 0);
  answer(asked, true, kEpoch);
  EXPECT_TRUE(pump([&] { return last<node::AttemptStarted>(id) != nullptr; }));
  const auto* started = last<node::AttemptStarted>(id);
  return started != nullptr && started->attempt == attempt ? started->pid : 0;
}

TEST_P(RunnerSuite, UnderALeaseOnlyAGrantStarts) {
  launch_leased(worker_, {});
  world_->runner().start(worker_, 1);
  ASSERT_TRUE(until_asked(worker_));
  ASSERT_TRUE(until_asked(worker_));  // unanswered: again, and it has not started
  EXPECT_EQ(count<node::AttemptStarted>(worker_), 0);
  EXPECT_EQ(world_->processes(worker_), 0);
  node::LeaseAsked stranger = *last<node::LeaseAsked>(worker_);
  stranger.nonce += 1000;
  answer(stranger, true, kEpoch);                              // to no question of its
  answer(*last<node::LeaseAsked>(worker_), true, kEpoch - 1);  // of a deposed coordinator
  ASSERT_TRUE(until_asked(worker_));
  EXPECT_EQ(count<node::AttemptStarted>(worker_), 0);
  answer(*last<node::LeaseAsked>(worker_), true, kEpoch);
  EXPECT_TRUE(pump([&] { return last<node::AttemptStarted>(worker_) != nullptr; }));
  settle(worker_, 1);
}

TEST_P(RunnerSuite, WhatWasAskedBeforeARestartDoesNotStartIt) {
  launch_leased(worker_, {});
  const std::int32_t pid = start_granted(worker_, 1);
  ASSERT_TRUE(until_asked(worker_));
  const node::LeaseAsked before = *last<node::LeaseAsked>(worker_);
  world_->process_dies(worker_, pid);
  wait_exit(worker_, 1);
  events_.clear();
  world_->runner().start(worker_, 2);
  ASSERT_TRUE(until_asked(worker_));
  answer(before, true, kEpoch);
  ASSERT_TRUE(until_asked(worker_));
  EXPECT_EQ(count<node::AttemptStarted>(worker_), 0);
  answer(*last<node::LeaseAsked>(worker_), true, kEpoch);
  EXPECT_TRUE(pump([&] { return last<node::AttemptStarted>(worker_) != nullptr; }));
}

TEST_P(RunnerSuite, AtTheEndOfItsLeaseATaskIsFrozenAndAGrantThawsIt) {
  launch_leased(worker_, {.ready = true, .leaves_children = true});
  const std::int32_t pid = start_granted(worker_, 1);
  ASSERT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  ASSERT_TRUE(until_asked(worker_));
  const node::LeaseAsked before = *last<node::LeaseAsked>(worker_);
  ASSERT_TRUE(until_froze(true));
  EXPECT_EQ(world_->running_processes(worker_), 0);
  EXPECT_GT(world_->processes(worker_), 0);
  answer(before, true, kEpoch);  // asked for before it was frozen: does not thaw
  ASSERT_TRUE(until_asked(worker_));
  EXPECT_EQ(world_->running_processes(worker_), 0);
  answer(*last<node::LeaseAsked>(worker_), true, kEpoch);
  ASSERT_TRUE(until_froze(false));
  EXPECT_TRUE(pump([&] { return world_->running_processes(worker_) == world_->processes(worker_); }));
  EXPECT_EQ(count<node::AttemptExited>(worker_), 0);
  world_->process_dies(worker_, pid);
  EXPECT_EQ(wait_exit(worker_, 1).signal, SIGKILL);
}

TEST_P(RunnerSuite, WhoIsGrantedInTimeRunsOn) {
  launch_leased(worker_, {});
  start_granted(worker_, 1);
  for (int grants = 0; grants < 6; ++grants) {  // longer than a lease
    ASSERT_TRUE(until_asked(worker_));
    answer(*last<node::LeaseAsked>(worker_), true, kEpoch);
  }
  EXPECT_EQ(count<node::LeaseFroze>(worker_), 0);
  settle(worker_, 1);
}

TEST_P(RunnerSuite, WhatIsSupersededIsKilledAsItIsAndNeverStartedAgain) {
  launch_leased(worker_, {.ready = true, .ignores_term = true});
  start_granted(worker_, 1);
  ASSERT_TRUE(until_froze(true));
  ASSERT_TRUE(until_asked(worker_));
  answer(*last<node::LeaseAsked>(worker_), false, kEpoch);
  EXPECT_EQ(wait_exit(worker_, 1).signal, SIGKILL);
  EXPECT_EQ(count<node::LeaseFroze>(worker_), 1);  // no thaw
  EXPECT_EQ(world_->processes(worker_), 0);
  world_->runner().start(worker_, 2);
  EXPECT_TRUE(pump([&] { return last<node::AttemptRefused>(worker_) != nullptr; }));
  EXPECT_EQ(last<node::AttemptRefused>(worker_)->attempt, 2u);
}

TEST_P(RunnerSuite, AStartThatWaitsIsRefusedWhenItIsSupersededKilledOrEnded) {
  const AssignmentId others[] = {{7, 1, {"worker", 1}}, {7, 1, {"worker", 2}}, {7, 1, {"worker", 3}}};
  for (const AssignmentId& id : others) {
    launch_leased(id, {});
    world_->runner().start(id, 1);
    ASSERT_TRUE(until_asked(id));
  }
  answer(*last<node::LeaseAsked>(others[0]), false, kEpoch);
  world_->runner().kill(others[1]);
  world_->runner().end(others[2]);
  for (const AssignmentId& id : others) {
    EXPECT_TRUE(pump([&] { return last<node::AttemptRefused>(id) != nullptr; })) << id.text();
    EXPECT_EQ(count<node::AttemptStarted>(id), 0);
  }
  EXPECT_TRUE(pump([&] { return last<node::ShimGone>(others[2]) != nullptr; }));
  launched_.erase(others[2]);
  events_.clear();
  world_->runner().start(others[1], 1);  // the same attempt again: it has not run
  ASSERT_TRUE(until_asked(others[1]));
  answer(*last<node::LeaseAsked>(others[1]), true, kEpoch);
  EXPECT_TRUE(pump([&] { return last<node::AttemptStarted>(others[1]) != nullptr; }));
}

TEST_P(RunnerSuite, WhatIsFrozenByOrderStaysFrozenWhateverIsGranted) {
  launch_leased(worker_, {.ready = true});
  start_granted(worker_, 1);
  ASSERT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->runner().freeze(worker_, true);
  ASSERT_TRUE(pump([&] { return last<node::FreezeDone>(worker_) != nullptr; }));
  ASSERT_TRUE(last<node::FreezeDone>(worker_)->result);
  events_.clear();
  world_->runner().freeze(worker_, false);  // a thaw, so it takes a grant
  ASSERT_TRUE(pump([&] { return last<node::FreezeDone>(worker_) != nullptr; }));
  EXPECT_TRUE(last<node::FreezeDone>(worker_)->result);
  ASSERT_TRUE(until_froze(true));
  EXPECT_EQ(world_->running_processes(worker_), 0);
  ASSERT_TRUE(pump([&] { return last<node::LeaseAsked>(worker_) != nullptr; }));
  answer(*last<node::LeaseAsked>(worker_), true, kEpoch);
  ASSERT_TRUE(until_froze(false));
  settle(worker_, 1);
}

TEST_P(RunnerSuite, TheAgentFreezesWhatAStoppedShimDoesNot) {
  launch_leased(worker_, {.ready = true, .leaves_children = true});
  start_granted(worker_, 1);
  ASSERT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->shim_stops(worker_);
  EXPECT_TRUE(until_froze(true));
  EXPECT_EQ(world_->running_processes(worker_), 0);
  EXPECT_GT(world_->processes(worker_), 0);
  world_->shim_continues(worker_);
  ASSERT_TRUE(until_asked(worker_));
  answer(*last<node::LeaseAsked>(worker_), true, kEpoch);
  ASSERT_TRUE(until_froze(false));
  EXPECT_TRUE(pump([&] { return world_->running_processes(worker_) == world_->processes(worker_); }));
  EXPECT_EQ(count<node::AttemptExited>(worker_), 0);
}

TEST_P(RunnerSuite, TheShimFreezesWithoutAnAgentAndTheNextOneIsTold) {
  launch_leased(worker_, {.ready = true});
  start_granted(worker_, 1);
  ASSERT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->agent_dies();
  EXPECT_TRUE(pump([&] { return world_->running_processes(worker_) == 0; }));
  EXPECT_GT(world_->processes(worker_), 0);
  events_.clear();
  world_->agent_returns();
  const auto found = world_->runner().list();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].running);
  EXPECT_TRUE(found[0].leased);
  EXPECT_FALSE(found[0].frozen);  // not by an order
  EXPECT_EQ(found[0].epoch, kEpoch);
  ASSERT_TRUE(until_froze(true));
  ASSERT_TRUE(until_asked(worker_));
  answer(*last<node::LeaseAsked>(worker_), true, kEpoch);
  ASSERT_TRUE(until_froze(false));
  settle(worker_, 1);
}

TEST_P(RunnerSuite, ANewLifeOfTheAgentKnowsWhenTheLeaseOfAStoppedShimEnds) {
  launch_leased(worker_, {.ready = true});
  start_granted(worker_, 1);
  ASSERT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->shim_stops(worker_);
  const auto found = restart_agent();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].leased);
  EXPECT_TRUE(until_froze(true));
  EXPECT_EQ(world_->running_processes(worker_), 0);
  world_->shim_continues(worker_);
}

TEST_P(RunnerSuite, AStartThatWaitsIsLostWithItsAgent) {
  launch_leased(worker_, {});
  world_->runner().start(worker_, 1);
  ASSERT_TRUE(until_asked(worker_));
  const node::LeaseAsked before = *last<node::LeaseAsked>(worker_);
  const auto found = restart_agent();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].running);
  EXPECT_EQ(found[0].attempt, 0u);
  world_->runner().start(worker_, 1);
  ASSERT_TRUE(until_asked(worker_));
  answer(before, true, kEpoch);
  ASSERT_TRUE(until_asked(worker_));
  EXPECT_EQ(count<node::AttemptStarted>(worker_), 0);
  answer(*last<node::LeaseAsked>(worker_), true, kEpoch);
  EXPECT_TRUE(pump([&] { return last<node::AttemptStarted>(worker_) != nullptr; }));
}

TEST_P(RunnerSuite, WhatRunsWithoutALeaseCanBeRequiredToHaveOne) {
  launch(worker_, {.ready = true});
  start(worker_, 1);
  ASSERT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  EXPECT_EQ(count<node::LeaseAsked>(worker_), 0);
  world_->runner().require_lease({worker_, kShortLease});
  ASSERT_TRUE(until_asked(worker_));
  answer(*last<node::LeaseAsked>(worker_), true, kEpoch);
  ASSERT_TRUE(until_asked(worker_));
  EXPECT_EQ(count<node::LeaseFroze>(worker_), 0);
  ASSERT_TRUE(until_froze(true));  // and no other grant
  EXPECT_EQ(world_->running_processes(worker_), 0);
  const auto found = restart_agent();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].leased);
}

TEST_P(RunnerSuite, WhatIsFrozenByOrderWhenALeaseIsRequiredThawsByAGrantOnly) {
  launch(worker_, {.ready = true});
  start(worker_, 1);
  ASSERT_TRUE(pump([&] { return last<node::Notified>(worker_) != nullptr; }));
  world_->runner().freeze(worker_, true);
  world_->runner().require_lease({worker_, kShortLease});  // maybe before it is frozen
  ASSERT_TRUE(pump([&] { return last<node::FreezeDone>(worker_) != nullptr; }));
  ASSERT_TRUE(last<node::FreezeDone>(worker_)->result);
  EXPECT_EQ(count<node::LeaseAsked>(worker_), 0);  // while it is held no grant would help
  events_.clear();
  world_->runner().freeze(worker_, false);
  ASSERT_TRUE(pump([&] { return last<node::FreezeDone>(worker_) != nullptr; }));
  ASSERT_TRUE(until_froze(true));
  ASSERT_TRUE(pump([&] { return last<node::LeaseAsked>(worker_) != nullptr; }));
  EXPECT_EQ(world_->running_processes(worker_), 0);
  answer(*last<node::LeaseAsked>(worker_), true, kEpoch);
  ASSERT_TRUE(until_froze(false));
  settle(worker_, 1);
  EXPECT_EQ(count<node::AttemptExited>(worker_), 0);
}

}  // namespace dtrain::conformance
