// What dies of another task's ordered or lost end costs nothing, whichever is heard of first.
#include <gmock/gmock.h>

#include "common/base/limits.h"
#include "common/cluster/job_transition.h"
#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

using ::testing::IsEmpty;

const TaskId kPs{"ps", 0}, kChief{"chief", 0}, kWorker{"worker", 0};

class Consequences : public LedgerWorld {
 protected:
  // ps on n2, the others on n1.
  void begin_on_two(JobId id) {
    const JobRecord& j = job(id);
    BeginGeneration b;
    b.job = id;
    b.generation = j.generation + 1;
    for (const auto& [name, r] : j.spec.roles)
      for (std::uint32_t i = 0; i < r.replicas; ++i)
        b.placements.push_back({{name, i}, name == "ps" ? "n2" : "n1", {"127.0.0.1", next_port_++}, {}});
    ASSERT_TRUE(apply(CommandType::begin_generation, b).status);
    for (const TaskState state : {TaskState::staged, TaskState::running}) {
      std::vector<TaskObservation> here, there;
      for (const auto& [task, t] : job(id).tasks) (t.place.node == "n2" ? there : here).push_back(seen(id, task, state));
      report(here);
      report_of_n2(there);
    }
    ASSERT_EQ(job(id).state, JobState::running);
  }
  void report_of_n2(std::vector<TaskObservation> tasks) { apply(CommandType::report, HostReport{"n2", std::move(tasks), 0, 0, "n2"}); }
  TaskObservation ended_with_its_host(JobId id) {
    TaskObservation o = died(id, kPs, TaskState::backoff, 15);
    o.exit->with_host = o.spared = true;
    return o;
  }
  void everything_ends(JobId id) {
    everything_ended(id);
    std::vector<TaskObservation> rest;
    for (const auto& [task, t] : job(id).tasks)
      if (!t.ended) {
        rest.push_back(seen(id, task, TaskState::stopping));
        rest.back().ended = rest.back().on_request = true;
      }
    report_of_n2(rest);
  }
  job::JobSpec spec() {
    job::JobSpec s = ps_job();
    s.policy.failure_threshold = {3, 6h};
    s.policy.backoff_limit = 2;
    return s;
  }
};

TEST_F(Consequences, RollingRebootsOfAPsHostNeverFailTheJob) {
  const JobId id = submit(spec());
  for (int i = 0; i < 8; ++i) {
    begin_on_two(id);
    report({died(id, kChief, TaskState::failed, 0, 1)});  // its ps is gone: heard of before the reason is
    EXPECT_EQ(job(id).state, JobState::recovering);
    pass(5s);
    report_of_n2({ended_with_its_host(id)});
    EXPECT_EQ(job(id).budget_spent, 0u);
    EXPECT_THAT(job(id).tasks.at(kChief).failures, IsEmpty());
    EXPECT_FALSE(job(id).first_fault);
    everything_ends(id);
    ASSERT_FALSE(is_final(job(id).state)) << i << ": " << job(id).reason;
    pass(10min);
  }
}

// A rank's sibling may be reported first, and what follows from the halt is no fault at all.
TEST_F(Consequences, TheFirstFaultIsTheFirstByTime) {
  apply(CommandType::raise_version, RaiseVersion{kNewestVersion});
  const JobId id = submit(spec());
  begin_on_two(id);
  const auto died_at = [&](const TaskId& task, std::int64_t ms) {
    TaskObservation o = died(id, task, TaskState::failed, 0, 1);
    o.exit->ended = WallTime(std::chrono::milliseconds(ms));
    return o;
  };
  report({died_at(kChief, 2000)});
  ASSERT_EQ(job(id).state, JobState::recovering);
  report_of_n2({died_at(kPs, 1000)});
  EXPECT_EQ(job(id).first_fault->task, kPs);
  TaskObservation halted = died_at(kWorker, 500);
  halted.on_request = true;
  report({halted});
  EXPECT_EQ(job(id).first_fault->task, kPs) << "that end was ordered";
  EXPECT_EQ(job(id).budget_spent, 1u);
}

