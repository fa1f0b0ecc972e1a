#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

using Ledgers = LedgerWorld;

TEST_F(Ledgers, SubmitThenRunThenSucceed) {
  const JobId id = submit(ps_job());
  EXPECT_EQ(job(id).state, JobState::pending);
  run(id);
  auto chief = died(id, {"chief", 0}, TaskState::succeeded, 0, 0);
  report({chief});
  EXPECT_EQ(job(id).state, JobState::succeeded) << "the chief decides, workers are ignored";
  everything_ended(id);
  for (const auto& [task, t] : job(id).tasks) EXPECT_EQ(t.state, TaskState::succeeded) << task.text();
}

TEST_F(Ledgers, ReplayGivesTheSameBytes) {
  const JobId id = submit(ps_job());
  run(id);
  report({died(id, {"ps", 0}, TaskState::failed)});
  everything_ended(id);
  begin(id, job::Restore{"/c/ckpt-5", 5}, "d5");
  act(submit(generic_job(3, "k")), ActionKind::suspend);
  Ledger again;
  for (std::size_t i = 0; i < log_.size(); ++i) again.apply(i + 1, log_[i]);
  EXPECT_EQ(again.snapshot(), ledger_.snapshot());
  const auto restored = Ledger::restore(ledger_.snapshot(), 0);
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->snapshot(), ledger_.snapshot());
}

TEST_F(Ledgers, SameNameSameContentIsUnchangedOtherContentIsRefused) {
  const JobId id = submit(generic_job(1));
  const Applied same = apply(CommandType::submit, SubmitJob{wire::encode(generic_job(1)), {"alice", 1000}, "", false, ""});
  EXPECT_TRUE(same.status);
  EXPECT_TRUE(same.unchanged);
  EXPECT_EQ(same.job, id);
  const Applied other = apply(CommandType::submit, SubmitJob{wire::encode(generic_job(2)), {"alice", 1000}, "", true, ""});
  ASSERT_FALSE(other.status);
  EXPECT_EQ(other.status.error().code, ErrorCode::refused);
  act(id, ActionKind::cancel);
  const Applied replaced = apply(CommandType::submit, SubmitJob{wire::encode(generic_job(2)), {"alice", 1000}, "", true, ""});
  EXPECT_TRUE(replaced.status);
  EXPECT_EQ(ledger_.find(id), nullptr);
}

// The times of a package's files are in its digest, and make no other job of it.
TEST_F(Ledgers, APackageIsTheSameWhateverTheTimesOfItsFiles) {
  job::JobSpec spec = generic_job(1);
  const auto packed = [&](char digest, char content) {
    spec.package_digest = std::string(64, digest);
    spec.package_content = content == 0 ? "" : std::string(64, content);
    return apply(CommandType::submit, SubmitJob{wire::encode(spec), {"alice", 1000}, "", false, ""});
  };
  EXPECT_TRUE(packed('a', 'c').status);
  EXPECT_TRUE(packed('b', 'c').unchanged);
  EXPECT_FALSE(packed('b', 'd').status);
  EXPECT_FALSE(packed('b', 0).status) << "an older client does not say";
  spec.labels["x"] = "y";
  EXPECT_FALSE(packed('b', 'c').status);
}

TEST_F(Ledgers, WhatEndsBetweenTheDeadlinesSignalAndTheDeadlineEndsTheJob) {
  job::JobSpec spec = ps_job();
  spec.policy.active_deadline = 60s;
  spec.policy.signal_before_deadline = job::SignalBeforeDeadline{10, 20s};
  const JobId id = submit(spec);
  run(id);
  apply(CommandType::signal, SignalJob{id});
  const auto ends = [&](const TaskId& task) {
    auto o = died(id, task, TaskState::stopping, 10);
    o.on_request = o.ended = true;
    report({o});
  };
  ends({"worker", 0});
  ends({"ps", 0});
  EXPECT_EQ(job(id).state, JobState::running) << "the others go on";
  EXPECT_EQ(job(id).halt, Halt::none);
  EXPECT_EQ(job(id).restarts, 0u);
  EXPECT_FALSE(job(id).first_fault);
  for (const TaskId& task : {TaskId{"worker", 1}, TaskId{"ps", 1}, TaskId{"chief", 0}}) ends(task);
  EXPECT_EQ(job(id).state, JobState::failed);
  EXPECT_EQ(job(id).reason, "every task ended after the signal before activeDeadlineSeconds");
}

