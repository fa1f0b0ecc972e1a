// Drained hosts: nothing new comes, and jobs leave at no cost.
#include <gmock/gmock.h>

#include "common/cluster/job_transition.h"
#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class LedgerDrain : public LedgerWorld {
 protected:
  Applied begin_on(JobId id, const std::vector<NodeId>& hosts) {
    const JobRecord& j = job(id);
    BeginGeneration b{id, j.generation + 1, {}, {}, "", "", 0, {}};
    for (const auto& [name, r] : j.spec.roles)
      for (std::uint32_t i = 0; i < r.replicas; ++i)
        b.placements.push_back({{name, i}, hosts[i % hosts.size()], {"127.0.0.1", next_port_++}, {}});
    return apply(CommandType::begin_generation, b);
  }
  void tell(const NodeId& host, const TaskObservation& o) { apply(CommandType::report, HostReport{host, {o}, 0, 0, host, 0}); }
  void run_on(JobId id, const std::vector<NodeId>& hosts) {
    ASSERT_TRUE(begin_on(id, hosts).status);
    for (const TaskState state : {TaskState::fetching, TaskState::staged, TaskState::running})
      for (const auto& [task, t] : std::map(job(id).tasks)) tell(t.place.node, seen(id, task, state));
    ASSERT_EQ(job(id).state, JobState::running);
  }
  // Stopped as was ordered.
  void stopped(JobId id, const TaskId& task) {
    auto o = seen(id, task, TaskState::stopping);
    o.ended = o.on_request = true;
    tell(job(id).tasks.at(task).place.node, o);
  }
  Applied drain(const NodeId& host, bool on = true, Duration within = {}) {
    return apply(CommandType::drain_host, DrainHost{host, host, "disk", "root", on, within});
  }
  Applied leave(JobId id, const NodeId& host, bool forced = false, const std::string& stays = "") {
    return apply(CommandType::move_job, MoveJob{id, job(id).generation, host, forced, stays});
  }
  Applied extend(JobId id, const TaskId& task, const NodeId& host) {
    return apply(CommandType::extend_generation,
                 BeginGeneration{id, job(id).generation, {{task, host, {"127.0.0.1", next_port_++}, {}}}, {}, "", "", 0, {}});
  }
  const TaskRecord& task(JobId id, const TaskId& t) const { return job(id).tasks.at(t); }
};

TEST_F(LedgerDrain, ADrainedHostIsGivenNothing) {
  EXPECT_TRUE(drain("n2").status);
  EXPECT_TRUE(ledger_.take_drains());
  EXPECT_THAT(event_types(), Contains("node.drained"));
  const JobId id = submit(generic_job(2));
  EXPECT_THAT(begin_on(id, {"n1", "n2"}).status.error().message, HasSubstr("drained"));
  EXPECT_EQ(job(id).generation, 0u);
  EXPECT_TRUE(drain("n2", false).status);
  EXPECT_THAT(event_types(), Contains("node.undrained"));
  EXPECT_TRUE(begin_on(id, {"n1", "n2"}).status);
}

TEST_F(LedgerDrain, SaidAgainItIsTheSameDrain) {
  drain("n2", true, 10min);
  const auto first = ledger_.state().drained.at("n2");
  pass(1min);
  EXPECT_TRUE(drain("n2").status);
  const auto& again = ledger_.state().drained.at("n2");
  EXPECT_EQ(again.index, first.index);
  EXPECT_EQ(again.deadline, first.deadline) << "the deadline that there is stays";
  EXPECT_TRUE(drain("n2", false).status);
  EXPECT_TRUE(drain("n2", false).status);
  EXPECT_EQ(std::ranges::count(event_types(), "node.drained"), 1);
  EXPECT_EQ(std::ranges::count(event_types(), "node.undrained"), 1);
}

TEST_F(LedgerDrain, ATaskThatNobodyMissesMovesAloneAndAtNoCost) {
  job::JobSpec spec = generic_job(2);
  spec.policy.backoff_limit = 0;  // no restart is left
  const JobId id = submit(spec);
  run_on(id, {"n1", "n2"});
  drain("n2");
  const TaskId mover{"worker", 1};
  ASSERT_TRUE(leave(id, "n2").status);
  EXPECT_TRUE(task(id, mover).moving);
  EXPECT_FALSE(task(id, {"worker", 0}).moving);
  EXPECT_FALSE(extend(id, mover, "n3").status) << "it has not ended";
  EXPECT_FALSE(leave(id, "n2").status) << "it is leaving already";
  stopped(id, mover);
  EXPECT_TRUE(task(id, mover).lost);
  EXPECT_FALSE(task(id, mover).moving);
  EXPECT_FALSE(extend(id, mover, "n2").status);
  ASSERT_TRUE(extend(id, mover, "n3").status);
  for (const TaskState state : {TaskState::staged, TaskState::running}) tell("n3", seen(id, mover, state));
  EXPECT_EQ(job(id).state, JobState::running);
  EXPECT_EQ(job(id).generation, 1u);
  EXPECT_EQ(job(id).restarts, 0u);
  EXPECT_EQ(job(id).budget_spent, 0u);
  EXPECT_FALSE(job(id).first_fault);
}

