// Tasks on several hosts, and what becomes of them when a host is lost.
#include <gmock/gmock.h>

#include "common/base/limits.h"
#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class LedgerHosts : public LedgerWorld {
 protected:
  // Task i of each role goes to host i of these, round and round.
  void begin_on(JobId id, const std::vector<NodeId>& hosts) {
    const JobRecord& j = job(id);
    BeginGeneration b{id, j.generation + 1, {}, {}, "", "", 0, {}};
    for (const auto& [name, r] : j.spec.roles)
      for (std::uint32_t i = 0; i < r.replicas; ++i)
        b.placements.push_back({{name, i}, hosts[i % hosts.size()], {"127.0.0.1", next_port_++}, {}});
    ASSERT_TRUE(apply(CommandType::begin_generation, b).status);
  }
  Applied move(JobId id, const TaskId& task, const NodeId& host) {
    return apply(CommandType::extend_generation,
                 BeginGeneration{id, job(id).generation, {{task, host, {"127.0.0.1", next_port_++}, {}}}, {}, "", "", 0, {}});
  }
  void tell(const NodeId& host, const TaskObservation& o) { apply(CommandType::report, HostReport{host, {o}, 0, 0, host, 0}); }
  void all_on_their_hosts(JobId id, TaskState state) {
    for (const auto& [task, t] : std::map(job(id).tasks)) tell(t.place.node, seen(id, task, state));
  }
  void run_on(JobId id, const std::vector<NodeId>& hosts) {
    begin_on(id, hosts);
    for (const TaskState state : {TaskState::fetching, TaskState::staged, TaskState::running}) all_on_their_hosts(id, state);
    ASSERT_EQ(job(id).state, JobState::running);
  }
  void lose(const NodeId& host, bool gone = false) { apply(CommandType::host_lost, HostLost{host, host, gone, 0}); }
  void back(const NodeId& host) { apply(CommandType::report, HostReport{host, {}, 0, 0, host, ledger_.state().lost.at(host).index}); }
  const TaskRecord& task(JobId id, const TaskId& t) const { return job(id).tasks.at(t); }
};

// Whose is what lies there then, and no host has told of (simulator, three hosts, seed 15151).
TEST_F(LedgerHosts, WhatRanOnAHostBeforeItsTasksCameIsRemembered) {
  using Ran = std::map<NodeId, Generation>;
  job::JobSpec spec = generic_job(2);
  spec.checkpoint.emplace().dir = "/c";
  const JobId id = submit(spec);
  const auto again_on = [&](const std::vector<NodeId>& hosts) {
    act(id, ActionKind::restart);
    for (const auto& [task, t] : std::map(job(id).tasks)) {
      auto o = seen(id, task, TaskState::stopping);
      o.ended = o.on_request = true;
      tell(t.place.node, o);
    }
    run_on(id, hosts);
  };
  run_on(id, {"n1", "n2"});
  EXPECT_EQ(job(id).ran_before, Ran());
  ASSERT_NO_FATAL_FAILURE(again_on({"n2", "n3"}));
  EXPECT_EQ(job(id).ran_before, Ran({{"n2", 1}}));
  ASSERT_NO_FATAL_FAILURE(again_on({"n1", "n3"}));
  EXPECT_EQ(job(id).ran_before, Ran({{"n1", 1}, {"n3", 2}})) << "n1 was away over a generation";
  JobAction more;
  more.kind = ActionKind::scale;
  more.job = id;
  more.role = "worker";
  more.replicas = 4;
  ASSERT_TRUE(apply(CommandType::action, more).status);
  ASSERT_TRUE(move(id, {"worker", 2}, "n2").status);
  EXPECT_EQ(job(id).ran_before, Ran({{"n1", 1}, {"n2", 2}, {"n3", 2}})) << "one that was added";
  ASSERT_TRUE(move(id, {"worker", 3}, "n2").status);
  EXPECT_EQ(job(id).ran_before.at("n2"), 2u) << "it has tasks, and looked before them";
}

