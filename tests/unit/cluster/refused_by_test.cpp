// Hosts that will not have a job: what the ledger keeps of it, and what placement and the queue make of it.
#include <gmock/gmock.h>

#include "common/cluster/job_transition.h"
#include "common/cluster/placement.h"
#include "common/cluster/queue.h"
#include "tests/unit/cluster/hosts.h"
#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;

constexpr const char* kWhy = "prolog ended with 3: no scratch";

class RefusedBy : public LedgerWorld {
 protected:
  TaskObservation refused(JobId id, const TaskId& task, ErrorCode code = ErrorCode::unavailable) {
    TaskObservation o = seen(id, task, TaskState::failed);
    o.attempt = 0;
    o.stage_failed = o.ended = true;
    o.stage_error = code;
    o.host_refused = kWhy;
    o.reason = std::string("could not begin j on host n1: ") + kWhy;
    return o;
  }
  JobId begun() {
    const JobId id = submit(generic_job(2));
    begin(id);
    return id;
  }
};

TEST_F(RefusedBy, IsKeptForAWhileAndCostsNothing) {
  const JobId id = begun();
  report({refused(id, {"worker", 0})});
  EXPECT_THAT(job(id).refused_by, ElementsAre(Key("n1")));
  EXPECT_EQ(job(id).refused_by.at("n1").reason, kWhy);
  EXPECT_EQ(job(id).refused_by.at("n1").until, ledger_.state().elapsed + kRefusedFor);
  EXPECT_EQ(job(id).halt, Halt::replace);
  EXPECT_EQ(job(id).restarts, 0u);
  EXPECT_THAT(in_force(job(id).refused_by, ledger_.state().elapsed + kRefusedFor - 1ns), ElementsAre(Key("n1")));
  EXPECT_THAT(in_force(job(id).refused_by, ledger_.state().elapsed + kRefusedFor), IsEmpty());
}

TEST_F(RefusedBy, AlsoByASecondHostWhileTheFirstHaltsTheGeneration) {
  const JobId id = begun();
  report({refused(id, {"worker", 0})});
  pass(1s);
  report({refused(id, {"worker", 1})});
  EXPECT_EQ(job(id).refused_by.at("n1").until, ledger_.state().elapsed + kRefusedFor);
}

TEST_F(RefusedBy, IsForgottenByARunThatAUserBegins) {
  const JobId id = begun();
  report({refused(id, {"worker", 0})});
  act(id, ActionKind::restart);
  EXPECT_THAT(job(id).refused_by, IsEmpty());
  report({refused(id, {"worker", 1})});
  EXPECT_THAT(job(id).refused_by, IsEmpty()) << "of what it ends";
  act(id, ActionKind::cancel);
  EXPECT_THAT(job(id).refused_by, IsEmpty());
}

class CannotBegin : public LedgerWorld {
 protected:
  // Of `worker`, on n1.
  void fails_to_begin(JobId id, ErrorCode code, const TaskId& task = {"worker", 0}) {
    TaskObservation o = seen(id, task, TaskState::failed);
    o.attempt = 0;
    o.stage_failed = o.ended = true;
    o.stage_error = code;
    o.reason = "could not stage worker-0: something";
    report({o});
  }
  Duration wait(JobId id) { return job(id).refused_by.at("n1").until - ledger_.state().elapsed; }
};

TEST_F(CannotBegin, AFailureToBeginOnAHostCostsAPlacementAndNothingElse) {
  const JobId id = submit(generic_job(1));
  begin(id);
  auto busy = seen(id, {"worker", 0}, TaskState::failed);
  busy.attempt = 0;
  busy.ended = busy.stage_failed = true;
  busy.stage_error = ErrorCode::unavailable;
  busy.reason = "port 20000 is used by pid 1";
  report({busy});
  EXPECT_EQ(job(id).state, JobState::pending);
  EXPECT_TRUE(job(id).needs_generation);
  EXPECT_EQ(job(id).restarts, 0u);
  begin(id);
  auto missing = seen(id, {"worker", 0}, TaskState::failed);
  missing.attempt = 0;
  missing.ended = missing.stage_failed = true;
  missing.stage_error = ErrorCode::not_found;
  missing.reason = "working directory /x does not exist";
  report({missing});
  EXPECT_EQ(job(id).state, JobState::pending) << "another host may have it";
  EXPECT_EQ(job(id).reason, missing.reason);
  EXPECT_TRUE(job(id).refused_by.at("n1").for_good);
  EXPECT_EQ(job(id).restarts, 0u);
}