TEST_F(Ledgers, ARequestIdNamesOneJob) {
  const auto send = [&] {
    job::JobSpec s = generic_job(1, "");
    s.generate_name = "g-";
    return apply(CommandType::submit, SubmitJob{wire::encode(s), {"alice", 1000}, "request-1", false, ""});
  };
  const Applied first = send(), second = send();
  EXPECT_EQ(first.job, second.job);
  EXPECT_TRUE(second.unchanged);
}

TEST_F(Ledgers, WorkerRestartsInPlaceAndIsCounted) {
  const JobId id = submit(ps_job());
  run(id);
  report({died(id, {"worker", 1}, TaskState::backoff)});
  EXPECT_EQ(job(id).state, JobState::restarting);
  auto again = seen(id, {"worker", 1}, TaskState::running);
  again.attempt = 2;
  report({again});
  EXPECT_EQ(job(id).state, JobState::running);
  EXPECT_EQ(job(id).restarts, 1u);
  EXPECT_EQ(job(id).generation, 1u);
  ASSERT_TRUE(job(id).first_fault);
  EXPECT_EQ(job(id).first_fault->task.text(), "worker-1");
}

TEST_F(Ledgers, RestartsWhoseReportsWereLostAreCountedToo) {
  const JobId id = submit(generic_job(1));
  run(id);
  auto later = seen(id, {"worker", 0}, TaskState::running);
  later.attempt = 4;
  report({later});
  EXPECT_EQ(job(id).restarts, 3u);
}

TEST_F(Ledgers, PsDeathHaltsAndTheNextGenerationWaitsForTheLastEnd) {
  const JobId id = submit(ps_job());
  run(id);
  report({died(id, {"ps", 1}, TaskState::failed)});
  EXPECT_EQ(job(id).state, JobState::recovering);
  EXPECT_EQ(job(id).halt, Halt::recovery);
  EXPECT_FALSE(job(id).graceful) << "a recovery kills at once";
  EXPECT_FALSE(begin(id).status) << "tasks of the old generation still run";
  everything_ended(id);
  EXPECT_TRUE(begin(id, job::Restore{"/c/ckpt-7", 7}, "d7").status);
  EXPECT_EQ(job(id).generation, 2u);
  EXPECT_EQ(job(id).tasks.at({"ps", 0}).first_attempt, 2u);
  EXPECT_EQ(job(id).state, JobState::recovering);
  all(id, TaskState::staged);
  all(id, TaskState::running);
  EXPECT_EQ(job(id).state, JobState::running);
  EXPECT_EQ(job(id).restarts, 1u) << "one recovery counts one restart, however many tasks it ended";
}

TEST_F(Ledgers, ReportsOfAnOldGenerationDie) {
  const JobId id = submit(ps_job());
  run(id);
  auto late = died(id, {"ps", 0}, TaskState::failed);
  report({died(id, {"ps", 1}, TaskState::failed)});
  everything_ended(id);
  begin(id);
  report({late});
  EXPECT_EQ(job(id).tasks.at({"ps", 0}).state, TaskState::waiting);
}

TEST_F(Ledgers, ExitsDuringAHaltCountNothing) {
  job::JobSpec s = ps_job();
  s.policy.backoff_limit = 1;
  const JobId id = submit(s);
  run(id);
  report({died(id, {"ps", 1}, TaskState::failed)});
  report({died(id, {"ps", 0}, TaskState::failed), died(id, {"worker", 0}, TaskState::failed)});
  EXPECT_EQ(job(id).state, JobState::recovering);
  EXPECT_EQ(job(id).restarts, 1u);
  EXPECT_EQ(job(id).first_fault->task.text(), "ps-1");
}

