// One host: its kernel (processes, cgroup.freeze), its agent, and a shim for each assignment. Agent and shim
// communicate over a local socket, in order and fast; each can be stopped by itself, and its messages then wait.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/rng.h"
#include "common/task/lease_guard.h"
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
  std::uint64_t starts = 0, freezes = 0, thaws = 0, kills = 0, unfenced = 0, guard_freezes = 0, excused = 0, refused = 0;
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
  bool kill_agent(bool wipe);  // `wipe`: its disk, so that the next one is another member
  void start_agent();
  void resume_shims();
  void resume_agent();
  void resume_host();
  void crash_a_task(Rng& rng);
  void set_slow_freeze(bool on) { slow_freeze_ = on; }
  void set_drift(std::int32_t per_million) { clock_.drift(world_.now(), per_million); }

  // The member that this host was before its disk was wiped, if nothing of that time is left. 0: none.
  Member forgotten() const {
    const bool is = agent_.alive && agent_.current && std::none_of(shims_.begin(), shims_.end(), [&](const auto& shim) {
                      return std::none_of(agent_.works.begin(), agent_.works.end(),
                                          [&](const Work& work) { return work.shim == shim->instance.number; });
                    });
    return is && member_ >> 8 > 1 ? member_ - 0x100 : 0;
  }
  bool up() const { return up_; }
  bool agent_runs() const { return agent_.alive; }
  bool runs(std::uint32_t task) const;
  std::vector<Instance> standing() const;
  const HostFigures& figures() const { return figures_; }

 private:
  using Action = std::function<void()>;
  struct Shim {
    Shim(const Instance& of, const task::Lease& fresh, bool begins_exempt) : instance(of), lease(fresh), exempt(begins_exempt) {}
    Instance instance;
    task::Lease lease;
    std::optional<task::LeaseGuard> guard;  // the agent's
    bool asleep() const { return stopped || waking; }
    bool exempt, leaving = false, stopped = false, waking = false, exists = false, frozen = false, freeze_wanted = false;
    bool executing = false, excused = false, gone_unseen = false;
    AttemptNumber started = 0;
    std::uint32_t process = 0, freezing = 0;  // which of them
    Instant tick_at = kNever, stands_since{};
    std::deque<std::pair<std::uint64_t, Instant>> asks;  // the latest, as the world's clock saw them
    std::uint64_t answered = 0;                          // nonce of the newest answer
    std::deque<Action> inbox;
  };
  // An assignment as its agent knows it, in the phases of task::Task.
  struct Work {
    enum class Phase : std::uint8_t { staged, starting, running, backoff, ending, over };
    Phase phase{};
    std::uint32_t task = 0;
    Generation generation = 0;
    std::uint32_t shim = 0;  // 0: none lives
    AttemptNumber attempt = 0;
    bool leased = false, superseded = false, rebooted = false, signalled = false, killed = false;
    Instant begin_at{}, kill_at = kNever, require_at{};
    std::deque<std::uint64_t> questions;  // the last ones, whose answers are passed on
  };
  struct Agent {
    bool asleep() const { return stopped || waking; }
    // Stopped: by a fault of its own. Waking: its host has just continued. Current: its copy of the log has an entry of
    // this life.
    bool alive = false, stopped = false, waking = false, found = false, current = false, dirty = false;
    std::uint32_t life = 0;
    std::optional<Slot> leader;
    std::vector<Work> works;
    std::optional<HostReport> report;  // the oldest that the copy has not
    std::uint64_t sequence = 0, said_back = 0;
    Instant next_report{}, tick_at = kNever;
    std::deque<Action> inbox;
  };
  static constexpr std::size_t kAsksSeen = 32;
  static constexpr std::size_t kQuestions = 8;  // as task::Task
  static constexpr Duration kSocket = 100us, kReport = 1s, kStopGrace = 3s, kBackoff = 200ms, kRequireEvery = 10s;

  // Kernel.
  void kernel_after(Duration delay, std::uint32_t number, std::function<void(Shim&)> action);
  void judge(Shim& shim);
  void freeze(Shim& shim);
  void became_frozen(Shim& shim);
  void kill(Shim& shim);
  void let_run(const Shim& shim);
  void try_signal(std::uint32_t number, std::uint32_t process);
  void gone(Shim& shim);
  void leave(std::uint32_t number);
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
  void heard(const Message& copy);
  void follow_copy();
  Work* work(std::uint32_t task, Generation generation);
  Work begin(std::uint32_t task, const TaskRecord& record);
  void advance(Work& work, const TaskRecord* record);
  void launch(Work& work);
  void conclude(Work& work);
  void refused(std::uint32_t number);
  void exited(std::uint32_t number);
  void shim_gone(std::uint32_t number);
  void end_shim(std::uint32_t number);
  bool leased(std::uint32_t task) const;
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
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count()) + 1))); }

  Slot self_;
  const Setting& setting_;
  Surroundings& world_;
  Rng rng_;
  SimClock clock_;
  bool up_ = false, paused_ = false, slow_freeze_ = false;
  std::uint32_t boot_ = 0, numbers_ = 0, resumes_ = 0;
  Agent agent_;
  // On its disk.
  Member member_;
  std::uint64_t term_ = 0;  // of the log: the epoch
  LedgerCopy copy_ = std::make_shared<const Ledger>();
  std::map<std::pair<std::uint32_t, Generation>, AttemptNumber> records_;  // newest attempt that was started
  std::vector<std::unique_ptr<Shim>> shims_;
  std::deque<Action> deferred_;  // of the kernel, while the host is stopped
  HostFigures figures_;
};

}  // namespace dtrain::sim::lease
