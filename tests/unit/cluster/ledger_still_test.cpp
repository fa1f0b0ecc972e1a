// A job of which a task is frozen for want of a lease, or must be: nothing of it is counted.
#include <gmock/gmock.h>

#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

using ::testing::Contains;

class LedgerStill : public LedgerWorld {
 protected:
  // All of it on n1, but for ps-1 on n2. Both ps have leases.
  JobId run_ps_job(std::optional<std::uint32_t> backoff_limit) {
    job::JobSpec spec = ps_job();
    spec.policy.backoff_limit = backoff_limit;
    const JobId id = submit(spec);
    BeginGeneration b{id, 1, {}, {}, "", "", 0, {}};
    for (const auto& [name, r] : job(id).spec.roles)
      for (std::uint32_t i = 0; i < r.replicas; ++i)
        b.placements.push_back({{name, i}, name == "ps" && i == 1 ? "n2" : "n1", {"127.0.0.1", next_port_++}, {}});
    EXPECT_TRUE(apply(CommandType::begin_generation, b).status);
    for (const TaskState state : {TaskState::fetching, TaskState::staged, TaskState::running})
      for (const auto& [task, t] : std::map(job(id).tasks)) {
        auto o = seen(id, task, state);
        if (task.role == "ps") o.lease = 10s;
        tell(t.place.node, o);
      }
    EXPECT_EQ(job(id).state, JobState::running);
    return id;
  }
  void tell(const NodeId& host, const TaskObservation& o) { apply(CommandType::report, HostReport{host, {o}, 0, 0, host, 0}); }
  void freeze(JobId id, bool on, Duration stood_still = 0s) {
    auto o = seen(id, kPs, on ? TaskState::frozen : TaskState::running);
    o.lease = 10s;
    o.lease_frozen = on;
    o.stood_still = stood_still;
    tell("n2", o);
  }
  void must_be_frozen(JobId id, bool is) {
    EXPECT_TRUE(apply(CommandType::job_still, JobStill{id, job(id).generation, is ? "ps-1 on n2 must be frozen" : ""}).status);
  }
  TaskObservation exits(JobId id, bool spared = false) {
    auto o = died(id, kWorker, TaskState::backoff);
    o.spared = spared;
    return o;
  }
  const TaskId kPs{"ps", 1}, kWorker{"worker", 0};
};

TEST_F(LedgerStill, AnExitCostsNothingWhileAnotherIsFrozen) {
  for (const bool reported : {true, false}) {
    for (const std::optional<std::uint32_t> limit : {std::optional<std::uint32_t>(0), std::optional<std::uint32_t>()}) {
      ledger_ = Ledger();
      log_.clear();
      apply(CommandType::coordinator_started, CoordinatorStarted{"n1", "n1", "boot-1"});
      const JobId id = run_ps_job(limit);
      reported ? freeze(id, true) : must_be_frozen(id, true);
      ASSERT_TRUE(job(id).still_since);
      EXPECT_THAT(event_types(), Contains("job.stands-still"));
      tell("n1", exits(id));
      EXPECT_FALSE(is_final(job(id).state)) << job(id).reason;
      EXPECT_EQ(job(id).budget_spent, 0u);
      EXPECT_TRUE(job(id).tasks.at(kWorker).failures.empty());
      EXPECT_FALSE(job(id).first_fault);
      reported ? freeze(id, false) : must_be_frozen(id, false);
      EXPECT_FALSE(job(id).still_since);
      EXPECT_THAT(event_types(), Contains("job.goes-on"));
      auto again = seen(id, kWorker, TaskState::running);
      again.attempt = 2;
      tell("n1", again);
      EXPECT_EQ(job(id).restarts, 1u);
      EXPECT_EQ(job(id).budget_spent, 0u);
      EXPECT_EQ(job(id).state, JobState::running);
      // The next one counts.
      tell("n1", exits(id));
      if (limit) EXPECT_TRUE(job(id).doubted) << "the coordinator says in a moment whether its hosts are all there";
      else EXPECT_EQ(job(id).tasks.at(kWorker).failures.size(), 1u);
    }
  }
}

TEST_F(LedgerStill, WhatItsHostSparedIsSparedHoweverLateItIsTold) {
  const JobId id = run_ps_job({});
  auto o = exits(id, true);
  o.state = TaskState::running;  // it has been restarted since
  o.attempt = 2;
  tell("n1", o);
  EXPECT_EQ(job(id).restarts, 1u);
  EXPECT_EQ(job(id).budget_spent, 0u);
  EXPECT_TRUE(job(id).tasks.at(kWorker).failures.empty());
}

// It saved its state and said that all is well: its host was being stopped.
TEST_F(LedgerStill, AnEndWithTheHostCompletesNothingAndCostsNothing) {
  const JobId id = run_ps_job(0);
  auto o = died(id, {"chief", 0}, TaskState::failed);
  o.exit = job::Exit{};
  o.exit->with_host = o.spared = true;
  tell("n1", o);
  EXPECT_EQ(job(id).state, JobState::recovering) << job(id).reason;
  EXPECT_FALSE(job(id).tasks.at({"chief", 0}).completed);
  EXPECT_EQ(job(id).budget_spent, 0u);
  EXPECT_FALSE(job(id).first_fault);
}