// A rank that has recorded its exception may take long to end: it is overtaken by those that fail because of it, and killed.
TEST_F(Consequences, TheFirstFaultIsTheFirstThatARankRecorded) {
  apply(CommandType::raise_version, RaiseVersion{kNewestVersion});
  const JobId id = submit(spec());
  begin_on_two(id);
  const auto recorded = [&](const TaskId& task, std::int64_t ended_ms, std::int64_t at_ms) {
    TaskObservation o = died(id, task, TaskState::failed, 0, 1);
    o.exit->ended = WallTime(std::chrono::milliseconds(ended_ms));
    o.exit->recorded = job::RecordedError{2, WallTime(std::chrono::milliseconds(at_ms)), "ValueError: of " + task.text(), "stack"};
    return o;
  };
  report({recorded(kChief, 2000, 1900)});
  report_of_n2({recorded(kPs, 2500, 1000)});
  EXPECT_EQ(job(id).first_fault->task, kPs) << "it ended later";
  EXPECT_EQ(job(id).first_fault->exit.recorded->message, "ValueError: of " + kPs.text());
  TaskObservation halted = recorded(kWorker, 3000, 500);
  halted.on_request = true;
  report({halted});
  EXPECT_EQ(job(id).first_fault->task, kWorker) << "it was killed after that";
  EXPECT_EQ(job(id).budget_spent, 1u);
}

TEST_F(Consequences, WhatFailsAfterwardsIsOneToo) {
  const JobId id = submit(spec());
  begin_on_two(id);
  report_of_n2({ended_with_its_host(id)});
  pass(1s);
  report({died(id, kWorker, TaskState::backoff, 0, 1)});
  EXPECT_THAT(job(id).tasks.at(kWorker).failures, IsEmpty());
  EXPECT_FALSE(job(id).first_fault);
  pass(kConsequence + 1s);
  TaskObservation again = died(id, kWorker, TaskState::backoff, 0, 1);
  again.attempt = again.exit_attempt = job(id).tasks.at(kWorker).attempt + 1;
  report({again});
  EXPECT_EQ(job(id).tasks.at(kWorker).failures.size(), 1u) << "long after: its own fault";
  EXPECT_TRUE(job(id).first_fault);
}

TEST_F(Consequences, OfALostHostCostTheLossAlone) {
  const JobId id = submit(spec());
  begin_on_two(id);
  report({died(id, kWorker, TaskState::backoff, 0, 1)});
  EXPECT_EQ(job(id).tasks.at(kWorker).failures.size(), 1u);
  pass(7s);
  apply(CommandType::host_lost, HostLost{"n2", "n2", true, 0});
  EXPECT_THAT(job(id).tasks.at(kWorker).failures, IsEmpty());
  EXPECT_FALSE(job(id).first_fault);
  EXPECT_EQ(job(id).state, JobState::recovering);
  EXPECT_EQ(job(id).budget_spent, 1u);
}

// A reboot that takes longer than timing.downGrace; and a host that vanished, for a job may be the reason.
TEST_F(Consequences, TheLossOfAHostThatWasStoppedInOrderCostsNothing) {
  for (const bool ordered : {true, false}) {
    job::JobSpec s = spec();
    s.name = ordered ? "stopped" : "vanished";
    s.policy.backoff_limit = 0;
    const JobId id = submit(s);
    begin_on_two(id);
    apply(CommandType::host_lost, HostLost{"n2", "n2", true, 0, ordered});
    EXPECT_EQ(job(id).state, ordered ? JobState::recovering : JobState::failed) << job(id).reason;
    EXPECT_EQ(job(id).budget_spent, 0u);
    apply(CommandType::report, HostReport{"n2", {}, 1, 1, "n2", ledger_.state().lost.at("n2").index});
    act(id, ActionKind::cancel);
    everything_ends(id);
  }
}

TEST_F(Consequences, WhatFailedForGoodLatelyWaitsForTheCoordinatorsWord) {
  const JobId id = submit(spec());
  begin_on_two(id);
  TaskObservation o = died(id, kWorker, TaskState::failed, 0, 1);
  o.reason = "failed 3 times within the failure threshold's window";
  report({o});
  ASSERT_TRUE(job(id).doubted);
  EXPECT_EQ(job(id).state, JobState::recovering);
  EXPECT_FALSE(job(id).progressing);
  pass(4s);
  apply(CommandType::host_lost, HostLost{"n2", "n2", true, 0});
  EXPECT_FALSE(job(id).doubted) << "its ps was being lost";
  EXPECT_EQ(job(id).state, JobState::recovering);
  EXPECT_EQ(job(id).halt, Halt::recovery);
}

