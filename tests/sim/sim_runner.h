// The simulated host's assignments: shims, the attempts inside them, their directories. The meaning of every call and
// event is that of agent/proc/runner.h; FakeRunner (fake_runner.h) shows this class to the conformance suite.
//
// Orders to one shim are executed one after the other, each after a short random time. Shims and tasks outlive the
// agent; an order that was on its way when the agent died reaches its shim, or not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/node/effect.h"
#include "tests/sim/script.h"
#include "tests/sim/timeline.h"

namespace dtrain::sim {

// One assignment's directory and, while it lives, its shim.
struct SimShim {
  task::ShimSpec spec;
  Script script;
  bool alive = false;                  // the shim
  AttemptNumber attempt = 0;           // highest ever started
  bool running = false;                // its process
  std::int32_t pid = 0;
  WallTime started{};
  Instant started_at{};
  std::optional<job::Exit> exit;       // of `attempt`
  bool ready = false, frozen = false, hanging = false;
  std::string status;
  std::int64_t step = 0;               // of training
  std::uint64_t run = 0;               // counts attempts and their ends: what was planned for an older one is void
  std::uint64_t deaf_in_life = 0;      // the first order of a dead agent that got lost takes the later ones with it
  Instant orders_until{};              // the last order given is executed then
  std::vector<Timeline::Action> after_thaw;
};

class SimRunner {
 public:
  using Post = std::function<void(node::Event)>;
  // What the world wants to know of its processes, at the instant it happens.
  struct Observer {
    std::function<void(const SimShim&)> started = [](const SimShim&) {};   // an attempt's process
    std::function<void(const SimShim&)> ended = [](const SimShim&) {};
    std::function<void(const SimShim&, std::int64_t step, bool torn, bool rotten)> checkpoint =
        [](const SimShim&, std::int64_t, bool, bool) {};
  };
  SimRunner(Timeline& timeline, Rng rng, Post post, Observer observer)
      : timeline_(timeline), rng_(rng), post_(std::move(post)), observer_(std::move(observer)) {}

  void perform(const node::Stage& effect);
  void perform(const node::LaunchShim& effect);
  void perform(const node::StartAttempt& effect);
  void perform(const node::SignalTask& effect);
  void perform(const node::KillTask& effect);
  void perform(const node::FreezeTask& effect);
  void perform(const node::AnswerLease&) {}
  void perform(const node::RequireLease&) {}
  void perform(const node::EndShim& effect);
  void perform(const node::RemoveJobFiles& effect);
  void remove_directory(const AssignmentId& id) { shims_.erase(id); }

  std::vector<task::FoundShim> found() const;
  void agent_died() { ++life_; }
  void host_died();                    // every shim and task is gone, the directories stay
  void set_wall(std::function<WallTime()> wall) { wall_ = std::move(wall); }

  // Faults.
  void kill_process(const AssignmentId& id, std::int32_t signal);
  void kill_shim(const AssignmentId& id);
  void set_failing(bool failing) { failing_ = failing; }     // some stages and launches fail
  // Breaks the promise of ShimGone: what was ended lives on for a while.
  void set_lying() { lying_ = true; }
  void set_calm();                                           // from now on everything ends soon and well

  const std::map<AssignmentId, SimShim>& shims() const { return shims_; }
  bool has_files(JobId job) const;
  std::size_t live_processes() const { return live_; }

 private:
  using Order = std::function<void()>;
  void order(const AssignmentId& id, Order action);
  void start(SimShim& shim, AttemptNumber attempt);
  void end_process(SimShim& shim, job::Exit exit);
  void schedule_end(SimShim& shim);
  void stop_signal(SimShim& shim, std::int32_t signal);
  void in_run(const AssignmentId& id, Duration delay, std::function<void(SimShim&)> action);
  void every(const AssignmentId& id, Duration interval, std::function<void(SimShim&)> action);
  void notify(const SimShim& shim, bool ready, bool watchdog, std::optional<std::string> status);
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count())) + 1)); }

  Timeline& timeline_;
  Rng rng_;
  Post post_;
  Observer observer_;
  std::function<WallTime()> wall_ = [] { return WallTime{}; };
  std::map<AssignmentId, SimShim> shims_;
  std::set<JobId> copies_;             // jobs that have a working copy here
  std::uint64_t life_ = 1;
  std::size_t live_ = 0;
  std::int32_t next_pid_ = 1000;
  bool failing_ = false, calm_ = false, lying_ = false;
};

}  // namespace dtrain::sim