TEST_F(Ledgers, BackoffLimitEndsRecoveries) {
  job::JobSpec s = ps_job();
  s.policy.backoff_limit = 1;
  const JobId id = submit(s);
  run(id);
  report({died(id, {"ps", 0}, TaskState::failed)});
  everything_ended(id);
  run(id);
  report({died(id, {"ps", 0}, TaskState::failed)});
  EXPECT_EQ(job(id).state, JobState::failed);
  EXPECT_NE(job(id).reason.find("backoffLimit"), std::string::npos) << job(id).reason;
}

TEST_F(Ledgers, FailureThresholdCountsWithinItsWindow) {
  job::JobSpec s = ps_job();
  s.policy.failure_threshold = {2, 1h};
  const JobId id = submit(s);
  run(id);
  report({died(id, {"ps", 0}, TaskState::failed)});
  everything_ended(id);
  pass(2h);
  run(id);
  report({died(id, {"ps", 0}, TaskState::failed)});
  EXPECT_EQ(job(id).state, JobState::recovering) << "the first one is too old to count";
  everything_ended(id);
  pass(1min);
  run(id);
  report({died(id, {"ps", 0}, TaskState::failed)});
  EXPECT_EQ(job(id).state, JobState::failed);
}

TEST_F(Ledgers, GenericSucceedsWhenAllDo) {
  const JobId id = submit(generic_job(2));
  run(id);
  report({died(id, {"worker", 0}, TaskState::succeeded, 0, 0)});
  EXPECT_EQ(job(id).state, JobState::running);
  report({died(id, {"worker", 1}, TaskState::succeeded, 0, 0)});
  EXPECT_EQ(job(id).state, JobState::succeeded);
}

TEST_F(Ledgers, PsExitZeroCountsForNothing) {
  const JobId id = submit(ps_job());
  run(id);
  report({died(id, {"ps", 0}, TaskState::succeeded, 0, 0)});
  EXPECT_EQ(job(id).state, JobState::running);
}

TEST_F(Ledgers, SuspendWaitsForTheEndAndResumeStartsTimeAnew) {
  job::JobSpec s = generic_job(1);
  s.policy.active_deadline = 1h;
  const JobId id = submit(s);
  run(id);
  EXPECT_TRUE(job(id).progressing);
  act(id, ActionKind::suspend);
  EXPECT_EQ(job(id).state, JobState::restarting);
  EXPECT_FALSE(job(id).progressing) << "its tasks are being ended";
  everything_ended(id);
  EXPECT_EQ(job(id).state, JobState::suspended);
  pass(10h);
  act(id, ActionKind::resume);
  EXPECT_EQ(job(id).state, JobState::pending);
  EXPECT_FALSE(job(id).run_started);
  run(id);
  EXPECT_EQ(job(id).restarts, 0u);
}

TEST_F(Ledgers, DeleteOfARunningJobNeedsForce) {
  const JobId id = submit(generic_job(1));
  run(id);
  EXPECT_FALSE(act(id, ActionKind::remove).status);
  EXPECT_TRUE(act(id, ActionKind::remove, [](JobAction& a) { a.force = true; }).status);
  EXPECT_EQ(job(id).state, JobState::cancelled);
  EXPECT_TRUE(job(id).graceful) << "it has its stop signal and its grace";
  everything_ended(id);
  apply(CommandType::forget, ForgetJob{id});
  EXPECT_EQ(ledger_.find(id), nullptr);
  EXPECT_EQ(ledger_.find("j"), nullptr);
}

