// Jobs that make room for those of higher priority: at no cost, and never for equals.
#include <gmock/gmock.h>

#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

using ::testing::Contains;

class LedgerPreempt : public LedgerWorld {
 protected:
  JobId submit_with(std::int32_t priority, const std::string& name, job::JobSpec spec = generic_job(2)) {
    spec.name = name;
    spec.policy.priority = priority;
    return submit(spec);
  }
  Applied preempt(JobId id, JobId by) { return apply(CommandType::preempt_job, PreemptJob{id, job(id).generation, by}); }
};

TEST_F(LedgerPreempt, ItEndsWithGraceAtNoCostAndWaitsWithItsAge) {
  job::JobSpec spec = ps_job();
  spec.policy.backoff_limit = 0;  // no restart is left
  const JobId low = submit_with(0, "low", spec);
  run(low);
  const JobId high = submit_with(1, "high");
  ASSERT_TRUE(preempt(low, high).status);
  EXPECT_EQ(job(low).halt, Halt::replace);
  EXPECT_TRUE(job(low).graceful);
  EXPECT_TRUE(job(low).needs_generation);
  EXPECT_EQ(job(low).preempted.by, high);
  EXPECT_EQ(job(low).reason, "preempted by high");
  EXPECT_THAT(event_types(), Contains("job.preempted"));
  EXPECT_FALSE(preempt(low, high).status) << "it makes room already";
  everything_ended(low);
  EXPECT_EQ(job(low).state, JobState::pending);
  EXPECT_EQ(job(low).restarts, 0u);
  EXPECT_EQ(job(low).budget_spent, 0u);
  EXPECT_FALSE(job(low).first_fault);
  EXPECT_FALSE(job(low).run_started) << "its deadline counts anew, and it goes before nobody who is older";
  EXPECT_EQ(job(low).preempted.by, high) << "until it has a place again";
  begin(low);
  EXPECT_EQ(job(low).preempted.by, 0u);
  EXPECT_EQ(job(low).preemptions, 1u);
  EXPECT_EQ(job(low).generation, 2u);
  EXPECT_EQ(job(low).restarts, 0u);
}

TEST_F(LedgerPreempt, WhoSucceedsOnTheWaySucceeded) {
  const JobId low = submit_with(0, "low");
  run(low);
  ASSERT_TRUE(preempt(low, submit_with(1, "high")).status);
  std::vector<job::TaskObservation> done;
  for (const auto& [task, t] : job(low).tasks) {
    done.push_back(seen(low, task, TaskState::succeeded));
    done.back().exit_attempt = done.back().attempt;
    done.back().exit = job::Exit{};
  }
  report({done.front()});
  EXPECT_EQ(job(low).state, JobState::restarting) << "the other one's end is awaited";
  done.back().ended = true;
  report({done.back()});
  done.front().ended = true;
  report({done.front()});
  EXPECT_EQ(job(low).state, JobState::succeeded);
  EXPECT_EQ(job(low).restarts, 0u);
}

TEST_F(LedgerPreempt, NeverForAnEqualNorForOneThatDoesNotWait) {
  const JobId low = submit_with(1, "low");
  run(low);
  EXPECT_FALSE(preempt(low, submit_with(1, "equal")).status);
  EXPECT_FALSE(preempt(low, submit_with(0, "lower")).status);
  EXPECT_FALSE(preempt(low, 999).status) << "nobody";
  const JobId high = submit_with(2, "high");
  run(high);
  EXPECT_FALSE(preempt(low, high).status) << "it runs already";
  const JobId waits = submit_with(2, "waits");
  act(waits, ActionKind::suspend);
  EXPECT_FALSE(preempt(low, waits).status);
  EXPECT_EQ(job(low).state, JobState::running);
  EXPECT_EQ(job(low).preemptions, 0u);
}

TEST_F(LedgerPreempt, WhoWasPreemptedPreemptsNobodyUntilItRanAgain) {
  const JobId lowest = submit_with(0, "lowest"), low = submit_with(1, "low");
  run(lowest);
  run(low);
  ASSERT_TRUE(preempt(low, submit_with(2, "high")).status);
  everything_ended(low);
  EXPECT_FALSE(preempt(lowest, low).status);
  EXPECT_EQ(job(lowest).state, JobState::running);
}

TEST_F(LedgerPreempt, WhatDoesNotRunIsNotPreempted) {
  const JobId waits = submit_with(0, "waits"), ended = submit_with(0, "ended"), suspended = submit_with(0, "suspended");
  run(ended);
  run(suspended);
  act(ended, ActionKind::cancel);
  act(suspended, ActionKind::suspend);
  const JobId high = submit_with(1, "high");
  for (const JobId id : {waits, ended, suspended}) EXPECT_FALSE(preempt(id, high).status) << job(id).spec.name;
  EXPECT_FALSE(apply(CommandType::preempt_job, PreemptJob{ended, 7, high}).status) << "another generation";
}

TEST_F(LedgerPreempt, CancelledWhileItEndsItIsCancelled) {
  const JobId low = submit_with(0, "low");
  run(low);
  ASSERT_TRUE(preempt(low, submit_with(1, "high")).status);
  ASSERT_TRUE(act(low, ActionKind::cancel).status);
  everything_ended(low);
  EXPECT_EQ(job(low).state, JobState::cancelled);
}

TEST_F(LedgerPreempt, ASnapshotHasIt) {
  const JobId low = submit_with(0, "low");
  run(low);
  ASSERT_TRUE(preempt(low, submit_with(1, "high")).status);
  const auto restored = Ledger::restore(ledger_.snapshot(), 0);
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->snapshot(), ledger_.snapshot());
  EXPECT_EQ(restored->find(low)->preempted.name, "high");
  EXPECT_EQ(restored->find(low)->preemptions, 1u);
}

}  // namespace
}  // namespace dtrain::cluster