TEST_F(LedgerHosts, AStatelessTaskIsTakenFromALostHostAndGivenToAnother) {
  const JobId id = submit(generic_job(2));
  run_on(id, {"n1", "n2"});
  lose("n2");
  const TaskId moved{"worker", 1};
  EXPECT_TRUE(task(id, moved).lost);
  EXPECT_TRUE(task(id, moved).ended);
  EXPECT_FALSE(task(id, {"worker", 0}).ended);
  EXPECT_EQ(job(id).state, JobState::restarting);
  EXPECT_EQ(job(id).restarts, 1u);
  EXPECT_FALSE(move(id, {"worker", 0}, "n3").status) << "it is where it is";
  EXPECT_FALSE(move(id, moved, "n2").status) << "the host is lost";
  ASSERT_TRUE(move(id, moved, "n3").status);
  EXPECT_EQ(job(id).generation, 1u);
  EXPECT_EQ(task(id, moved).first_attempt, 2u);
  // What the old host still says counts no more.
  auto late = seen(id, moved, TaskState::failed);
  late.ended = true;
  tell("n2", late);
  EXPECT_EQ(task(id, moved).state, TaskState::waiting);
  for (const TaskState state : {TaskState::staged, TaskState::running}) tell("n3", seen(id, moved, state));
  EXPECT_EQ(job(id).state, JobState::running);
  EXPECT_EQ(job(id).restarts, 1u);
}

TEST_F(LedgerHosts, ALostHostIsGivenNothingUntilItSaysThatItIsClean) {
  const JobId id = submit(generic_job(2));
  run_on(id, {"n1", "n2"});
  lose("n2");
  const std::uint64_t first = ledger_.state().lost.at("n2").index;
  lose("n2");
  apply(CommandType::report, HostReport{"n2", {}, 0, 0, "n2", first});
  EXPECT_TRUE(ledger_.state().lost.contains("n2")) << "it was lost again since";
  back("n2");
  EXPECT_FALSE(ledger_.state().lost.contains("n2"));
  EXPECT_TRUE(move(id, {"worker", 1}, "n2").status);
}

// There it may have run, or stood still, until now.
TEST_F(LedgerHosts, PortsOfALostHostRestFromItsReturn) {
  const JobId id = submit(generic_job(2));
  run_on(id, {"n1", "n2"});
  const std::uint16_t port = task(id, {"worker", 1}).place.address.port;
  lose("n2");
  pass(100s);
  back("n2");
  EXPECT_EQ(ledger_.state().ports.at("n2").at(port), ledger_.state().elapsed);
  EXPECT_GE(ledger_.state().elapsed, 100s);
}

TEST_F(LedgerHosts, AStatefulTaskWaitsForItsHost) {
  const JobId id = submit(ps_job());
  run_on(id, {"n1", "n2"});
  EXPECT_TRUE(job(id).progressing);
  lose("n2");
  EXPECT_EQ(job(id).state, JobState::recovering);
  EXPECT_FALSE(job(id).progressing);
  EXPECT_THAT(job(id).reason, HasSubstr("ps-1 may run there; dtrainctl forget-node n2"));
  for (const auto& [t, record] : job(id).tasks) EXPECT_FALSE(record.ended) << t.text();
  back("n2");
  EXPECT_EQ(job(id).state, JobState::running);
  EXPECT_TRUE(job(id).progressing);
  tell("n2", died(id, {"ps", 1}, TaskState::failed));
  EXPECT_EQ(job(id).state, JobState::recovering);
}

// onDisconnect: replace and freeze.
TEST_F(LedgerHosts, ItsUserSaysWhatIsReplacedAtOnceAndWhatIsWaitedFor) {
  job::JobSpec spec = ps_job();
  for (auto& [name, role] : spec.roles) role.on_disconnect = job::OnDisconnect::replace, role.exclusive = false;
  ASSERT_EQ(wire::needed_version(spec), 2u);
  ASSERT_TRUE(apply(CommandType::raise_version, RaiseVersion{2}).status);
  const JobId replaced = submit(spec);
  run_on(replaced, {"n1", "n2"});
  spec = generic_job(2);
  spec.name = "frozen";
  spec.roles["worker"].on_disconnect = job::OnDisconnect::freeze;
  const JobId frozen = submit(spec);
  run_on(frozen, {"n1", "n2"});
  lose("n2");
  EXPECT_TRUE(task(replaced, {"ps", 1}).ended);
  EXPECT_FALSE(task(frozen, {"worker", 1}).ended);
}