TEST_F(Ledgers, ScalingAloneRemovesOnlyWhatIsSurplus) {
  const JobId id = submit(generic_job(3));
  run(id);
  act(id, ActionKind::scale, [](JobAction& a) {
    a.role = "worker";
    a.replicas = 1;
  });
  EXPECT_EQ(job(id).halt, Halt::none);
  for (std::uint32_t i : {1u, 2u}) {
    auto o = seen(id, {"worker", i}, TaskState::stopping);
    o.ended = o.on_request = true;
    report({o});
  }
  EXPECT_EQ(job(id).tasks.size(), 1u);
  EXPECT_EQ(job(id).former_tasks.size(), 2u);
  EXPECT_EQ(job(id).state, JobState::running);
}

TEST_F(Ledgers, ScalingAClusterThatTasksSeeTakesANewGeneration) {
  const JobId id = submit(ps_job());
  run(id);
  act(id, ActionKind::scale, [](JobAction& a) {
    a.role = "worker";
    a.replicas = 3;
  });
  EXPECT_EQ(job(id).halt, Halt::scale);
  EXPECT_TRUE(job(id).graceful);
  EXPECT_EQ(job(id).state, JobState::restarting) << "nobody is told that it runs while its tasks end";
  EXPECT_EQ(job(id).passed, std::vector<JobState>{JobState::restarting}) << "who waits for Running means after this";
  everything_ended(id);
  run(id);
  EXPECT_EQ(job(id).tasks.size(), 6u);
  EXPECT_EQ(job(id).restarts, 0u);
}

TEST_F(Ledgers, AJobThatIsRestartedIsNotRunningBeforeItRunsAgain) {
  const JobId id = submit(ps_job());
  run(id);
  act(id, ActionKind::restart);
  EXPECT_EQ(job(id).state, JobState::restarting);
  EXPECT_EQ(std::ranges::count(job(id).passed, JobState::running), 0);
  everything_ended(id);
  run(id);
  EXPECT_EQ(job(id).state, JobState::running);
}

// Found by the simulator (world cluster, seed 30).
TEST_F(Ledgers, ScalingAwayTheLastThatRunCompletesTheJob) {
  const JobId id = submit(generic_job(2));
  run(id);
  report({died(id, {"worker", 0}, TaskState::succeeded, 0, 0)});
  act(id, ActionKind::scale, [](JobAction& a) {
    a.role = "worker";
    a.replicas = 1;
  });
  EXPECT_EQ(job(id).state, JobState::succeeded);
}

// Found by the simulator (world cluster, seed 2).
TEST_F(Ledgers, ADynamicWorkerMayBeLostButNotTheDecidingOne) {
  job::JobSpec s = ps_job();
  s.roles.erase("chief");
  s.policy.enable_dynamic_worker = true;
  const JobId id = submit(s);
  run(id);
  report({died(id, {"worker", 1}, TaskState::failed)});
  EXPECT_EQ(job(id).state, JobState::running);
  report({died(id, {"ps", 0}, TaskState::failed)});
  everything_ended(id);
  begin(id);
  EXPECT_TRUE(job(id).tasks.at({"worker", 1}).ended) << "it failed for good (simulator, seed 10317)";
  EXPECT_EQ(job(id).tasks.at({"worker", 1}).state, TaskState::failed);
  report({died(id, {"worker", 0}, TaskState::failed)});
  EXPECT_EQ(job(id).state, JobState::failed);
}

// Found by the simulator (world cluster, seed 13).
TEST_F(Ledgers, CleanPodPolicyNoneLeavesWhatRanAtTheEnd) {
  job::JobSpec s = ps_job();
  s.policy.clean_pod_policy = job::CleanPodPolicy::none;
  const JobId id = submit(s);
  run(id);
  report({died(id, {"worker", 1}, TaskState::backoff)});
  report({died(id, {"chief", 0}, TaskState::succeeded, 0, 0)});
  EXPECT_TRUE(job(id).tasks.at({"worker", 0}).left_running);
  EXPECT_FALSE(job(id).tasks.at({"worker", 1}).left_running);
}