TEST_F(LedgerStill, TheRuleCanBeBroken) {
  ledger_.broken_rule = "frozen-costs-nothing";
  const JobId id = run_ps_job(0);
  freeze(id, true);
  tell("n1", exits(id));
  EXPECT_TRUE(job(id).doubted);
}

TEST_F(LedgerStill, ARecoveryWhileOneIsFrozenCostsNothing) {
  const JobId id = run_ps_job(0);
  must_be_frozen(id, true);
  tell("n1", died(id, {"chief", 0}, TaskState::failed));
  EXPECT_EQ(job(id).state, JobState::recovering);
  EXPECT_EQ(job(id).halt, Halt::recovery);
  EXPECT_EQ(job(id).restarts, 1u);
  EXPECT_EQ(job(id).budget_spent, 0u);
  EXPECT_EQ(job(id).not_before, 0s);
}

TEST_F(LedgerStill, TheLossOfWhatWasFrozenCounts) {
  const JobId id = run_ps_job({});
  must_be_frozen(id, true);
  apply(CommandType::host_lost, HostLost{"n2", "n2", false, ledger_.state().applied});
  EXPECT_EQ(job(id).state, JobState::recovering);
  EXPECT_EQ(job(id).budget_spent, 1u);
  EXPECT_FALSE(job(id).still_since) << "nothing is frozen any more";
  EXPECT_EQ(job(id).must_be_frozen, "");
}

TEST_F(LedgerStill, ItsTimeStandsStill) {
  const JobId id = run_ps_job({});
  const Duration began = *job(id).run_started;
  pass(5s);
  must_be_frozen(id, true);
  pass(60s);
  freeze(id, true);
  must_be_frozen(id, false);
  pass(10s);
  EXPECT_EQ(*job(id).run_started, began);
  freeze(id, false, 69s);
  EXPECT_EQ(*job(id).run_started, began + 70s) << "the time is counted once, whoever tells of it";
  EXPECT_FALSE(job(id).still_since);
}

// Nobody coordinated: the freeze and the thaw are told together.
TEST_F(LedgerStill, TheTimeThatNobodySawIsToldAfterwards) {
  const JobId id = run_ps_job({});
  const Duration began = *job(id).run_started;
  pass(100s);
  freeze(id, true);
  freeze(id, false, 80s);
  EXPECT_EQ(*job(id).run_started, began + 80s);
  pass(10s);
  freeze(id, false, 80s);
  EXPECT_EQ(*job(id).run_started, began + 80s) << "said before";
  freeze(id, false, 200s);
  EXPECT_EQ(*job(id).run_started, began + 90s) << "no more than there was";
}

TEST_F(LedgerStill, AWordOnAnotherGenerationIsRefused) {
  const JobId id = run_ps_job({});
  EXPECT_FALSE(apply(CommandType::job_still, JobStill{id, 7, "ps-1"}).status);
  EXPECT_FALSE(job(id).still_since);
}

// Of a new history a host that was not heard in it may have what this log does not know of.
TEST_F(LedgerStill, AfterRecoverQuorumAHostThatHasNotReportedKeepsWhatItHas) {
  for (const bool broken : {false, true}) {
    ledger_ = Ledger();
    ledger_.broken_rule = broken ? "unheard-host-keeps" : "";
    log_.clear();
    epoch_ = 3;
    apply(CommandType::coordinator_started, CoordinatorStarted{"n1", "n1", "boot-1"});
    const JobId id = run_ps_job({});
    epoch_ = (1ull << 32) + 4;
    apply(CommandType::coordinator_started, CoordinatorStarted{"n1", "n1", "boot-1"});
    EXPECT_TRUE(ledger_.heard("n1"));
    apply(CommandType::host_lost, HostLost{"n2", "n2", false, ledger_.state().applied});
    EXPECT_EQ(job(id).tasks.at(kPs).ended, broken);
    if (broken) continue;
    EXPECT_FALSE(ledger_.heard("n2"));
    apply(CommandType::report, HostReport{"n2", {}, 1, 1, "n2", 0});
    EXPECT_TRUE(ledger_.heard("n2"));
    apply(CommandType::host_lost, HostLost{"n2", "n2", false, ledger_.state().applied});
    EXPECT_TRUE(job(id).tasks.at(kPs).ended);
  }
}

TEST_F(LedgerStill, TheWordOfAnOperatorEndsWhatAnUnheardHostHas) {
  const JobId id = run_ps_job({});
  epoch_ = (1ull << 32) + 4;
  apply(CommandType::host_lost, HostLost{"n2", "n2", true, 0});
  EXPECT_TRUE(job(id).tasks.at(kPs).ended);
}

}  // namespace
}  // namespace dtrain::cluster
