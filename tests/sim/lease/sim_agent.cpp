// The agent of a host of world lease.
#include <algorithm>
#include <utility>

#include "tests/sim/lease/sim_host.h"

namespace dtrain::sim::lease {

using Kind = Message::Kind;

// ---------------------------------------------------------------- life

void SimHost::start_agent() {
  if (!up_ || agent_.alive) return;
  const std::uint32_t next_life = agent_.life + 1;
  agent_ = Agent{};
  agent_.alive = true;
  agent_.life = next_life;
  agent_.fence = task::OrderFence(stored_, setting_.broken_rule);
  agent_.next_report = local();
  schedule_agent();
  // Shims are found without the store.
  const bool reads = task::lease::Rules(setting_.broken_rule).hold(task::lease::Rule::guard_reads_record);
  world_.after(upto(300ms), [this, life = next_life, reads] {
    if (agent_.life != life || !agent_.alive) return;
    to_agent([this, reads] {
      agent_.found = true;
      for (const auto& shim : shims_) {
        if (!shim->exempt) {
          shim->guard.emplace(lease_options(false));
          if (reads) shim->guard->told(shim->started, shim->exists, shim->lease.until());
        }
        agent_.fence.remember({shim->lease.epoch(), 0});
        agent_.fence.remember(shim->obeyed);
      }
      // The epochs that only ended shims remembered are forgotten, too (seed 35584).
      if (wiped_)
        for (const auto& checker : world_.checkers()) checker->store_wiped(self_, agent_.fence.highest());
      schedule_agent();
    });
  });
}

bool SimHost::kill_agent(bool wipe) {
  const bool watches = std::any_of(shims_.begin(), shims_.end(), [](const auto& shim) { return shim->stopped; });
  if (!up_ || paused_ || !agent_.alive || watches) return false;
  world_.note("agent killed", self_, wipe);
  agent_.alive = agent_.stopped = agent_.waking = false;
  ++agent_.life;
  agent_.inbox.clear();
  for (const auto& shim : shims_) shim->guard.reset();
  if (!wipe) return true;
  stored_ = {};
  wiped_ = true;
  return true;
}

bool SimHost::pause_agent() {
  const bool watches = std::any_of(shims_.begin(), shims_.end(), [](const auto& shim) { return shim->stopped; });
  if (!up_ || paused_ || !agent_.alive || agent_.asleep() || watches) return false;
  agent_.stopped = true;
  world_.note("pause agent", self_, 0);
  return true;
}

void SimHost::resume_agent() {
  if (std::exchange(agent_.stopped, false) && !agent_.waking && !paused_) open_agent();
}

void SimHost::open_agent() {
  wake_agent();
  for (const Action& action : std::exchange(agent_.inbox, {})) action();
}

void SimHost::to_agent(Action action) {
  if (!agent_.alive) return;
  world_.after(kSocket, [this, action = std::move(action), life = agent_.life] {
    if (agent_.life != life || !agent_.alive) return;
    if (agent_.asleep() || paused_) return agent_.inbox.push_back(action);
    action();
  });
}

void SimHost::wake_agent() {
  for (const auto& shim : shims_) {
    if (!shim->guard) continue;
    task::GuardActions out;
    if (shim->frozen)
      shim->guard->frozen(local(), out);
    else
      shim->guard->wake(local(), out);
    act(*shim, out);
  }
  if (local() >= agent_.next_report) report();
  schedule_agent();
}

void SimHost::schedule_agent() {
  Instant at = agent_.next_report;
  for (const auto& shim : shims_)
    if (shim->guard) at = std::min(at, shim->guard->deadline());
  const Instant wanted = std::max(clock_.world(at), world_.now());
  if (wanted == agent_.tick_at) return;
  agent_.tick_at = wanted;
  world_.after(wanted - world_.now(), [this, wanted, life = agent_.life] {
    if (agent_.life != life || agent_.tick_at != wanted) return;
    agent_.tick_at = kNever;
    if (!agent_.asleep() && !paused_) wake_agent();
  });
}

// ---------------------------------------------------------------- the network

void SimHost::receive(const Message& message) {
  if (!up_) return;
  if (!agent_.alive) {
    if (message.kind != Kind::probe || paused_) return;
    Message refused;
    refused.kind = Kind::refused;
    refused.from = self_;
    refused.to = message.from;
    return world_.send(refused);
  }
  if (message.kind == Kind::probe) return;
  Action handle = [this, message] { message.kind == Kind::order ? obey(message) : answered(message); };
  if (agent_.asleep() || paused_) return agent_.inbox.push_back(std::move(handle));
  handle();
}

void SimHost::report() {
  agent_.next_report = local() + kReport;
  Message report;
  report.kind = Kind::report;
  report.from = self_;
  report.boot = boot_;
  report.fence = stored_;
  report.yes = agent_.ordered;
  if (agent_.found)
    for (const auto& shim : shims_) {
      report.fence = std::min(report.fence, shim->obeyed);
      if (report.count < Message::kMostEntries)
        report.entries[report.count++] = {shim->instance.task, shim->instance.generation, boot_, shim->started,
                                          !shim->exists};
    }
  for (report.to = 0; report.to < kCandidates; ++report.to) world_.send(report);
  schedule_agent();
}

void SimHost::obey(const Message& order) {
  if (!agent_.found || !agent_.fence.admit(order.fence)) {
    ++figures_.refused;
    return;
  }
  for (const auto& checker : world_.checkers()) checker->host_obeyed(self_, order.fence);
  stored_ = agent_.fence.highest();
  wiped_ = false;
  agent_.ordered = true;
  agent_.count = order.count;
  agent_.order = order.entries;
  for (const auto& shim : shims_)
    to_shim(shim->instance.number, [this, epoch = order.fence.epoch](Shim& due) {
      if (!due.lease.accept(epoch)) return;
      for (const auto& checker : world_.checkers()) checker->shim_obeyed(due.instance, epoch);
    });
  follow_order();
  // The order arrives after everything sent to the shim before, because the local socket keeps the order.
  for (const auto& shim : shims_)
    to_shim(shim->instance.number, [fence = order.fence](Shim& due) { due.obeyed = std::max(due.obeyed, fence); });
  world_.after(1ms, [this, life = agent_.life] {
    if (agent_.life == life && agent_.alive && !agent_.asleep() && !paused_) report();
  });
}

void SimHost::follow_order() {
  if (!agent_.found || !agent_.ordered) return;
  const std::uint64_t epoch = stored_.epoch;
  const bool one_boot = cluster::lease::Rules(setting_.broken_rule).hold(cluster::lease::Rule::one_boot);
  const auto wanted = [&](const Shim& shim) -> const Entry* {
    for (std::uint32_t i = 0; i < agent_.count; ++i)
      if (agent_.order[i].task == shim.instance.task && agent_.order[i].generation == shim.instance.generation)
        return &agent_.order[i];
    return nullptr;
  };
  std::erase_if(shims_, [&](const auto& shim) {
    return !wanted(*shim) && !shim->exists && !shim->gone_unseen && shim->lease.is_superseded();
  });
  for (std::uint32_t i = 0; i < agent_.count; ++i) {
    const Entry& entry = agent_.order[i];
    const bool other_boot = entry.boot != boot_ && one_boot;
    if (other_boot || find(entry.task, entry.generation) != nullptr) continue;
    const bool exempt = setting_.exempt[entry.task];
    const Instance instance{(self_ << 16) + ++numbers_, entry.task, entry.generation, self_};
    shims_.push_back(
        std::make_unique<Shim>(instance, task::Lease(lease_options(exempt), rng_.next() | 1, epoch), exempt));
    if (!exempt) shims_.back()->guard.emplace(lease_options(false));
  }
  for (const auto& shim : shims_) {
    const Entry* entry = wanted(*shim);
    const bool stop = entry != nullptr && entry->flag;
    const bool start = entry != nullptr && !stop && !shim->exists && shim->lease.phase() == task::Lease::Phase::idle;
    if (entry != nullptr && !stop && !start) continue;
    to_shim(shim->instance.number, [this, epoch, entry = entry != nullptr, stop](Shim& due) {
      bool obeyed = false;
      const bool waited = due.lease.phase() == task::Lease::Phase::waiting;
      if (due.lease.phase() == task::Lease::Phase::idle) due.stands_since = world_.now();
      step(due, [&](task::LeaseActions& out) {
        if (!entry) obeyed = due.lease.superseded(local(), epoch, out);
        else if (stop) obeyed = due.lease.stop(local(), kStopGrace, epoch, out);
        else obeyed = due.lease.start(local(), due.lease.attempt() + 1, epoch, out);
      });
      // An instance that never started counts as ended, too: the agent may know more by now than when it sent the stop.
      if (waited && due.lease.phase() == task::Lease::Phase::idle) to_agent([this] { follow_order(); });
      if (!obeyed) return;
      for (const auto& checker : world_.checkers()) checker->shim_obeyed(due.instance, epoch);
    });
  }
  schedule_agent();
}

// ---------------------------------------------------------------- leases

void SimHost::asked(Shim& shim, const task::LeaseAsk& ask) {
  if (shim.guard) shim.guard->asked(ask);
  Message request;
  request.kind = Kind::request;
  request.from = self_;
  request.boot = boot_;
  request.nonce = ask.nonce;
  request.count = 1;
  request.entries[0] = {shim.instance.task, shim.instance.generation, boot_, ask.attempt, false};
  for (request.to = 0; request.to < kCandidates; ++request.to) world_.send(request);
}

void SimHost::answered(const Message& message) {
  const Entry& entry = message.entries[0];
  Shim* shim = find(entry.task, entry.generation);
  const std::uint64_t epoch = message.fence.epoch;
  if (shim == nullptr || !agent_.found) return;
  if (!agent_.fence.admit_epoch(epoch)) {
    ++figures_.refused;
    return;
  }
  const bool granted = message.kind == Kind::granted;
  if (granted && shim->guard) {
    task::GuardActions out;
    shim->guard->granted(local(), message.nonce, out);
    act(*shim, out);
  }
  to_shim(shim->instance.number, [this, granted, epoch, nonce = message.nonce](Shim& due) {
    bool obeyed = false;
    if (granted) due.answered = nonce;
    step(due, [&](task::LeaseActions& out) {
      obeyed = granted ? due.lease.granted(local(), nonce, epoch, out) : due.lease.superseded(local(), epoch, out);
    });
    if (!obeyed) return;
    push_record(due);
    for (const auto& checker : world_.checkers()) checker->shim_obeyed(due.instance, epoch);
  });
  schedule_agent();
}

void SimHost::push_record(const Shim& shim) {
  to_agent([this, number = shim.instance.number, attempt = shim.started, runs = shim.exists,
            until = shim.lease.until()] {
    Shim* due = find(number);
    if (due == nullptr || !due->guard) return;
    due->guard->told(attempt, runs, until);
    schedule_agent();
  });
}

void SimHost::act(Shim& shim, const task::GuardActions& out) {
  if (out.kill && shim.exists) kill(shim);
  if (!out.freeze || !shim.exists) return;
  if (!shim.freeze_wanted) {
    ++figures_.guard_freezes;
    shim.stands_since = world_.now();
  }
  freeze(shim);
}

}  // namespace dtrain::sim::lease