TEST_F(Ledgers, RerunIsANewRunOfAFinishedJob) {
  const JobId id = submit(generic_job(1));
  EXPECT_FALSE(act(id, ActionKind::rerun).status);
  run(id);
  report({died(id, {"worker", 0}, TaskState::succeeded, 0, 0)});
  everything_ended(id);
  EXPECT_TRUE(act(id, ActionKind::rerun).status);
  EXPECT_EQ(job(id).state, JobState::pending);
  run(id);
  EXPECT_EQ(job(id).tasks.at({"worker", 0}).first_attempt, 2u);
  EXPECT_EQ(job(id).restarts, 0u);
}

TEST_F(Ledgers, ADeathWhoseReplacementCouldNotBeStagedCostsARestart) {
  job::JobSpec spec = generic_job(1);
  spec.policy.backoff_limit = 1;
  const JobId id = submit(spec);
  for (const bool used_up : {false, true}) {
    begin(id);
    report({seen(id, {"worker", 0}, TaskState::running)});
    auto busy = seen(id, {"worker", 0}, TaskState::failed);
    busy.ended = busy.stage_failed = true;
    busy.stage_error = ErrorCode::unavailable;
    busy.reason = "could not launch";
    report({busy});
    EXPECT_EQ(job(id).restarts, 1u);
    EXPECT_EQ(job(id).state, used_up ? JobState::failed : JobState::pending);
  }
}

TEST_F(Ledgers, ElapsedTimeGoesOnOverARestartOfTheAgentButNotOverAReboot) {
  pass(10s);
  apply(CommandType::coordinator_started, CoordinatorStarted{"n1", "n1", "boot-1"});
  EXPECT_EQ(ledger_.state().elapsed, 10s);
  clock_ = 5s;  // a new kernel counts from its start
  apply(CommandType::coordinator_started, CoordinatorStarted{"n1", "n1", "boot-2"});
  EXPECT_EQ(ledger_.state().elapsed, 10s);
  pass(3s);
  submit(generic_job(1));
  EXPECT_EQ(ledger_.state().elapsed, 13s);
}

TEST_F(Ledgers, AnotherMachinesCoordinatorGoesOnWithWhatTheLogMeasured) {
  const auto applied = [&](CommandType type, const auto& body, Duration log_elapsed) {
    const Now now{Instant(clock_), WallTime(0ms)};
    log_.push_back(make_command(type, epoch_, now, body));
    return ledger_.apply(log_.size(), log_.back(), log_elapsed);
  };
  pass(10s);
  applied(CommandType::coordinator_started, CoordinatorStarted{"n1", "n1", "boot-1"}, 10s);
  const Duration before = ledger_.state().elapsed;
  clock_ = 1000s;  // another machine's clock, which says nothing here
  applied(CommandType::coordinator_started, CoordinatorStarted{"n2", "n2", "boot-2"}, 17s);
  EXPECT_EQ(ledger_.state().elapsed, before + 7s);
  pass(2s);
  applied(CommandType::forget, ForgetJob{77}, 19s);
  EXPECT_EQ(ledger_.state().elapsed, before + 9s);
}

TEST_F(Ledgers, ARequestIsAppliedOnceHoweverOftenItIsProposed) {
  auto spec = generic_job(1, "");
  spec.generate_name = "j-";  // a second one would get a name of its own
  const auto propose = [&](std::uint64_t low, std::uint64_t minted) {
    Command command{epoch_, Instant(clock_), WallTime(0ms), CommandType::submit, "", RequestStamp{7, low, minted}};
    command.body = wire::encode(SubmitJob{wire::encode(spec), {"alice", 1000}, "", false, ""});
    log_.push_back(wire::encode(command));
    return ledger_.apply(log_.size(), log_.back());
  };
  const Applied first = propose(1, 1);
  ASSERT_TRUE(first.status);
  EXPECT_EQ(first.request, (MemberId{7, 1}));
  Applied again = propose(1, 1);
  EXPECT_EQ(again.job, first.job);
  EXPECT_EQ(again.request, first.request);
  // The snapshot carries what was applied.
  ledger_ = *Ledger::restore(ledger_.snapshot(), 0);
  again = propose(1, 1);
  EXPECT_EQ(again.job, first.job);
  EXPECT_EQ(ledger_.state().jobs.size(), 1u);
  again = propose(2, 2);
  EXPECT_EQ(again.job, log_.size()) << "another request";
  EXPECT_FALSE(propose(3, log_.size() + 1).status) << "minted at an entry that is not there yet";
  act(first.job, ActionKind::remove, [](JobAction& a) { a.force = true; });
  EXPECT_FALSE(propose(1, 1).status) << "what came of it is gone";
  EXPECT_EQ(ledger_.state().jobs.size(), 1u);
}