// With policy.successPercent, too: the worker that was one too many may have left because a host was being lost.
TEST_F(Consequences, AWorkerTooManyIsInDoubtToo) {
  apply(CommandType::raise_version, RaiseVersion{3});
  job::JobSpec s = spec();
  s.framework = job::Framework::generic;
  s.roles.erase("chief");
  s.policy.success_percent = 100;
  const JobId id = submit(s);
  begin_on_two(id);
  TaskObservation o = died(id, kWorker, TaskState::failed, 0, 1);
  o.reason = "failed 3 times within the failure threshold's window";
  report({o});
  ASSERT_TRUE(job(id).doubted) << job(id).reason;
  EXPECT_THAT(job(id).doubt, ::testing::HasSubstr("fewer than successPercent"));
  pass(4s);
  apply(CommandType::host_lost, HostLost{"n2", "n2", true, 0});
  EXPECT_FALSE(job(id).doubted);
  EXPECT_EQ(job(id).halt, Halt::recovery);
  EXPECT_FALSE(job(id).tasks.at(kWorker).given_up);
}

TEST_F(Consequences, ABudgetThatIsUsedUpIsInDoubtToo) {
  for (const TaskId& first : {kChief, kWorker}) {  // one that needs a recovery, one whose restart is granted
    job::JobSpec s = spec();
    s.name = "j-" + first.role;
    s.policy.backoff_limit = 0;
    const JobId id = submit(s);
    begin_on_two(id);
    report({died(id, first, first == kChief ? TaskState::failed : TaskState::backoff, 0, 1)});
    ASSERT_TRUE(job(id).doubted) << job(id).reason;
    EXPECT_EQ(job(id).state, JobState::recovering);
    pass(1s);
    report_of_n2({ended_with_its_host(id)});
    EXPECT_FALSE(job(id).doubted);
    everything_ends(id);
    EXPECT_FALSE(is_final(job(id).state)) << job(id).reason;
    EXPECT_TRUE(job(id).needs_generation);
    EXPECT_EQ(job(id).budget_spent, 0u);
  }
}

// The budget is spent by a task that had failed an hour before, too. The first version of the ledger did not wait then.
TEST_F(Consequences, AFailureOfLongBeforeMakesTheLastOneNoLessDoubtful) {
  for (const std::uint32_t version : {1u, 2u}) {
    if (version > 1) apply(CommandType::raise_version, RaiseVersion{version});
    ASSERT_EQ(ledger_.state().version, version);
    job::JobSpec s = spec();
    s.name = "v" + std::to_string(version);
    s.policy.backoff_limit = 1;
    const JobId id = submit(s);
    begin_on_two(id);
    report({died(id, kWorker, TaskState::backoff, 0, 1)});
    TaskObservation again = seen(id, kWorker, TaskState::running);
    again.attempt = job(id).tasks.at(kWorker).granted_attempt;
    report({again});
    pass(1h);
    report({died(id, kWorker, TaskState::backoff, 0, 1)});
    EXPECT_EQ(job(id).doubted.has_value(), version > 1) << job(id).reason;
    EXPECT_EQ(job(id).state, version > 1 ? JobState::recovering : JobState::failed);
    act(id, ActionKind::cancel);
    everything_ends(id);
  }
}

// Each time that it finds its ps away it gives up anew. The list of failures is no longer than the failure threshold asks for.
TEST_F(Consequences, AllThatWasCountedIsGivenBack) {
  for (const bool suspended : {false, true}) {
    job::JobSpec s = spec();
    s.name = suspended ? "suspended" : "runs";
    s.policy.failure_threshold.count = 1;
    s.policy.backoff_limit = 5;
    const JobId id = submit(s);
    begin_on_two(id);
    for (std::uint32_t i = 1; i <= 3; ++i) {
      report({died(id, kWorker, TaskState::backoff, 0, 1)});
      EXPECT_EQ(job(id).budget_spent, i);
      pass(1s);
      TaskObservation again = seen(id, kWorker, TaskState::running);
      again.attempt = job(id).tasks.at(kWorker).granted_attempt;
      report({again});
    }
    if (suspended) act(id, ActionKind::suspend);
    report_of_n2({ended_with_its_host(id)});
    EXPECT_EQ(job(id).budget_spent, 0u) << s.name;
    EXPECT_FALSE(is_final(job(id).state));
  }
}