TEST_F(LedgerHosts, TheWordThatAHostIsGoneEndsWhatWasOnIt) {
  const JobId id = submit(ps_job());
  run_on(id, {"n1", "n2"});
  lose("n2");
  lose("n2", true);
  EXPECT_EQ(job(id).state, JobState::recovering);
  EXPECT_TRUE(task(id, {"ps", 1}).ended);
  EXPECT_FALSE(task(id, {"ps", 0}).ended);
  EXPECT_EQ(job(id).restarts, 1u);
}

// World cluster, three hosts, seed 2217: to be scaled down to one worker, which alone is no collective job, while another one may run yet.
TEST_F(LedgerHosts, WhatIsToBeScaledDownIsLostByTheCareOfWhatRuns) {
  ASSERT_TRUE(apply(CommandType::raise_version, RaiseVersion{since_version(job::Framework::jax)}).status);
  job::JobSpec spec = generic_job(3);
  spec.framework = job::Framework::jax;
  const JobId id = submit(spec);
  run_on(id, {"n1", "n2"});
  act(id, ActionKind::scale, [](JobAction& a) { a.role = "worker", a.replicas = 1; });
  const auto there = [&] { return job(id).tasks.contains({"worker", 1}) && !task(id, {"worker", 1}).ended; };
  lose("n2");
  EXPECT_TRUE(there());
  lose("n2", true);
  EXPECT_FALSE(there());
}

// ps-1 under a lease is begun elsewhere once that is over, ps-0 and the others where they are end with their generation.
TEST_F(LedgerHosts, WhatHadALeaseIsTakenFromALostHostWhenThatIsOver) {
  const JobId id = submit(ps_job());
  run_on(id, {"n1", "n2"});
  auto leased = seen(id, {"ps", 1}, TaskState::running);
  leased.lease = 10s;
  tell("n2", leased);
  const std::uint64_t known = ledger_.state().applied;
  lose("n2");
  EXPECT_THAT(job(id).reason, HasSubstr("ps-1 may run there until its lease is over; dtrainctl forget-node n2"));
  EXPECT_FALSE(task(id, {"ps", 1}).ended);
  apply(CommandType::host_lost, HostLost{"n2", "n2", false, known - 1});
  EXPECT_FALSE(task(id, {"ps", 1}).ended) << "its lease was named later: nobody counted it";
  apply(CommandType::host_lost, HostLost{"n2", "n2", false, known});
  EXPECT_TRUE(task(id, {"ps", 1}).ended);
  EXPECT_EQ(job(id).state, JobState::recovering);
  EXPECT_EQ(job(id).restarts, 1u);
}

// A keeper is exclusive, and nobody has its address: it is begun elsewhere alone.
TEST_F(LedgerHosts, AnExclusiveTaskThatNobodyKnowsMovesAlone) {
  job::JobSpec spec = generic_job(1);
  spec.roles["keeper"] = role(1);
  spec.roles["keeper"].exclusive = true;
  const JobId id = submit(spec);
  run_on(id, {"n1"});
  auto leased = seen(id, {"keeper", 0}, TaskState::running);
  leased.lease = 10s;
  tell("n1", leased);
  lose("n1");
  EXPECT_FALSE(task(id, {"keeper", 0}).ended);
  apply(CommandType::host_lost, HostLost{"n1", "n1", false, ledger_.state().applied});
  EXPECT_TRUE(task(id, {"keeper", 0}).lost);
  EXPECT_EQ(job(id).generation, 1u);
  ASSERT_TRUE(move(id, {"keeper", 0}, "n2").status);
  EXPECT_EQ(task(id, {"keeper", 0}).lease, 0s) << "the successor's host has not named one";
  EXPECT_GT(task(id, {"keeper", 0}).placed, 0u);
}

// Without a lease it may run on: only its host's word, or an operator's, ends the waiting.
TEST_F(LedgerHosts, WhatRunsWithoutALeaseStaysWhereItIs) {
  const JobId id = submit(ps_job());
  run_on(id, {"n1", "n2"});
  lose("n2");
  apply(CommandType::host_lost, HostLost{"n2", "n2", false, ledger_.state().applied});
  EXPECT_FALSE(task(id, {"ps", 1}).ended);
  lose("n2", true);
  EXPECT_TRUE(task(id, {"ps", 1}).ended);
}