TEST_F(Ledgers, ANumberedReportCountsOnce) {
  const JobId id = submit(generic_job(1));
  begin(id);
  const auto say = [&](TaskState state, std::uint64_t life, std::uint64_t sequence) {
    apply(CommandType::report, HostReport{"n1", {seen(id, {"worker", 0}, state)}, life, sequence, "n1"});
    return job(id).tasks.begin()->second.state;
  };
  EXPECT_EQ(say(TaskState::staged, 2, 1), TaskState::staged);
  EXPECT_EQ(say(TaskState::running, 2, 2), TaskState::running);
  EXPECT_EQ(say(TaskState::staged, 2, 1), TaskState::running) << "a repetition";
  EXPECT_EQ(say(TaskState::staged, 1, 9), TaskState::running) << "of an earlier life";
  EXPECT_EQ(ledger_.state().reports.at("n1"), (ReportMark{2, 2}));
}

TEST_F(Ledgers, AnEventNamesTheHostOfItsTask) {
  const JobId id = submit(generic_job(1));
  begin(id);
  apply(CommandType::coordinator_started, CoordinatorStarted{"n2", "h2", "boot-2"});
  apply(CommandType::report, HostReport{"n1", {seen(id, {"worker", 0}, TaskState::running)}, 1, 1, "h1"});
  ASSERT_EQ(ledger_.events().back().type, "job.running");
  const LedgerEvent& running = *std::prev(ledger_.events().end(), 2);
  ASSERT_EQ(running.type, "task.running");
  const auto node = std::find_if(running.details.begin(), running.details.end(), [](const auto& d) { return d.key == "node"; });
  ASSERT_NE(node, running.details.end());
  EXPECT_EQ(running.details.front().key, "task");
  EXPECT_EQ(running.details.front().value, "j/worker-0");
  EXPECT_EQ(node->value, "h1");
}

TEST_F(Ledgers, RestedPortsOfAnyHostAreForgotten) {
  const JobId first = submit(generic_job(1));
  begin(first);
  apply(CommandType::coordinator_started, CoordinatorStarted{"n2", "h2", "boot-2"});
  pass(kPortRest + 1s);
  const JobId second = submit(generic_job(1, "second"));
  begin(second);
  EXPECT_EQ(ledger_.state().ports.at("n1").size(), 1u) << "that of the second";
}

TEST_F(Ledgers, TwoFruitlessRestoresAreCountedAndAVerifiedOneSetsThemBack) {
  job::JobSpec spec = ps_job();
  spec.checkpoint.emplace().dir = "/c";
  const JobId id = submit(spec);
  begin(id, job::Restore{"/c/ckpt-5", 5}, "d5");
  all(id, TaskState::staged);
  all(id, TaskState::running);
  report({died(id, {"ps", 0}, TaskState::failed)});
  EXPECT_EQ(job(id).fruitless_restores, 1u);
  transfer::CheckpointInfo later;
  later.path = "/c/ckpt-6";
  later.step = 6;
  later.digest = "d6";
  apply(CommandType::checkpoint, CheckpointSeen{id, later, CheckpointState::verified, "", "", {}});
  EXPECT_EQ(job(id).fruitless_restores, 0u);
  EXPECT_TRUE(job(id).committed_once);
}

}  // namespace
}  // namespace dtrain::cluster