TEST_F(Consequences, WhatTheLossItselfCostIsNotGivenBack) {
  const JobId id = submit(spec());
  begin_on_two(id);
  apply(CommandType::host_lost, HostLost{"n2", "n2", true, 0});
  ASSERT_EQ(job(id).budget_spent, 1u);
  pass(5s);
  TaskObservation o = died(id, kWorker, TaskState::failed, 15);
  o.exit->with_host = o.spared = true;
  report({o});
  EXPECT_EQ(job(id).budget_spent, 1u);
}

TEST_F(Consequences, WhatFailedFirstSaysWhy) {
  job::JobSpec s = spec();
  s.policy.backoff_limit = 0;
  const JobId id = submit(s);
  begin_on_two(id);
  report({died(id, kChief, TaskState::failed, 0, 7)});
  const std::string why = job(id).doubt;
  report({died(id, kWorker, TaskState::backoff, 0, 1)});
  EXPECT_EQ(job(id).doubt, why);
  EXPECT_THAT(why, ::testing::StartsWith("chief-0: exit code 7"));
}

TEST_F(Consequences, WhereNobodyIsLostItHasFailed) {
  const JobId id = submit(spec());
  begin_on_two(id);
  TaskObservation o = died(id, kWorker, TaskState::failed, 0, 1);
  o.reason = "failed 3 times within the failure threshold's window";
  report({o});
  const std::string doubt = job(id).doubt;
  apply(CommandType::finish, FinishJob{id, JobState::failed, doubt});
  EXPECT_EQ(job(id).state, JobState::failed);
  EXPECT_EQ(job(id).reason, "worker-0: exit code 1: failed 3 times within the failure threshold's window");
}

TEST_F(Consequences, OnOneHostNobodyIsWaitedFor) {
  const JobId id = submit(spec());
  run(id);
  TaskObservation o = died(id, kWorker, TaskState::failed, 0, 1);
  o.reason = "failed 3 times within the failure threshold's window";
  report({o});
  EXPECT_EQ(job(id).state, JobState::failed);
}

class Names : public LedgerWorld {
 protected:
  Applied submit_again(const job::JobSpec& spec) {
    return apply(CommandType::submit, SubmitJob{wire::encode(spec), {"alice", 1000}, "", false, ""});
  }
};

TEST_F(Names, ASubmitBehindADeleteIsTheNextJobOfThatName) {
  for (const std::uint32_t workers : {1u, 2u}) {  // the same content, and other
    const JobId old = submit(generic_job(1));
    run(old);
    ASSERT_TRUE(act(old, ActionKind::remove, [](JobAction& a) { a.force = true; }).status);
    const Applied next = submit_again(generic_job(workers));
    ASSERT_TRUE(next.status) << next.status.error().text();
    EXPECT_FALSE(next.unchanged);
    EXPECT_NE(next.job, old);
    EXPECT_EQ(job(next.job).follows, old);
    EXPECT_EQ(ledger_.find("j")->id, next.job);
    everything_ended(old);
    apply(CommandType::forget, ForgetJob{old});
    EXPECT_EQ(ledger_.find(old), nullptr);
    ASSERT_NE(ledger_.find("j"), nullptr) << "it does not go with the old one";
    EXPECT_EQ(ledger_.find("j")->id, next.job);
    EXPECT_TRUE(submit_again(generic_job(workers)).unchanged);
    act(next.job, ActionKind::remove, [](JobAction& a) { a.force = true; });
    EXPECT_EQ(ledger_.find("j"), nullptr);
  }
}

// One that ignores its stop signal, with a grace of years.
TEST_F(Names, WhoGaveItsNameAwayIsFoundByItOnceNobodyElseHasItAndCanBeKilled) {
  const JobId old = submit(generic_job(1));
  run(old);
  const auto remove = [&](JobId id, const std::string& request) {
    JobAction a;
    a.kind = ActionKind::remove;
    a.job = id;
    a.user = "alice";
    a.force = true;
    a.request_id = request;
    return apply(CommandType::action, a).status;
  };
  EXPECT_TRUE(remove(old, "r1"));
  const JobId next = submit_again(generic_job(2)).job;
  EXPECT_TRUE(remove(next, "r2"));
  ASSERT_EQ(ledger_.find(next), nullptr);
  ASSERT_NE(ledger_.find("j"), nullptr);
  EXPECT_EQ(ledger_.find("j")->id, old);
  EXPECT_EQ(Ledger::restore(ledger_.snapshot(), 0)->find("j")->id, old);
  EXPECT_TRUE(remove(old, "r1")) << "the same request, sent again";
  EXPECT_TRUE(job(old).graceful);
  EXPECT_EQ(job(submit_again(generic_job(3)).job).follows, old) << "nothing begins beside it";
  EXPECT_TRUE(remove(ledger_.find("j")->id, "r3"));
  EXPECT_TRUE(remove(old, "r4"));
  EXPECT_FALSE(job(old).graceful) << "killed";
  everything_ended(old);
  apply(CommandType::forget, ForgetJob{old});
  EXPECT_EQ(ledger_.find("j"), nullptr);
}

