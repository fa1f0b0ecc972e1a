#include "tests/sim/lease/sim_host.h"

#include <algorithm>
#include <utility>

namespace dtrain::sim::lease {

SimHost::SimHost(Slot self, const Setting& setting, Surroundings& world, Rng rng)
    : self_(self), setting_(setting), world_(world), rng_(rng), member_(next_member(self)) {}

task::LeaseOptions SimHost::lease_options(bool exempt) const {
  task::LeaseOptions options;
  options.lease = setting_.lease;
  options.ask_every = setting_.lease / 5;
  options.exempt = exempt;
  options.broken_rule = setting_.broken_rule;
  return options;
}

SimHost::Shim* SimHost::find(std::uint32_t number) {
  const auto it = std::find_if(shims_.begin(), shims_.end(), [&](const auto& s) { return s->instance.number == number; });
  return it == shims_.end() ? nullptr : it->get();
}
SimHost::Shim* SimHost::find(std::uint32_t task, Generation generation) {
  const auto it = std::find_if(shims_.begin(), shims_.end(),
                               [&](const auto& s) { return s->instance.task == task && s->instance.generation == generation; });
  return it == shims_.end() ? nullptr : it->get();
}

// ---------------------------------------------------------------- machine

void SimHost::power_on() {
  if (up_) return;
  up_ = true;
  ++boot_;
  clock_.boot(world_.now(), upto(100s));
  world_.note("power on", self_, boot_);
  start_agent();
}

void SimHost::power_off() {
  if (!up_) return;
  world_.note("power off", self_, boot_);
  up_ = paused_ = false;
  agent_.alive = false;
  ++agent_.life;
  agent_.inbox.clear();
  deferred_.clear();
  for (const auto& shim : shims_) {
    shim->exists = false;
    judge(*shim);
  }
  shims_.clear();
}

bool SimHost::pause_host() {
  if (!up_ || paused_) return false;
  paused_ = true;
  agent_.waking = false;
  for (const auto& shim : shims_) shim->waking = false;
  world_.note("pause", self_, 0);
  for (const auto& shim : shims_) judge(*shim);
  return true;
}

// The tasks run again at once; the shims and the agent follow a little later.
void SimHost::resume_host() {
  if (!up_ || !paused_) return;
  paused_ = false;
  const std::uint32_t resumes = ++resumes_;
  world_.note("resume", self_, 0);
  for (const auto& shim : shims_) {
    const std::uint32_t number = shim->instance.number;
    if (shim->exists && !shim->frozen && !shim->exempt && shim->lease.until() <= local()) {
      shim->excused = true;
      ++figures_.excused;
      world_.after(kExposure * 102 / 100, [this, number, resumes] {
        Shim* due = find(number);
        if (due == nullptr || resumes != resumes_ || !due->excused) return;
        due->excused = false;
        if (due->executing)
          for (const auto& checker : world_.checkers()) checker->excuse_over(due->instance);
      });
    }
    judge(*shim);
    shim->waking = true;
    world_.after(upto(kWakeWindow), [this, number, resumes] {
      Shim* due = find(number);
      if (due == nullptr || resumes != resumes_ || !due->waking) return;
      due->waking = false;
      if (!due->stopped) open_shim(*due);
    });
  }
  agent_.waking = agent_.alive;
  world_.after(upto(kWakeWindow), [this, life = agent_.life, resumes] {
    if (agent_.life != life || resumes != resumes_ || !agent_.waking) return;
    agent_.waking = false;
    if (!agent_.stopped) open_agent();
  });
  for (const Action& action : std::exchange(deferred_, {})) action();
}

// ---------------------------------------------------------------- kernel

void SimHost::judge(Shim& shim) {
  const bool on = shim.exists && !shim.frozen && up_ && !paused_;
  if (on == shim.executing) return;
  shim.executing = on;
  if (!on) shim.excused = false;
  world_.note(on ? "executes" : "stands", self_, shim.instance.task * 1000 + shim.instance.generation);
  for (const auto& checker : world_.checkers()) checker->executing(shim.instance, on, shim.excused);
}

void SimHost::kernel_after(Duration delay, std::uint32_t number, std::function<void(Shim&)> action) {
  Action run = [this, number, action = std::move(action)] {
    if (Shim* shim = find(number)) action(*shim);
  };
  world_.after(delay, [this, run = std::move(run), boot = boot_] {
    if (!up_ || boot != boot_) return;
    if (paused_) return deferred_.push_back(run);
    run();
  });
}

void SimHost::freeze(Shim& shim) {
  shim.freeze_wanted = true;
  const bool slow = slow_freeze_ && rng_.chance(1, 2);
  const Duration takes = shim.frozen || !shim.exists ? 10us : 1ms + upto(slow ? 4s : 9ms);
  kernel_after(takes, shim.instance.number, [this, freezing = ++shim.freezing](Shim& due) {
    if (due.freezing == freezing && due.freeze_wanted) became_frozen(due);
  });
}

void SimHost::became_frozen(Shim& shim) {
  shim.frozen = true;
  judge(shim);
  const std::uint32_t number = shim.instance.number;
  to_agent([this, number] {
    Shim* due = find(number);
    if (due == nullptr || !due->guard || !due->frozen) return;
    task::GuardActions out;
    due->guard->frozen(local(), out);
    act(*due, out);
  });
  if (shim.exists && !shim.asleep()) step(shim, [&](task::LeaseActions& out) { shim.lease.frozen(local(), out); });
}

void SimHost::kill(Shim& shim) {
  ++figures_.kills;
  kernel_after(1ms + upto(kKillTime - 2ms), shim.instance.number, [this, process = shim.process](Shim& due) {
    if (due.exists && due.process == process) gone(due);
  });
}

// All that it began has ended.
void SimHost::leave(std::uint32_t number) {
  std::erase_if(shims_, [&](const auto& shim) { return shim->instance.number == number; });
  to_agent([this, number] { shim_gone(number); });
}

// A task ends within seconds of the signal, once it can run.
void SimHost::try_signal(std::uint32_t number, std::uint32_t process) {
  kernel_after(100ms + upto(2s), number, [this, number, process](Shim& due) {
    if (!due.exists || due.process != process) return;
    if (due.frozen) return try_signal(number, process);
    gone(due);
  });
}

void SimHost::gone(Shim& shim) {
  shim.exists = shim.frozen = shim.freeze_wanted = false;
  judge(shim);
  shim.gone_unseen = true;
  if (!shim.asleep()) wake_shim(shim);
}

void SimHost::crash_a_task(Rng& rng) {
  if (!up_ || paused_ || shims_.empty()) return;
  Shim& shim = *shims_[rng.below(shims_.size())];
  if (shim.exists && !shim.frozen) gone(shim);
}

// ---------------------------------------------------------------- shims

void SimHost::to_shim(std::uint32_t number, std::function<void(Shim&)> action) {
  world_.after(kSocket, [this, number, action = std::move(action), boot = boot_] {
    Shim* shim = boot == boot_ ? find(number) : nullptr;
    if (shim == nullptr) return;
    if (shim->asleep() || paused_)
      return shim->inbox.push_back([this, number, action] {
        if (Shim* due = find(number)) action(*due);
      });
    action(*shim);
  });
}

void SimHost::act(Shim& shim, const task::LeaseActions& out) {
  const std::uint32_t number = shim.instance.number;
  if (out.kill) kill(shim);
  if (out.unfenced) ++figures_.unfenced;
  if ((out.thaw || out.start) && !shim.exempt) let_run(shim);
  if (out.freeze) {
    ++figures_.freezes;
    shim.stands_since = world_.now();
    freeze(shim);
  }
  if (out.thaw) {
    ++figures_.thaws;
    ++shim.freezing;
    shim.frozen = shim.freeze_wanted = false;
    judge(shim);
  }
  if (out.start) {
    ++figures_.starts;
    ++shim.process;
    ++shim.freezing;
    shim.exists = true;
    shim.frozen = shim.freeze_wanted = false;
    shim.started = shim.lease.attempt();
    records_[{shim.instance.task, shim.instance.generation}] = shim.started;
    judge(shim);
    to_agent([this, number, attempt = shim.started] {
      for (Work& work : agent_.works)
        if (work.shim == number && work.phase == Work::Phase::starting && work.attempt == attempt) work.phase = Work::Phase::running;
      follow_copy();
    });
  }
  if (!out.ask) return;
  shim.asks.emplace_back(out.ask->nonce, world_.now());
  if (shim.asks.size() > kAsksSeen) shim.asks.pop_front();
  to_agent([this, number, ask = *out.ask] {
    if (Shim* due = find(number)) asked(*due, ask);
  });
}

void SimHost::let_run(const Shim& shim) {
  Instant asked = Instant::min();
  for (const auto& [nonce, at] : shim.asks)
    if (nonce == shim.answered) asked = at;
  for (const auto& checker : world_.checkers()) checker->let_run(shim.instance, asked, shim.stands_since);
}

void SimHost::wake_shim(Shim& shim) {
  if (std::exchange(shim.gone_unseen, false)) {
    step(shim, [&](task::LeaseActions& out) { shim.lease.ended(local(), out); });
    push_record(shim);
    to_agent([this, number = shim.instance.number] { exited(number); });
    if (shim.leaving) leave(shim.instance.number);
    return;
  }
  step(shim, [&](task::LeaseActions& out) {
    if (shim.exists && shim.frozen) return shim.lease.frozen(local(), out);
    shim.lease.wake(local(), out);
  });
}

// The shim runs again and first looks at the clock, then at what it received. Without that rule the waiting messages
// come first, which takes a while.
void SimHost::open_shim(Shim& shim) {
  const bool clock_first = task::lease::Rules(setting_.broken_rule).hold(task::lease::Rule::expiry_first);
  const std::uint32_t number = shim.instance.number;
  const std::deque<Action> received = std::exchange(shim.inbox, {});
  if (clock_first) wake_shim(shim);
  for (const Action& action : received) action();
  if (clock_first) return;
  world_.after(upto(800ms), [this, number] {
    if (Shim* due = find(number); due != nullptr && !due->asleep() && !paused_) wake_shim(*due);
  });
}

void SimHost::schedule(Shim& shim) {
  const Instant wanted = std::max(clock_.world(shim.lease.deadline()), world_.now());
  if (wanted == kNever || wanted == shim.tick_at) return;
  shim.tick_at = wanted;
  world_.after(wanted - world_.now(), [this, number = shim.instance.number, wanted] {
    Shim* due = find(number);
    if (due == nullptr || due->tick_at != wanted) return;
    due->tick_at = kNever;
    if (!due->asleep() && !paused_) wake_shim(*due);
  });
}

bool SimHost::pause_shim(Rng& rng) {
  if (!up_ || paused_ || !agent_.alive || agent_.asleep() || !agent_.found || shims_.empty()) return false;
  Shim& shim = *shims_[rng.below(shims_.size())];
  shim.stopped = true;
  world_.note("pause shim", self_, shim.instance.task);
  return true;
}

void SimHost::resume_shims() {
  std::vector<std::uint32_t> numbers;
  for (const auto& shim : shims_)
    if (std::exchange(shim->stopped, false) && !shim->waking) numbers.push_back(shim->instance.number);
  if (paused_) return;
  for (const std::uint32_t number : numbers)
    if (Shim* shim = find(number)) open_shim(*shim);
}

bool SimHost::runs(std::uint32_t task) const {
  return std::any_of(shims_.begin(), shims_.end(), [&](const auto& shim) { return shim->instance.task == task && shim->executing; });
}

std::vector<Instance> SimHost::standing() const {
  std::vector<Instance> all;
  for (const auto& shim : shims_)
    if (shim->exists && !shim->executing) all.push_back(shim->instance);
  return all;
}

}  // namespace dtrain::sim::lease