// Its checkpoints may be elsewhere, too: what it goes on from is asked then.
TEST_F(LedgerHosts, AJobWithCheckpointsRecoversElsewhereWhenItsLeaseIsOver) {
  job::JobSpec spec = ps_job();
  spec.checkpoint = job::CheckpointSpec{};
  spec.checkpoint->dir = "/data/checkpoints";
  const JobId id = submit(spec);
  run_on(id, {"n2"});
  for (const auto& [t, record] : std::map(job(id).tasks)) {
    auto leased = seen(id, t, TaskState::running);
    leased.lease = 10s;
    tell("n2", leased);
  }
  lose("n2");
  EXPECT_FALSE(task(id, {"ps", 1}).ended);
  apply(CommandType::host_lost, HostLost{"n2", "n2", false, ledger_.state().applied});
  EXPECT_TRUE(task(id, {"ps", 1}).ended);
  EXPECT_EQ(job(id).state, JobState::recovering);
}

// Nobody else holds what it trained: beginning it elsewhere with what its generation restored would lose that.
TEST_F(LedgerHosts, AWorkerThatHoldsWhatWasTrainedIsNotBegunElsewhereAlone) {
  job::JobSpec spec = generic_job(2);
  spec.checkpoint = job::CheckpointSpec{};
  spec.checkpoint->dir = "/data/checkpoints";
  const JobId id = submit(spec);
  run_on(id, {"n1", "n2"});
  lose("n2");
  EXPECT_EQ(job(id).state, JobState::recovering);
  EXPECT_EQ(job(id).halt, Halt::recovery);
}

TEST_F(LedgerHosts, BeforeTheBarrierNothingWasStarted) {
  const JobId id = submit(ps_job());
  begin_on(id, {"n1", "n2"});
  auto staged = seen(id, {"ps", 1}, TaskState::staged);
  staged.attempt = 0;
  tell("n2", staged);
  lose("n2");
  EXPECT_TRUE(task(id, {"ps", 1}).ended);
  EXPECT_EQ(job(id).halt, Halt::replace);
  EXPECT_EQ(job(id).restarts, 0u);
  EXPECT_TRUE(job(id).needs_generation);
}

// Since the barrier a ps may run, also if its host never said so, and whoever is staged later.
TEST_F(LedgerHosts, WhatPassedTheBarrierMayRunWhoeverComesLater) {
  job::JobSpec spec = generic_job(1);
  spec.roles["keeper"] = role(1);
  spec.roles["keeper"].exclusive = true;
  const JobId id = submit(spec);
  begin_on(id, {"n1"});
  for (const char* name : {"keeper", "worker"}) tell("n1", seen(id, {name, 0}, TaskState::staged));
  act(id, ActionKind::scale, [](JobAction& a) { a.role = "worker", a.replicas = 2; });
  ASSERT_TRUE(move(id, {"worker", 1}, "n2").status);
  lose("n1");
  EXPECT_FALSE(task(id, {"keeper", 0}).ended);
  lose("n2");
  EXPECT_TRUE(task(id, {"worker", 1}).lost);
}

TEST_F(LedgerHosts, OfAJobThatIsStoppedNothingIsBegunElsewhere) {
  const JobId id = submit(generic_job(2));
  run_on(id, {"n1", "n2"});
  act(id, ActionKind::cancel);
  lose("n2");
  EXPECT_TRUE(task(id, {"worker", 1}).ended);
  EXPECT_FALSE(task(id, {"worker", 1}).lost);
}

TEST_F(LedgerHosts, TheRestartsOfSeveralHostsNeverExceedTheBudget) {
  job::JobSpec spec = generic_job(2);
  spec.policy.backoff_limit = 1;
  const JobId id = submit(spec);
  run_on(id, {"n1", "n2"});
  EXPECT_TRUE(restarts_are_granted(job(id)));
  tell("n1", died(id, {"worker", 0}, TaskState::backoff));
  EXPECT_EQ(task(id, {"worker", 0}).granted_attempt, 2u);
  EXPECT_EQ(job(id).restarts, 1u);
  auto again = seen(id, {"worker", 0}, TaskState::running);
  again.attempt = 2;
  tell("n1", again);
  EXPECT_EQ(job(id).restarts, 1u) << "it was counted";
  tell("n2", died(id, {"worker", 1}, TaskState::backoff));
  EXPECT_EQ(task(id, {"worker", 1}).granted_attempt, 1u);
  ASSERT_TRUE(job(id).doubted) << "another host may be being lost: the coordinator decides";
  apply(CommandType::finish, FinishJob{id, JobState::failed, job(id).doubt});
  EXPECT_EQ(job(id).state, JobState::failed);
  EXPECT_THAT(job(id).reason, HasSubstr("backoffLimit of 1"));
}

