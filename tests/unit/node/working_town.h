// Three nodes that are one cluster, with two GPUs each, and the tasks that they want to run.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {

class WorkingTown : public ::testing::Test {
 protected:
  explicit WorkingTown(std::uint64_t snapshot_every = NodeOptions{}.snapshot_every, void (*prepare)(NodeOptions&) = nullptr)
      : snapshot_every_(snapshot_every), prepare_(prepare) {
    grow(3);
    town.run_for(15s);
  }
  // n1, n2, ... to so many.
  void grow(std::size_t to) {
    while (houses.size() < to) {
      const std::string name = "n" + std::to_string(houses.size() + 1);
      houses.push_back(&town.add(name));
      House& house = *houses.back();
      house.started.facts.task_address = house.address().ip;
      house.started.facts.labels["house"] = name;
      house.options.down_grace = 5s;
      house.options.snapshot_every = snapshot_every_;
      if (prepare_ != nullptr) prepare_(house.options);
    }
    for (House* house : houses) {
      if (house->runs()) continue;
      house->start();
      town.run_for(1s);
    }
  }
  static job::JobSpec generic(const std::string& name, std::uint32_t workers, std::uint32_t gpus = 0) {
    job::JobSpec spec;
    spec.name = name;
    spec.framework = job::Framework::generic;
    spec.policy.placement = job::Placement::spread;
    job::RoleSpec role;
    role.replicas = role.min_replicas = workers;
    role.command = {"true"};
    role.resources.gpus = gpus;
    spec.roles["worker"] = role;
    return spec;
  }
  static job::JobSpec ranks(const std::string& name, std::uint32_t workers, std::uint32_t gpus) {
    job::JobSpec spec = generic(name, workers, gpus);
    spec.roles["worker"].command = {"true", "{hosts:worker}"};  // each knows all others' addresses
    return spec;
  }
  void submit(const job::JobSpec& spec) {
    wire::SubmitRequest submit;
    submit.spec = wire::encode(spec);
    const auto reply = ask<wire::SubmitReply>(*houses[0], wire::MessageType::submit, submit, 1000);
    ASSERT_TRUE(reply) << reply.error().text();
  }
  template <class Reply_, class Query>
  Result<Reply_> ask(House& house, wire::MessageType type, const Query& query, std::uint32_t uid = 0) {
    const std::uint64_t before = house.requests();
    (void)house.ask<Reply_>(type, query, uid);
    town.run_for(1s);
    return house.answer<Reply_>(before + 1);
  }
  std::map<std::string, wire::TaskView> tasks(const std::string& job, std::size_t at = 0) {
    std::map<std::string, wire::TaskView> by_name;
    const auto reply = houses[at]->ask<wire::TasksReply>(wire::MessageType::query_tasks, wire::JobName{job});
    for (const auto& view : reply.value_or(wire::TasksReply{}).tasks) by_name[view.task] = view;
    return by_name;
  }
  wire::JobDescription described(const std::string& job, std::size_t at = 0) {
    return houses[at]->ask<wire::JobDescription>(wire::MessageType::describe_job, wire::JobName{job}).value_or(wire::JobDescription{});
  }
  // Carries out what the agents want of their tasks: staging, starts and stops, as real ones would.
  void work(Duration time = 3s) {
    for (Duration passed{}; passed < time; passed += 250ms) {
      for (House* house : houses) {
        if (!house->runs()) continue;
        for (std::size_t& next = done[house]; next < house->effects.size(); ++next) act(*house, Effect(house->effects[next]));
      }
      town.run_for(250ms);
    }
  }
  void act(House& house, const Effect& effect) {
    if (answer_) answer_(house, effect);
    if (const auto* stage = std::get_if<Stage>(&effect)) {
      if (stage->id.job == unstageable) house.give(Staged{stage->id, fail(ErrorCode::unavailable, "could not stage: no port is free")});
      else house.give(Staged{stage->id, std::string("/work")});
    } else if (const auto* launch = std::get_if<LaunchShim>(&effect)) {
      house.give(ShimUp{launch->spec.id, {}});
    } else if (const auto* start = std::get_if<StartAttempt>(&effect)) {
      attempts[start->id] = start->attempt;
      house.give(AttemptStarted{start->id, start->attempt, 100, {}});
    } else if (const auto* kill = std::get_if<KillTask>(&effect)) {
      ++kills;
      end(house, kill->id, 9);
    } else if (const auto* signal = std::get_if<SignalTask>(&effect)) {
      ++signals;
      if (!stubborn) end(house, signal->id, 15);
    } else if (const auto* scan = std::get_if<ScanCheckpoints>(&effect)) {
      if (!slow_disks) house.give(CheckpointsScanned{scan->job, scan->token, std::vector<transfer::CheckpointInfo>{}});
    } else if (const auto* open = std::get_if<OpenRelay>(&effect); open != nullptr && open->own) {
      house.give(RelayEnded{open->part, RelayEnded::How::lost, {ErrorCode::unavailable, "was silent for 30 s", ""}});
    } else if (const auto* hook = std::get_if<RunHook>(&effect)) {
      run_hook(house, *hook);
    } else if (const auto* gone = std::get_if<EndShim>(&effect)) {
      house.give(ShimGone{gone->id});
    }
  }
  virtual void run_hook(House& house, const RunHook& hook) { house.give(HookEnded{hook.token, {}}); }
  void end(House& house, const AssignmentId& id, std::int32_t signal) {
    AttemptExited exited;
    exited.id = id;
    exited.attempt = attempts[id];
    exited.exit.signal = signal;
    house.give(exited);
  }
  std::string where(const std::string& job) {
    std::string text;
    for (const auto& [name, view] : tasks(job)) text += name + "@" + view.node + "/" + view.state + " ";
    return text;
  }
  bool any_on(const std::string& job, const std::string& node) { return where(job).find("@" + node + "/") != std::string::npos; }

  std::uint64_t snapshot_every_;   // entries
  void (*prepare_)(NodeOptions&);  // each house's, before it starts
  Town town;
  std::vector<House*> houses;
  std::map<House*, std::size_t> done;
  std::map<AssignmentId, AttemptNumber> attempts;
  int kills = 0, signals = 0;
  JobId unstageable = 0;                               // no host can stage its tasks now
  std::function<void(House&, const Effect&)> answer_;  // a test's own, before all others
  bool stubborn = false;                               // tasks do not end by themselves
  bool slow_disks = false;                             // looks for checkpoints are not answered
};

}  // namespace dtrain::node