TEST_F(CannotBegin, ThereForTheMomentAndIsTriedThereOnceMoreThenElsewhereForAGrowingWhile) {
  const JobId id = submit(generic_job(1));
  for (const Duration expected : {0s, 2s, 4s, 8s}) {
    begin(id);
    fails_to_begin(id, ErrorCode::unavailable);
    EXPECT_EQ(wait(id), expected);
    pass(10s);
  }
  for (int i = 0; i < 20; ++i) {
    begin(id);
    fails_to_begin(id, ErrorCode::limit);
    pass(10s);
  }
  EXPECT_EQ(wait(id) + 0s, kRefusedFor);
  EXPECT_FALSE(is_final(job(id).state)) << "it waits, whatever the host lacks";
}

TEST_F(CannotBegin, AndWasBegunThereSince) {
  const JobId id = submit(generic_job(1));
  begin(id);
  fails_to_begin(id, ErrorCode::unavailable);
  begin(id);
  all(id, TaskState::staged);
  EXPECT_THAT(job(id).refused_by, IsEmpty());
}

TEST_F(CannotBegin, WhateverItIsThatOnlyItsUserCanMendElsewhereAtOnce) {
  for (const ErrorCode code : {ErrorCode::invalid, ErrorCode::not_found, ErrorCode::refused, ErrorCode::damaged}) {
    const JobId id = submit(generic_job(1, "j" + std::to_string(static_cast<int>(code))));
    begin(id);
    fails_to_begin(id, code);
    EXPECT_EQ(job(id).state, JobState::pending);
    EXPECT_EQ(wait(id), kRefusedFor);
    EXPECT_TRUE(job(id).refused_by.at("n1").for_good);
  }
}

TEST_F(CannotBegin, ManyTasksOfAGenerationThatFailOnAHostAreOneFailure) {
  const JobId id = submit(generic_job(4));
  for (const Duration avoided : {Duration{0}, kAvoidedFirst}) {
    begin(id);
    std::vector<TaskObservation> all;
    for (std::uint32_t index = 0; index < 4; ++index) {
      TaskObservation o = seen(id, {"worker", index}, TaskState::failed);
      o.attempt = 0;
      o.stage_failed = o.ended = true;
      o.stage_error = ErrorCode::unavailable;
      o.reason = "port 20007 is used";
      all.push_back(o);
    }
    report(all);
    EXPECT_EQ(ledger_.state().avoided.at("n1").at("alice").until, avoided == 0s ? 0s : ledger_.state().elapsed + avoided);
    pass(10s);
  }
  EXPECT_EQ(job(id).refused_by.at("n1").times, 2u);
  EXPECT_EQ(ledger_.state().avoided.at("n1").at("alice").reason, "job j could not begin there: port 20007 is used");
}

TEST_F(CannotBegin, SeveralInARowAndTheHostIsAvoidedForThatUsersJobsAlone) {
  const auto submit_as = [&](const std::string& user, const std::string& name) {
    return apply(CommandType::submit, SubmitJob{wire::encode(generic_job(1, name)), {user, 1000}, "", false, ""}).job;
  };
  const JobId first = submit_as("alice", "a"), second = submit_as("alice", "b"), third = submit_as("alice", "c"),
              other = submit_as("bob", "d");
  const auto avoided = [&](JobId id) { return ledger_.refusals(job(id), ledger_.state().elapsed).contains("n1"); };
  begin(first);
  fails_to_begin(first, ErrorCode::io);
  EXPECT_FALSE(avoided(third)) << "once is chance";
  begin(second);
  fails_to_begin(second, ErrorCode::io);
  EXPECT_TRUE(avoided(third));
  EXPECT_FALSE(avoided(other));
  pass(kAvoidedFirst);
  apply(CommandType::events_told, EventsTold{});
  EXPECT_FALSE(avoided(third));
  begin(third);
  all(third, TaskState::staged);
  EXPECT_THAT(ledger_.state().avoided, IsEmpty());
}

