// Tasks of one host whose actions are written down.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/task/assignments.h"

namespace dtrain::task {

using job::TaskState;

// Writes down what the tasks want, in words.
class Recorder final : public HostActions {
 public:
  void stage(const TaskOrder& o) override { add("stage", o.id); }
  void launch(ShimSpec s) override {
    add("launch", s.id);
    lease = s.lease;
    cpus = s.cpus;
  }
  void unbound(const AssignmentId& id, const std::string&) override { add("unbound", id); }
  void require_lease(const AssignmentId& id, Duration) override { add("require", id); }
  void start(const AssignmentId& id, AttemptNumber n) override { add("start" + std::to_string(n), id); }
  void signal(const AssignmentId& id, std::int32_t s, job::SignalTo to, Duration grace) override {
    add("signal" + std::to_string(s), id);
    signalled_to = to;
    grace_of_signal = grace;
  }
  void kill(const AssignmentId& id) override { add("kill", id); }
  void freeze(const AssignmentId& id, bool on) override { add(on ? "freeze" : "thaw", id); }
  void end(const AssignmentId& id) override { add("end", id); }
  void reclaim(const TaskOrder& o, Instant) override { add("reclaim", o.id); }
  std::vector<std::string> take() { return std::exchange(done_, {}); }
  Duration lease{};                 // of the newest launch
  job::SignalTo signalled_to{};     // of the newest signal
  Duration grace_of_signal{};       // likewise
  std::vector<std::uint32_t> cpus;  // likewise

 private:
  void add(const std::string& what, const AssignmentId& id) { done_.push_back(what + " " + id.task.text()); }
  std::vector<std::string> done_;
};

using Done = std::vector<std::string>;

class Tasks : public ::testing::Test {
 protected:
  Tasks() {
    auto c = std::make_shared<JobContext>();
    c->spec.name = "j";
    job::RoleSpec r;
    r.replicas = r.min_replicas = 2;
    r.command = {"run"};
    c->spec.roles["worker"] = r;
    c->user = {"alice", 1000};
    c->cluster.job_name = "j";
    for (std::uint32_t i : {0u, 1u}) c->cluster.tasks[{"worker", i}] = {"127.0.0.1", 0};
    context_ = c;
  }
  job::JobSpec& spec() { return const_cast<JobContext&>(*context_).spec; }
  TaskOrder order(std::uint32_t index = 0, Generation generation = 1) {
    TaskOrder o;
    o.id = {1, generation, {"worker", index}};
    o.context = context_;
    o.go = true;
    return o;
  }
  void give(std::vector<TaskOrder> tasks, std::optional<std::uint32_t> budget = {}) { host_.update(now_, {1, budget, std::move(tasks)}); }
  Task& task(std::uint32_t index = 0, Generation generation = 1) { return *host_.find({1, generation, {"worker", index}}); }
  // As an agent that starts finds it: a living shim with a lease.
  FoundShim found_leased(std::uint32_t index, AttemptNumber attempt) {
    FoundShim found;
    found.id = order(index).id;
    found.shim_alive = found.leased = true;
    found.attempt = attempt;
    return found;
  }
  void bring_up(std::uint32_t index = 0) {
    task(index).staged(std::string("/w"));
    task(index).shim_up(now_, {});
    task(index).attempt_started(now_, task(index).attempt(), 100, WallTime{});
  }
  static Exit died(std::int32_t code, std::int32_t signal = 0) {
    Exit e;
    e.code = code;
    e.signal = signal;
    return e;
  }
  void exits(const Exit& e, std::uint32_t index = 0) {
    task(index).attempt_exited(now_, task(index).attempt(), e);
    host_.settle(now_, 1);
  }
  void started(std::uint32_t index = 0) { task(index).attempt_started(now_, task(index).attempt(), 101, WallTime{}); }
  job::TaskObservation seen(std::uint32_t index = 0) { return task(index).take_observation(); }

  std::shared_ptr<const JobContext> context_;
  Recorder did_;
  Assignments host_{HostContext{"n1", "", {}}, did_};
  Instant now_{Duration(1h)};
};

}  // namespace dtrain::task
