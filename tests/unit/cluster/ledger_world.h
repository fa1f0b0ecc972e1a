// A ledger with a clock of its own, and commands in one line each.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/cluster/ledger.h"
#include "common/wire/codec.h"

namespace dtrain::cluster {

inline job::RoleSpec role(std::uint32_t replicas) {
  job::RoleSpec r;
  r.replicas = r.min_replicas = replicas;
  r.command = {"true"};
  return r;
}

inline job::JobSpec ps_job(const std::string& name = "j") {
  job::JobSpec s;
  s.name = name;
  s.framework = job::Framework::tensorflow;
  s.roles["ps"] = role(2);
  s.roles["chief"] = role(1);
  s.roles["worker"] = role(2);
  return s;
}

inline job::JobSpec generic_job(std::uint32_t workers, const std::string& name = "j") {
  job::JobSpec s;
  s.name = name;
  s.framework = job::Framework::generic;
  s.roles["worker"] = role(workers);
  return s;
}

class LedgerWorld : public ::testing::Test {
 protected:
  LedgerWorld() { apply(CommandType::coordinator_started, CoordinatorStarted{"n1", "n1", "boot-1"}); }

  template <class T>
  Applied apply(CommandType type, const T& body) {
    const Now now{Instant(clock_), WallTime(std::chrono::milliseconds(1'700'000'000'000 + clock_ / 1ms))};
    log_.push_back(make_command(type, epoch_, now, body));
    return ledger_.apply(log_.size(), log_.back());
  }
  void pass(Duration d) { clock_ += d; }

  JobId submit(const job::JobSpec& spec) {
    const Applied a = apply(CommandType::submit, SubmitJob{wire::encode(spec), {"alice", 1000}, "", false, ""});
    EXPECT_TRUE(a.status) << a.status.error().text();
    return a.job;
  }
  Applied act(JobId job, ActionKind kind, void (*edit)(JobAction&) = nullptr) {
    JobAction a;
    a.kind = kind;
    a.job = job;
    a.user = "alice";
    if (edit) edit(a);
    return apply(CommandType::action, a);
  }
  Applied begin(JobId id, std::optional<job::Restore> restore = {}, std::string digest = "") {
    const JobRecord& j = job(id);
    BeginGeneration b;
    b.job = id;
    b.generation = j.generation + 1;
    for (const auto& [name, r] : j.spec.roles)
      for (std::uint32_t i = 0; i < r.replicas; ++i) b.placements.push_back({{name, i}, "n1", {"127.0.0.1", next_port_++}, {}});
    b.restore = std::move(restore);
    b.restore_digest = std::move(digest);
    return apply(CommandType::begin_generation, b);
  }
  TaskObservation seen(JobId id, const TaskId& task, TaskState state) {
    TaskObservation o;
    o.id = {id, job(id).generation, task};
    const TaskRecord& t = job(id).tasks.at(task);
    o.state = state;
    o.attempt = std::max(t.attempt, t.first_attempt);
    if (state == TaskState::running) o.pid = 100;
    return o;
  }
  void report(std::vector<TaskObservation> tasks) { apply(CommandType::report, HostReport{"n1", std::move(tasks), 0, 0, ""}); }
  void all(JobId id, TaskState state) {
    std::vector<TaskObservation> o;
    for (const auto& [task, t] : job(id).tasks)
      if (!t.completed) o.push_back(seen(id, task, state));
    report(std::move(o));
  }
  // The task's process died by SIGKILL; `state` is what the host made of it.
  TaskObservation died(JobId id, const TaskId& task, TaskState state, std::int32_t signal = 9, std::int32_t code = 0) {
    TaskObservation o = seen(id, task, state);
    o.exit_attempt = o.attempt;
    o.exit = job::Exit{};
    o.exit->signal = signal;
    o.exit->code = code;
    return o;
  }
  void everything_ended(JobId id) {
    std::vector<TaskObservation> o;
    for (const auto& [task, t] : job(id).tasks) {
      if (t.ended) continue;
      auto e = seen(id, task, t.state == TaskState::succeeded || t.state == TaskState::failed ? t.state : TaskState::stopping);
      e.ended = e.on_request = true;
      o.push_back(e);
    }
    report(std::move(o));
  }
  void run(JobId id) {
    begin(id);
    all(id, TaskState::fetching);
    all(id, TaskState::staged);
    all(id, TaskState::running);
    ASSERT_EQ(job(id).state, JobState::running);
  }
  const JobRecord& job(JobId id) const { return *ledger_.find(id); }
  std::vector<std::string> event_types() const {
    std::vector<std::string> types;
    for (const auto& e : ledger_.events()) types.push_back(e.type);
    return types;
  }

  Ledger ledger_;
  std::vector<std::string> log_;
  Duration clock_ = 1h;
  std::uint64_t epoch_ = 1;
  std::uint16_t next_port_ = 20000;
};

}  // namespace dtrain::cluster