TEST_F(LedgerHosts, AReplayGivesTheSame) {
  const JobId id = submit(generic_job(2));
  run_on(id, {"n1", "n2"});
  lose("n2");
  auto restored = Ledger::restore(ledger_.snapshot(), 0);
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->snapshot(), ledger_.snapshot());
  EXPECT_THAT(event_types(), Contains("host.lost"));
}

// What a lost majority had given out after the survivor's last entry may lie, or run, on any host: nothing of it is given again.
TEST_F(LedgerHosts, AHistoryThatWasRecoveredGivesNoIdOrGenerationAgain) {
  const JobId before = submit(generic_job(2));
  run_on(before, {"n1", "n2"});
  const auto ask = [this](std::uint64_t request) {
    const Command command{
        0,
        Instant(clock_),
        {},
        CommandType::submit,
        wire::encode(SubmitJob{wire::encode(generic_job(1, "r" + std::to_string(request))), {"alice", 1000}, "", false, ""}),
        RequestStamp{request, 1, 0}};
    log_.push_back(wire::encode(command));
    return ledger_.apply(log_.size(), log_.back());
  };
  const JobId asked = ask(1).job;
  epoch_ = (1ull << 32) + 7;
  const auto coordinate = [this] { apply(CommandType::coordinator_started, CoordinatorStarted{"n2", "n2", "boot-2", kJobsOfHistory}); };
  coordinate();
  EXPECT_EQ(ask(1).job, asked) << "asked before, and now once more";
  const JobId after = ask(2).job;
  EXPECT_EQ(after, kJobsOfHistory + log_.size());
  EXPECT_EQ(ask(2).job, after);
  const JobId last = submit(generic_job(1, "last"));
  EXPECT_EQ(last, kJobsOfHistory + log_.size());
  // Beyond any that can have begun, also where it began once more already.
  EXPECT_EQ(job(before).generation, 1u);
  act(before, ActionKind::restart);
  for (const NodeId host : {"n1", "n2"})
    for (const auto& [task, t] : std::map(job(before).tasks)) {
      if (t.place.node != host) continue;
      auto ended = seen(before, task, TaskState::stopping);
      ended.ended = ended.on_request = true;
      tell(host, ended);
    }
  ASSERT_TRUE(job(before).nothing_runs());
  BeginGeneration next{before, 1 + kGenerationsOfHistory, {}, {}, "", "", 0, {}};
  for (std::uint32_t i = 0; i < 2; ++i) next.placements.push_back({{"worker", i}, "n1", {"127.0.0.1", next_port_++}, {}});
  ASSERT_TRUE(apply(CommandType::begin_generation, next).status);
  EXPECT_EQ(job(before).generation, 1 + kGenerationsOfHistory);
  EXPECT_EQ(job(before).history, 1u);
  EXPECT_FALSE(apply(CommandType::begin_generation, next).status);
  const auto restored = Ledger::restore(ledger_.snapshot(), 0);
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->state().job_base, kJobsOfHistory);
  coordinate();
  EXPECT_EQ(ledger_.state().job_base, kJobsOfHistory);
}

TEST_F(LedgerHosts, NewsOfStandbysAreEventsOfTheJob) {
  apply(CommandType::raise_version, RaiseVersion{kNewestVersion});
  const JobId id = submit(generic_job(1));
  run(id);
  const std::size_t before = ledger_.events().size();
  for (const auto news : {job::StandbyNews::ready, job::StandbyNews::used, job::StandbyNews::failed, job::StandbyNews::none}) {
    auto o = seen(id, {"worker", 0}, TaskState::running);
    o.standby = news;
    o.standby_cause = news == job::StandbyNews::failed ? std::string(2 * limits::kReasonBytes, 'x') : "";
    report({o});
  }
  std::vector<std::string> types = event_types();
  types.erase(types.begin(), types.begin() + static_cast<std::ptrdiff_t>(before));
  EXPECT_EQ(types, (std::vector<std::string>{"task.standby-ready", "task.warm-start", "task.no-standby"}));
  EXPECT_LT(ledger_.events().back().reason.size(), 2 * limits::kReasonBytes);
}

}  // namespace
}  // namespace dtrain::cluster
