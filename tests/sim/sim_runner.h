// The simulated host's assignments: shims, the attempts inside them, their directories. The meaning of every call and
// event is that of agent/proc/runner.h; FakeRunner (fake_runner.h) shows this class to the conformance suite.
//
// Orders to one shim are executed one after the other, each after a short random time. Shims and tasks outlive the
// agent; an order that was on its way when the agent died reaches its shim, or not.
//
// Where spec.lease is not 0, or RequireLease came, the shim goes by common/task/lease.h on the host's own boot clock
// (set_boot_clock), and the agent by common/task/lease_guard.h (sim_lease.cpp).
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
#include "common/task/lease_guard.h"
#include "tests/sim/script.h"
#include "tests/sim/timeline.h"

namespace dtrain::sim {

// The lease of a shim, and what its agent knows about it.
struct SimLease {
  SimLease(const task::LeaseOptions& of, std::uint64_t nonce, std::uint64_t epoch) : options(of), held(of, nonce, epoch) {}
  task::LeaseOptions options;
  task::Lease held;
  std::optional<task::LeaseGuard> guard;  // of the agent, while it lives
  bool froze = false;                     // it is frozen for want of a grant: LeaseFroze
  bool told = false;                      // and the agent has reported that
  Instant tick_at = kNever, guard_tick_at = kNever;
};

// One assignment's directory and, while it lives, its shim.
struct SimShim {
  task::ShimSpec spec;
  Script script;
  bool alive = false;         // the shim
  AttemptNumber attempt = 0;  // highest ever started
  bool running = false;       // its process
  std::int32_t pid = 0;
  WallTime started{};
  Instant started_at{};
  std::optional<job::Exit> exit;  // of `attempt`
  bool ready = false, frozen = false, hanging = false;
  bool left = false;                    // it gave up because the task that it watches was away
  bool host_stops = false;              // it was told that its host stops: its end is no fault, and it starts nothing any more
  std::optional<job::Exit> main_ended;  // its main process has ended; its children have their grace
  std::string status;
  std::int64_t step = 0;           // of training
  std::uint64_t run = 0;           // counts attempts and their ends: what was planned for an older one is void
  std::uint64_t deaf_in_life = 0;  // once an order of a dead agent is lost, its later orders are lost too
  Instant orders_until{};          // the last order given is executed then
  std::vector<Timeline::Action> after_thaw;
  std::optional<SimLease> lease;        // none: it runs without
  bool held = false;                    // frozen by an order
  bool stopped = false;                 // the shim itself, by SIGSTOP
  std::vector<Timeline::Action> inbox;  // commands that arrived meanwhile
};

class SimRunner {
 public:
  using Post = std::function<void(node::Event)>;
  // What the world wants to know about its processes, as it happens.
  struct Observer {
    std::function<void(const SimShim&)> started = [](const SimShim&) {};  // an attempt's process
    std::function<void(const SimShim&)> thawed = [](const SimShim&) {};
    std::function<void(const SimShim&)> ended = [](const SimShim&) {};
    std::function<void(const SimShim&, std::int64_t step, bool torn, bool rotten)> checkpoint = [](const SimShim&, std::int64_t, bool,
                                                                                                   bool) {};
  };
  SimRunner(Timeline& timeline, Rng rng, Post post, Observer observer)
      : timeline_(timeline), rng_(rng), post_(std::move(post)), observer_(std::move(observer)) {}

  void perform(const node::Stage& effect);
  void perform(const node::LaunchShim& effect);
  void perform(const node::StartAttempt& effect);
  void perform(const node::SignalTask& effect);
  void perform(const node::KillTask& effect);
  void perform(const node::FreezeTask& effect);
  void perform(const node::AnswerLease& effect);
  void perform(const node::RequireLease& effect);
  void perform(const node::EndShim& effect);
  void perform(const node::RemoveJobFiles& effect);
  void perform(const node::FindGpuHolders& effect);
  void remove_directory(const AssignmentId& id) { shims_.erase(id); }