TEST_F(LedgerDrain, ATaskThatFinishesWhileItLeavesIsDone) {
  const JobId id = submit(generic_job(2));
  run_on(id, {"n1", "n2"});
  drain("n2");
  ASSERT_TRUE(leave(id, "n2").status);
  auto o = died(id, {"worker", 1}, TaskState::succeeded, 0, 0);
  o.ended = true;
  tell("n2", o);
  EXPECT_TRUE(task(id, {"worker", 1}).completed);
  EXPECT_FALSE(task(id, {"worker", 1}).lost);
}

TEST_F(LedgerDrain, WhatIsScaledAwayMeanwhileIsNotBegunElsewhere) {
  const JobId id = submit(generic_job(2));
  run_on(id, {"n1", "n2"});
  drain("n2");
  ASSERT_TRUE(leave(id, "n2").status);
  act(id, ActionKind::scale, [](JobAction& a) { a.role = "worker", a.replicas = 1; });
  stopped(id, {"worker", 1});
  EXPECT_FALSE(job(id).tasks.contains({"worker", 1}));
}

TEST_F(LedgerDrain, AJobOfRanksLeavesWholeWithGrace) {
  const JobId id = submit(ps_job());
  run_on(id, {"n1", "n2"});
  drain("n2");
  ASSERT_TRUE(leave(id, "n2").status);
  EXPECT_EQ(job(id).halt, Halt::replace);
  EXPECT_EQ(job(id).state, JobState::restarting);
  EXPECT_TRUE(job(id).graceful);
  EXPECT_TRUE(job(id).needs_generation);
  everything_ended(id);
  for (const auto& [t, r] : std::map(job(id).tasks))
    if (!r.ended) stopped(id, t);
  ASSERT_TRUE(job(id).nothing_runs());
  EXPECT_EQ(job(id).state, JobState::pending);
  EXPECT_FALSE(begin_on(id, {"n1", "n2"}).status);
  ASSERT_TRUE(begin_on(id, {"n1", "n3"}).status);
  EXPECT_EQ(job(id).restarts, 0u);
  EXPECT_EQ(job(id).budget_spent, 0u);
}

TEST_F(LedgerDrain, WhyAJobStaysIsKnownUntilItLeaves) {
  const JobId id = submit(generic_job(2));
  run_on(id, {"n1", "n2"});
  EXPECT_FALSE(leave(id, "n2", false, "no room").status) << "it is not drained";
  drain("n2");
  ASSERT_TRUE(leave(id, "n2", false, "no room").status);
  EXPECT_EQ(ledger_.state().drained.at("n2").stays.at(id), "no room");
  EXPECT_FALSE(task(id, {"worker", 1}).moving);
  EXPECT_FALSE(leave(id, "n3", false, "no room").status);
  ASSERT_TRUE(leave(id, "n2").status);
  EXPECT_TRUE(ledger_.state().drained.at("n2").stays.empty());
}

TEST_F(LedgerDrain, WhatAFinishedJobLeftRunningEndsOnlyByForce) {
  job::JobSpec spec = ps_job();
  spec.policy.clean_pod_policy = job::CleanPodPolicy::none;
  const JobId id = submit(spec);
  run_on(id, {"n1", "n2"});
  auto chief = died(id, {"chief", 0}, TaskState::succeeded, 0, 0);
  chief.ended = true;
  tell("n1", chief);
  ASSERT_EQ(job(id).state, JobState::succeeded);
  ASSERT_TRUE(job(id).leave_running);
  drain("n2");
  EXPECT_FALSE(leave(id, "n2").status);
  EXPECT_TRUE(leave(id, "n2", true).status);
  EXPECT_FALSE(job(id).leave_running);
}

TEST_F(LedgerDrain, ASnapshotHasIt) {
  drain("n2", true, 10min);
  const auto restored = Ledger::restore(ledger_.snapshot(), 0);
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->snapshot(), ledger_.snapshot());
  EXPECT_TRUE(restored->state().drained.contains("n2"));
}

}  // namespace
}  // namespace dtrain::cluster