TEST_F(CannotBegin, SinceItsPortIsSomebodyElsesAndThatIsNoFaultOfIt) {
  job::JobSpec spec = generic_job(1);
  spec.policy.backoff_limit = 0;
  const JobId id = submit(spec);
  const auto loses_its_port = [&] {
    TaskObservation o = died(id, {"worker", 0}, TaskState::failed, 0, 1);
    o.exit->port_taken = o.spared = o.stage_failed = o.ended = true;
    o.stage_error = ErrorCode::unavailable;
    o.reason = "could not start worker-0: port 20000 is used by pid 7";
    report({o});
  };
  for (std::uint32_t lost = 1; lost <= kFreePortsLost; ++lost) {
    run(id);
    loses_its_port();
    EXPECT_EQ(job(id).state, JobState::pending) << job(id).reason;
    pass(1min);
  }
  EXPECT_EQ(job(id).budget_spent, 0u);
  EXPECT_FALSE(job(id).first_fault);
  EXPECT_TRUE(job(id).tasks.at({"worker", 0}).failures.empty());
  run(id);
  pass(spec.policy.restart_backoff.reset_after);
  loses_its_port();
  EXPECT_EQ(job(id).state, JobState::pending) << "it ran well in between";
  for (std::uint32_t lost = 1; lost <= kFreePortsLost; ++lost) {
    run(id);
    loses_its_port();
    pass(1min);
  }
  EXPECT_EQ(job(id).state, JobState::failed) << "else who gives its port away is begun again for ever";
}

Refusals refusals(std::vector<NodeId> hosts) {
  Refusals all;
  for (const NodeId& host : hosts) all[host] = {1h, kWhy, 1, false};
  return all;
}

TEST(RefusedPlacement, LeavesTheseHostsOutAndSaysSo) {
  const job::JobSpec spec = workers_job(2, 1);
  const Capacity hosts({host("h1", 4), host("h2", 4), host("h3", 4)});
  const auto placed = place(spec, workers(2), hosts, {}, refusals({"h1", "h3"}));
  ASSERT_TRUE(placed);
  for (const auto& p : *placed) EXPECT_EQ(p.node, "h2");
  EXPECT_EQ(
      place(spec, workers(2), hosts, {}, refusals({"h1", "h2", "h3"})).error().message,
      "worker-0 needs a host that takes this job, none of 3 hosts does now (h1 refused it: prolog ended with 3: no scratch; h2 refused it: "
      "prolog ended with 3: no scratch; ...)");
  EXPECT_THAT(place(workers_job(5, 1), workers(5), hosts, {}, refusals({"h1", "h3"})).error().message,
              HasSubstr("; 2 of 3 hosts do not take this job now (h1 refused it: prolog ended with 3: no scratch; h3 refused"));
}

class RefusedQueue : public ::testing::Test {
 protected:
  WaitingJob waiting(JobId id, const job::JobSpec& spec, Refusals refused = {}) {
    WaitingJob job{id, &spec, wanted_tasks(spec), Duration(id), {}, false, {}};
    job.refused = std::move(refused);
    return job;
  }
  JobQueue queue_;
};

TEST_F(RefusedQueue, KeepsNobodyElseFromAHost) {
  const job::JobSpec spec = workers_job(1, 4);
  const Capacity free({host("h1", 4), host("h2", 4)});
  const Decision all =
      queue_.decide(free, {}, {waiting(1, spec, refusals({"h1", "h2"})), waiting(2, spec), waiting(3, spec, refusals({"h1"}))}, 10s);
  ASSERT_EQ(all.starts.size(), 2u);
  EXPECT_EQ(all.starts[0].job, 2u);
  EXPECT_EQ(all.starts[1].job, 3u);
  EXPECT_EQ(all.starts[1].placements[0].node, "h2");
  EXPECT_FALSE(all.reservation) << "it waits for no end of others";
  ASSERT_EQ(all.waits.size(), 1u);
  EXPECT_EQ(all.waits[0].kind, WaitKind::behind) << "it may run later";
  EXPECT_THAT(all.waits[0].reason, HasSubstr("h1 refused it"));
}

TEST_F(RefusedQueue, AReservationIsNotOfSuchAHost) {
  const job::JobSpec spec = workers_job(1, 4);
  const Capacity hosts({host("h1", 4), host("h2", 4)});
  std::vector<RunningJob> running;
  Capacity free = hosts;
  for (const JobId id : {7u, 8u}) {
    RunningJob job{.id = id, .spec = &spec, .placements = *place(spec, workers(1), free), .started = 0s, .ends_by = {}};
    free.hold(spec, job.placements);
    running.push_back(job);
  }
  const std::string first = running[0].placements[0].node;
  const Decision kept = queue_.decide(free, running, {waiting(9, spec)}, 10s);
  ASSERT_TRUE(kept.reservation);
  const NodeId before = kept.reservation->placements[0].node;
  const Decision other = queue_.decide(free, running, {waiting(9, spec, refusals({before}))}, 11s);
  ASSERT_TRUE(other.reservation);
  EXPECT_NE(other.reservation->placements[0].node, before);
}

}  // namespace
}  // namespace dtrain::cluster
