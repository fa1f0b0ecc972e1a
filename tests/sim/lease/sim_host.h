// One host: its kernel (processes, cgroup.freeze), its agent, and a shim for each assignment. Agent and shim
// communicate over a local socket, in order and fast; each can be stopped by itself, and its messages then wait.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/rng.h"
#include "common/task/lease_guard.h"
#include "common/task/order_fence.h"
#include "tests/sim/lease/checker.h"
#include "tests/sim/lease/coordinator.h"
#include "tests/sim/sim_clock.h"

namespace dtrain::sim::lease {

// What a host needs of the world.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  virtual Instant now() const = 0;
  virtual void after(Duration delay, std::function<void()> action) = 0;
  virtual void send(Message message) = 0;
  virtual const CheckerList& checkers() const = 0;
  virtual void note(const char* what, Slot host, std::uint64_t detail) = 0;
};

struct HostFigures {
  std::uint64_t starts = 0, freezes = 0, thaws = 0, kills = 0, unfenced = 0, guard_freezes = 0, excused = 0,
                refused = 0;
};

class SimHost {
 public:
  SimHost(Slot self, const Setting& setting, Surroundings& world, Rng rng);

  void power_on();  // another boot
  void power_off();
  void receive(const Message& message);

  // Faults. Each returns whether it did anything.
  bool pause_shim(Rng& rng);  // one whose agent watches it
  bool pause_agent();
  bool pause_host();
  bool kill_agent(bool wipe);
  void start_agent();
  void resume_shims();
  void resume_agent();
  void resume_host();
  void crash_a_task(Rng& rng);
  void set_slow_freeze(bool on) { slow_freeze_ = on; }
  void set_drift(std::int32_t per_million) { clock_.drift(world_.now(), per_million); }

  bool up() const { return up_; }
  bool agent_runs() const { return agent_.alive; }
  bool runs(std::uint32_t task) const;
  std::vector<Instance> standing() const;
  const HostFigures& figures() const { return figures_; }

 private:
  using Action = std::function<void()>;
  struct Shim {
    Shim(const Instance& of, const task::Lease& fresh, bool is_exempt)
        : instance(of), lease(fresh), exempt(is_exempt) {}
    Instance instance;
    task::Lease lease;
    std::optional<task::LeaseGuard> guard;  // the agent's
    bool asleep() const { return stopped || waking; }
    bool exempt, stopped = false, waking = false, exists = false, frozen = false, freeze_wanted = false;
    bool executing = false, excused = false, gone_unseen = false;
    AttemptNumber started = 0;
    Fence obeyed;  // all that this order asked for is done
    std::uint32_t process = 0, freezing = 0;  // which of them
    Instant tick_at = kNever, stands_since{};
    std::deque<std::pair<std::uint64_t, Instant>> asks;  // the latest, as the world's clock saw them
    std::uint64_t answered = 0;                          // nonce of the newest answer
    std::deque<Action> inbox;
  };
  struct Agent {
    bool asleep() const { return stopped || waking; }
    // Stopped: by a fault of its own. Waking: its host has just continued.
    bool alive = false, stopped = false, waking = false, found = false, ordered = false;
    std::uint32_t life = 0;
    task::OrderFence fence;
    std::uint32_t count = 0;
    std::array<Entry, Message::kMostEntries> order;
    Instant next_report{}, tick_at = kNever;
    std::deque<Action> inbox;
  };
  static constexpr std::size_t kAsksSeen = 32;
  static constexpr Duration kSocket = 100us, kReport = 1s, kStopGrace = 3s;

  // Kernel.
  void kernel_after(Duration delay, std::uint32_t number, std::function<void(Shim&)> action);
  void judge(Shim& shim);
  void freeze(Shim& shim);
  void became_frozen(Shim& shim);
  void kill(Shim& shim);
  void let_run(const Shim& shim);
  void try_signal(std::uint32_t number, std::uint32_t process);
  void gone(Shim& shim);
  // Shims.
  void to_shim(std::uint32_t number, std::function<void(Shim&)> action);
  template <class Step>
  void step(Shim& shim, Step what) {
    task::LeaseActions out;
    what(out);
    act(shim, out);
    schedule(shim);
  }
  void act(Shim& shim, const task::LeaseActions& out);
  void wake_shim(Shim& shim);
  void open_shim(Shim& shim);
  void schedule(Shim& shim);
  Shim* find(std::uint32_t number);
  Shim* find(std::uint32_t task, Generation generation);
  // Agent.
  void to_agent(Action action);
  void obey(const Message& order);
  void follow_order();
  void asked(Shim& shim, const task::LeaseAsk& ask);
  void answered(const Message& message);
  void push_record(const Shim& shim);
  void act(Shim& shim, const task::GuardActions& out);
  void wake_agent();
  void open_agent();
  void schedule_agent();
  void report();

  task::LeaseOptions lease_options(bool exempt) const;
  Instant local() const { return clock_.local(world_.now()); }
  Duration upto(Duration most) {
    return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count()) + 1)));
  }

  Slot self_;
  const Setting& setting_;
  Surroundings& world_;
  Rng rng_;
  SimClock clock_;
  bool up_ = false, paused_ = false, slow_freeze_ = false;
  std::uint32_t boot_ = 0, numbers_ = 0, resumes_ = 0;
  Agent agent_;
  Fence stored_;
  bool wiped_ = false;  // and not written since
  std::vector<std::unique_ptr<Shim>> shims_;
  std::deque<Action> deferred_;  // of the kernel, while the host is stopped
  HostFigures figures_;
};

}  // namespace dtrain::sim::lease