TEST_F(Names, NobodyTakesAllActiveJobsFromOthers) {
  const std::size_t share = limits::kActiveJobs / 2;
  job::JobSpec spec = generic_job(1);
  spec.suspend = true;
  const auto submit_as = [&](const std::string& user, std::size_t number) {
    spec.name = user + std::to_string(number);
    return apply(CommandType::submit, SubmitJob{wire::encode(spec), {user, 1000}, "", false, ""}).status;
  };
  for (std::size_t i = 0; i < share; ++i) ASSERT_TRUE(submit_as("mallory", i));
  const Status more = submit_as("mallory", share);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, ErrorCode::limit);
  EXPECT_TRUE(submit_as("alice", 0));
}

TEST_F(Names, AUsersJobFilesHaveABudgetAndEndedOnesGoFirst) {
  job::JobSpec spec = generic_job(1);
  spec.suspend = true;
  for (int i = 0; i < 8; ++i) spec.env["A" + std::to_string(i)] = std::string(100'000, 'x');
  const auto submit_as = [&](const std::string& user, std::size_t number) {
    spec.name = user + std::to_string(number);
    return apply(CommandType::submit, SubmitJob{wire::encode(spec), {user, 1000}, "", false, ""});
  };
  const std::size_t fit = limits::kSpecBytesOfUser / wire::encode(spec).size() - 1;
  std::vector<JobId> jobs;
  for (std::size_t i = 0; i < fit; ++i) jobs.push_back(submit_as("mallory", i).job);
  while (true) {
    const Applied more = submit_as("mallory", jobs.size());
    if (!more.status) {
      EXPECT_EQ(more.status.error().code, ErrorCode::limit);
      break;
    }
    jobs.push_back(more.job);
    ASSERT_LT(jobs.size(), fit + 5);
  }
  EXPECT_TRUE(submit_as("alice", 0).status);
  // One that has ended is not enough for a larger one: what is refused changes nothing.
  act(jobs[1], ActionKind::cancel);
  job::JobSpec larger = spec;
  larger.name = "larger";
  for (int i = 0; i < 8; ++i) larger.env["B" + std::to_string(i)] = std::string(100'000, 'x');
  EXPECT_FALSE(apply(CommandType::submit, SubmitJob{wire::encode(larger), {"mallory", 1000}, "", false, ""}).status);
  EXPECT_NE(ledger_.find(jobs[1]), nullptr);
  larger.name = "mallory1";
  EXPECT_FALSE(apply(CommandType::submit, SubmitJob{wire::encode(larger), {"mallory", 1000}, "", true, ""}).status);
  EXPECT_NE(ledger_.find(jobs[1]), nullptr) << "nor the one that it was to replace";
  EXPECT_TRUE(submit_as("mallory", jobs.size()).status);
  EXPECT_EQ(ledger_.find(jobs[1]), nullptr);
  EXPECT_NE(ledger_.find(jobs[0]), nullptr) << "what is active stays";
  EXPECT_LT(ledger_.snapshot().size(), 256u << 20);
}

TEST_F(Names, WhatRanToItsEndWaitsForItsEvaluatorNoLongerThanSaid) {
  job::JobSpec spec = ps_job();
  spec.roles["evaluator"] = role(1);
  spec.policy.wait_for = {{"evaluator", 10min}};
  const JobId id = submit(spec);
  run(id);
  report({died(id, kChief, TaskState::succeeded, 0, 0)});
  EXPECT_EQ(job(id).state, JobState::running) << to_string(job(id).state);
  ASSERT_TRUE(job(id).evaluators_until);
  EXPECT_EQ(*job(id).evaluators_until, ledger_.state().elapsed + 10min);
  report({died(id, {"evaluator", 0}, TaskState::succeeded, 0, 0)});
  EXPECT_EQ(job(id).state, JobState::succeeded);
}

}  // namespace
}  // namespace dtrain::cluster
