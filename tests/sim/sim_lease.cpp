// What a simulated shim does under a lease, and its agent beside it.
#include <algorithm>
#include <csignal>

#include "tests/sim/sim_runner.h"

namespace dtrain::sim {
namespace {

constexpr Duration kSocket = 100us;  // from the shim to its agent

}  // namespace

void SimRunner::begin_lease(SimShim& shim, Duration length, bool exempt) {
  task::LeaseOptions options;
  options.lease = length;
  options.ask_every = std::min(options.ask_every, length / 5);
  options.exempt = exempt;
  shim.lease.emplace(options, rng_.next() | 1, shim.spec.epoch);
  shim.lease->guard.emplace(options);
}

// ---------------------------------------------------------------- orders

void SimRunner::order_start(SimShim& shim, AttemptNumber attempt) {
  const task::Lease& lease = shim.lease->held;
  if (lease.phase() == task::Lease::Phase::waiting && lease.attempt() == attempt) return;
  withdraw_start(shim, "a later order took its place");
  step_lease(shim, [&](task::LeaseActions& out) {
    if (!shim.lease->held.start(boot_(), attempt, out)) refuse_start(shim.spec.id, attempt, "it was superseded");
  });
}

void SimRunner::withdraw_start(SimShim& shim, const char* why) {
  if (!shim.lease) return;
  const AttemptNumber attempt = shim.lease->held.attempt();
  if (!shim.lease->held.withdraw()) return;
  schedule_lease(shim);
  refuse_start(shim.spec.id, attempt, why);
}

void SimRunner::order_freeze(SimShim& shim, bool freeze) {
  shim.held = freeze;
  step_lease(shim, [&](task::LeaseActions& out) { shim.lease->held.hold(boot_(), freeze, out); });
  // Released, but its lease is over: from now on it stands still for that.
  if (!freeze && shim.frozen) shim.lease->froze = true;
  report_froze(shim);
}

void SimRunner::perform(const node::AnswerLease& effect) {
  const auto known = shims_.find(effect.id);
  if (effect.granted && known != shims_.end() && known->second.lease && known->second.lease->guard) {
    task::GuardActions out;
    known->second.lease->guard->granted(boot_(), effect.nonce, out);
    guard_acts(known->second, out);
    schedule_guard(known->second);
  }
  order(effect.id, [this, effect] {
    const auto it = shims_.find(effect.id);
    if (it == shims_.end() || !it->second.lease) return;
    SimShim& shim = it->second;
    task::Lease& lease = shim.lease->held;
    const bool waited = lease.phase() == task::Lease::Phase::waiting;
    step_lease(shim, [&](task::LeaseActions& out) {
      if (effect.granted) lease.granted(boot_(), effect.nonce, effect.epoch, out);
      else lease.superseded(boot_(), effect.epoch, out);
    });
    if (waited && lease.phase() == task::Lease::Phase::idle && lease.is_superseded())
      refuse_start(effect.id, lease.attempt(), "it was superseded");
  });
}

// What runs without a lease: as if it had been exempt from the beginning.
void SimRunner::perform(const node::RequireLease& effect) {
  order(effect.id, [this, effect] {
    const auto it = shims_.find(effect.id);
    if (it == shims_.end() || !it->second.alive || it->second.lease) return;
    SimShim& shim = it->second;
    begin_lease(shim, effect.lease, true);
    task::Lease& lease = shim.lease->held;
    task::LeaseActions ignored;
    if (shim.running) lease.start(boot_(), shim.attempt, ignored);
    if (shim.held) {
      lease.hold(boot_(), true, ignored);
      lease.frozen(boot_(), ignored);
    }
    step_lease(shim, [&](task::LeaseActions& out) { lease.require(boot_(), out); });
    if (shim.lease->guard) shim.lease->guard->told(shim.attempt, shim.running, lease.until());
    schedule_guard(shim);
  });
}

// ---------------------------------------------------------------- the shim

void SimRunner::act(SimShim& shim, const task::LeaseActions& out) {
  SimLease& lease = *shim.lease;
  if (out.kill && shim.running) {
    job::Exit exit;
    exit.signal = SIGKILL;
    if (out.unfenced) exit.cause = "could not be frozen in time";
    end_process(shim, std::move(exit));
  }
  if (out.freeze && shim.running) {
    set_frozen(shim, true);
    lease.froze = lease.froze || !shim.held;
    step_lease(shim, [&](task::LeaseActions& more) { lease.held.frozen(boot_(), more); });
  }
  if (out.thaw) {
    lease.froze = false;
    set_frozen(shim, false);
  }
  if (out.start) start(shim, lease.held.attempt());
  report_froze(shim);
  if (!out.ask) return;
  timeline_.after(kSocket, [this, id = shim.spec.id, life = life_, ask = *out.ask] {
    const auto it = shims_.find(id);
    if (life != life_ || it == shims_.end() || !it->second.lease) return;
    if (it->second.lease->guard) it->second.lease->guard->asked(ask);
    post_(node::LeaseAsked{id, ask.attempt, ask.nonce});
  });
}

void SimRunner::report_froze(SimShim& shim) {
  SimLease& lease = *shim.lease;
  if (!shim.running) lease.froze = lease.told = false;  // its end says enough
  if (lease.froze == lease.told || shim.stopped) return;
  lease.told = lease.froze;
  post_(node::LeaseFroze{shim.spec.id, shim.attempt, lease.froze});
}

void SimRunner::wake_lease(SimShim& shim) {
  step_lease(shim, [&](task::LeaseActions& out) {
    SimLease& lease = *shim.lease;
    if (shim.running && shim.frozen) {
      if (lease.held.phase() == task::Lease::Phase::running) lease.froze = true;  // by the agent
      return lease.held.frozen(boot_(), out);
    }
    lease.held.wake(boot_(), out);
  });
}

void SimRunner::schedule_lease(SimShim& shim) {
  const Instant wanted = std::max(to_world_(shim.lease->held.deadline()), timeline_.now());
  if (wanted == kNever || wanted == shim.lease->tick_at) return;
  shim.lease->tick_at = wanted;
  timeline_.at(wanted, [this, id = shim.spec.id, wanted] {
    const auto it = shims_.find(id);
    if (it == shims_.end() || !it->second.lease || it->second.lease->tick_at != wanted) return;
    it->second.lease->tick_at = kNever;
    if (!it->second.stopped) wake_lease(it->second);
  });
}

void SimRunner::stop_shim(const AssignmentId& id) {
  const auto it = shims_.find(id);
  if (it != shims_.end() && it->second.alive) it->second.stopped = true;
}

// The clock first, then what was received.
void SimRunner::continue_shim(const AssignmentId& id) {
  const auto it = shims_.find(id);
  if (it == shims_.end() || !it->second.stopped) return;
  it->second.stopped = false;
  if (it->second.lease) wake_lease(it->second);
  for (const auto& action : std::exchange(it->second.inbox, {})) action();
}

// ---------------------------------------------------------------- its agent

void SimRunner::guard_acts(SimShim& shim, const task::GuardActions& out) {
  if (out.kill && shim.running) {
    job::Exit exit;
    exit.signal = SIGKILL;
    exit.cause = "could not be frozen in time";
    return end_process(shim, std::move(exit));
  }
  if (!out.freeze || !shim.running) return;
  set_frozen(shim, true);
  task::GuardActions more;
  shim.lease->guard->frozen(boot_(), more);
  if (std::exchange(shim.lease->told, true)) return;
  shim.lease->froze = true;
  post_(node::LeaseFroze{shim.spec.id, shim.attempt, true});
}

void SimRunner::schedule_guard(SimShim& shim) {
  if (!shim.lease || !shim.lease->guard) return;
  const Instant wanted = std::max(to_world_(shim.lease->guard->deadline()), timeline_.now());
  if (wanted == kNever || wanted == shim.lease->guard_tick_at) return;
  shim.lease->guard_tick_at = wanted;
  timeline_.at(wanted, [this, id = shim.spec.id, wanted, life = life_] {
    const auto it = shims_.find(id);
    if (life != life_ || it == shims_.end() || !it->second.lease || it->second.lease->guard_tick_at != wanted) return;
    it->second.lease->guard_tick_at = kNever;
    if (agent_paused_ || !it->second.lease->guard) return;
    task::GuardActions out;
    it->second.lease->guard->wake(boot_(), out);
    guard_acts(it->second, out);
    if (it->second.lease) schedule_guard(it->second);
  });
}

void SimRunner::agent_started() {
  for (auto& [id, shim] : shims_) {
    if (!shim.lease) continue;
    shim.lease->guard.emplace(shim.lease->options);
    shim.lease->guard->told(shim.attempt, shim.running, shim.lease->held.until());
    schedule_guard(shim);
    shim.lease->told = false;
    timeline_.after(kSocket, [this, shim_id = id, life = life_] {
      const auto it = shims_.find(shim_id);
      if (life == life_ && it != shims_.end() && it->second.lease) report_froze(it->second);
    });
  }
}

// A start that waits is lost with who ordered it: the next agent orders it again.
void SimRunner::agent_died() {
  ++life_;
  agent_paused_ = false;
  for (auto& [id, shim] : shims_) {
    if (!shim.lease) continue;
    shim.lease->guard.reset();
    shim.lease->guard_tick_at = kNever;
    if (shim.lease->held.withdraw()) schedule_lease(shim);
  }
}

void SimRunner::pause_agent(bool paused) {
  agent_paused_ = paused;
  if (paused) return;
  for (auto& [id, shim] : shims_) schedule_guard(shim);
}

}  // namespace dtrain::sim