  std::vector<task::FoundShim> found() const;
  void agent_started();  // found() was called; a freeze by lease is reported again, as an event
  void agent_died();
  void pause_agent(bool paused);  // its guards are stopped with it
  void host_died();               // every shim and task is gone, the directories stay
  void lose_files();              // and then these
  // The host is being stopped in order, without its agent: every task is asked to end, as `dtrain-hold end` does.
  void host_stops();
  // Tasks that watch others (Script::watches). `is_away`: the watched task has ended without success and does not run again.
  void set_watched(std::function<bool(const AssignmentId&)> is_away) { is_away_ = std::move(is_away); }
  void watched_ended(const AssignmentId& id);
  void set_wall(std::function<WallTime()> wall) { wall_ = std::move(wall); }
  // CLOCK_BOOTTIME of this host, and when in the world it will show an instant; the world's own time if not set.
  void set_boot_clock(std::function<Instant()> boot, std::function<Instant(Instant)> to_world) {
    boot_ = std::move(boot);
    to_world_ = std::move(to_world);
  }

  // Faults.
  void kill_process(const AssignmentId& id, std::int32_t signal);
  void kill_shim(const AssignmentId& id);
  void stop_shim(const AssignmentId& id);  // SIGSTOP; its task runs on
  void continue_shim(const AssignmentId& id);
  void set_failing(bool failing) { failing_ = failing; }  // some stages and launches fail
  // Some tasks that end leave a process outside of all tasks, which holds their GPUs for a while.
  void set_leaving(bool leaving) { leaving_ = leaving; }
  // Breaks the promise of ShimGone: what was ended lives on for a while.
  void set_lying() { lying_ = true; }
  void set_calm();  // from now on everything ends soon and well

  const std::map<AssignmentId, SimShim>& shims() const { return shims_; }
  struct Leftover {
    AssignmentId of;
    Instant until{};
  };
  // That holds the GPU; nullptr: none.
  const Leftover* leftover(const std::string& gpu) const;
  bool has_files(JobId job) const;
  std::size_t live_processes() const { return live_; }

 private:
  using Order = std::function<void()>;
  void order(const AssignmentId& id, Order action);
  void start(SimShim& shim, AttemptNumber attempt);
  void end_process(SimShim& shim, job::Exit exit);
  void schedule_end(SimShim& shim);
  void stop_signal(SimShim& shim, const node::SignalTask& effect);
  void leave_if_alone(SimShim& shim);
  void in_run(const AssignmentId& id, Duration delay, std::function<void(SimShim&)> action);
  void every(const AssignmentId& id, Duration interval, std::function<void(SimShim&)> action);
  void set_frozen(SimShim& shim, bool frozen);
  void refuse_start(const AssignmentId& id, AttemptNumber attempt, std::string why);
  // leases
  void begin_lease(SimShim& shim, Duration length, bool exempt);
  void order_start(SimShim& shim, AttemptNumber attempt);
  void order_freeze(SimShim& shim, bool freeze);
  void withdraw_start(SimShim& shim, const char* why);
  void act(SimShim& shim, const task::LeaseActions& out);
  void guard_acts(SimShim& shim, const task::GuardActions& out);
  void report_froze(SimShim& shim);
  void wake_lease(SimShim& shim);
  void schedule_lease(SimShim& shim);
  void schedule_guard(SimShim& shim);
  template <class Step>
  void step_lease(SimShim& shim, Step what) {
    task::LeaseActions out;
    what(out);
    act(shim, out);
    schedule_lease(shim);
  }
  void notify(const SimShim& shim, bool ready, bool watchdog, std::optional<std::string> status);
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count())) + 1)); }

  Timeline& timeline_;
  Rng rng_;
  Post post_;
  Observer observer_;
  std::function<bool(const AssignmentId&)> is_away_ = [](const AssignmentId&) { return false; };
  std::function<WallTime()> wall_ = [] { return WallTime{}; };
  std::function<Instant()> boot_ = [this] { return timeline_.now(); };
  std::function<Instant(Instant)> to_world_ = [](Instant boot) { return boot; };
  std::map<AssignmentId, SimShim> shims_;
  std::set<JobId> copies_;  // jobs that have a working copy here
  std::uint64_t life_ = 1, host_deaths_ = 0;
  std::size_t live_ = 0;
  std::int32_t next_pid_ = 1000;
  std::map<std::string, Leftover> leftovers_;  // by GPU, as the environment names it
  bool failing_ = false, leaving_ = false, calm_ = false, lying_ = false;
  bool agent_paused_ = false;
};

}  // namespace dtrain::sim
