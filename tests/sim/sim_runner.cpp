#include "tests/sim/sim_runner.h"

#include "common/node/gpu_reclaim.h"

#include <algorithm>
#include <csignal>

namespace dtrain::sim {
namespace {

constexpr Duration kSlowestStage = 50ms, kSlowestLaunch = 20ms, kSlowestOrder = 3ms, kSlowestRemoval = 30ms, kSlowestLook = 20ms,
                   kLongestLeftover = 40s;
constexpr std::int64_t kStepsPerCheckpoint = 100;
constexpr std::int32_t kGivesUp = 134;  // the exit code after SIGABRT, after which restartPolicy ExitCode tries again, too

std::int64_t restored_step(const task::ShimSpec& spec) {
  const auto it = spec.env.find("DTRAIN_RESTORE_STEP");
  return it == spec.env.end() ? 0 : std::stoll(it->second);
}

job::Exit death(std::int32_t signal, std::string cause = "") {
  job::Exit exit;
  exit.signal = signal;
  exit.cause = std::move(cause);
  return exit;
}

job::Exit unknown_end(std::string cause) {
  job::Exit exit;
  exit.unknown = true;
  exit.cause = std::move(cause);
  return exit;
}

}  // namespace

void SimRunner::perform(const node::Stage& effect) {
  timeline_.after(upto(kSlowestStage), [this, effect, life = life_] {
    if (life != life_) return;
    if (failing_ && rng_.chance(1, 10)) {
      post_(node::Staged{effect.id, fail(ErrorCode::unavailable,
                                         "could not stage " + effect.id.text() + ": port " + std::to_string(effect.port) + " is taken",
                                         "find its owner with ss -ltnp")});
      return;
    }
    copies_.insert(effect.id.job);
    post_(node::Staged{effect.id, "/work/" + std::to_string(effect.id.job)});
  });
}

void SimRunner::perform(const node::LaunchShim& effect) {
  timeline_.after(upto(kSlowestLaunch), [this, spec = effect.spec, life = life_, deaths = host_deaths_] {
    if (deaths != host_deaths_) return;  // nothing is forked on a host that is down
    const bool lost = life != life_;
    if (lost && rng_.chance(1, 2)) return;  // the agent died before or after it forked
    if (failing_ && rng_.chance(1, 12)) {
      if (!lost)
        post_(node::ShimUp{spec.id, fail(ErrorCode::io, "could not launch " + spec.id.text() + ": resource temporarily unavailable")});
      return;
    }
    SimShim& shim = shims_[spec.id];
    if (shim.alive) {
      if (!lost) post_(node::ShimUp{spec.id, fail(ErrorCode::refused, "could not launch " + spec.id.text() + ": a shim lives there")});
      return;
    }
    shim.spec = spec;
    shim.script = Script::parse(spec.argv);
    shim.alive = true;
    shim.step = std::max(shim.step, restored_step(spec));
    shim.lease.reset();
    shim.held = shim.stopped = shim.host_stops = false;
    shim.inbox.clear();
    if (spec.lease > Duration{0}) begin_lease(shim, spec.lease, false);
    if (!lost) post_(node::ShimUp{spec.id, {}});
  });
}

// An order that the dying agent had written to the shim's socket is still read there; what it had not yet written is
// lost, and everything behind it.
void SimRunner::order(const AssignmentId& id, Order action) {
  const auto it = shims_.find(id);
  Instant due = timeline_.now() + upto(kSlowestOrder);
  if (it != shims_.end()) due = it->second.orders_until = std::max(due, it->second.orders_until);
  timeline_.at(due, [this, id, life = life_, action = std::move(action)] {
    if (life != life_) {
      const auto shim = shims_.find(id);
      if (shim == shims_.end() || shim->second.deaf_in_life >= life) return;
      if (rng_.chance(1, 2)) {
        shim->second.deaf_in_life = life;
        return;
      }
    }
    const auto known = shims_.find(id);
    if (known != shims_.end() && known->second.stopped) return known->second.inbox.push_back(action);
    action();
  });
}

void SimRunner::refuse_start(const AssignmentId& id, AttemptNumber attempt, std::string why) {
  post_(node::AttemptRefused{id, attempt, Error{ErrorCode::refused, "could not start " + id.text() + ": " + std::move(why), ""}});
}

void SimRunner::perform(const node::StartAttempt& effect) {
  order(effect.id, [this, effect, life = life_] {
    const auto it = shims_.find(effect.id);
    const auto refuse = [&](std::string why) { refuse_start(effect.id, effect.attempt, std::move(why)); };
    if (it == shims_.end() || !it->second.alive) return refuse("it has no shim");
    SimShim& shim = it->second;
    if (effect.attempt == shim.attempt && shim.running) {  // the order came twice
      post_(node::AttemptStarted{effect.id, shim.attempt, shim.pid, shim.started});
      return;
    }
    if (effect.attempt <= shim.attempt) return refuse("attempt " + std::to_string(shim.attempt) + " was started already");
    if (shim.running) return refuse("attempt " + std::to_string(shim.attempt) + " runs");
    if (shim.host_stops) return refuse("its host stops");
    if (shim.lease && life != life_) return;  // the agent that ordered it is dead: the start is taken back as soon as it is read
    if (shim.lease) return order_start(shim, effect.attempt);
    start(shim, effect.attempt);
  });
}

void SimRunner::start(SimShim& shim, AttemptNumber attempt) {
  const AssignmentId id = shim.spec.id;
  shim.attempt = attempt;
  shim.running = true;
  shim.pid = next_pid_++;
  shim.started = wall_();
  shim.started_at = timeline_.now();
  shim.exit.reset();
  shim.ready = shim.frozen = shim.held = shim.hanging = shim.left = false;
  shim.status.clear();
  shim.after_thaw.clear();
  ++shim.run;
  ++live_;
  observer_.started(shim);
  post_(node::AttemptStarted{id, attempt, shim.pid, shim.started});
  schedule_end(shim);
  leave_if_alone(shim);
  const Script& script = shim.script;
  if (script.ready > Duration{0})
    in_run(id, script.ready, [this](SimShim& s) {
      s.ready = true;
      notify(s, true, false, std::nullopt);
      if (s.script.says.empty()) return;
      s.status = s.script.says;
      notify(s, false, false, s.status);
    });
  if (script.status > Duration{0})
    every(id, script.status, [this](SimShim& s) {
      s.status = "step " + std::to_string(s.step);
      notify(s, false, false, s.status);
    });
  if (script.watchdog > Duration{0}) every(id, script.watchdog, [this](SimShim& s) { notify(s, false, true, std::nullopt); });
  if (script.checkpoint > Duration{0} && id.task.index == 0)  // one writer, as in real training
    every(id, script.checkpoint, [this](SimShim& s) {
      s.step += kStepsPerCheckpoint;
      const bool torn = rng_.chance(calm_ ? 0 : s.script.torn, 100);
      observer_.checkpoint(s, s.step, torn, !torn && rng_.chance(calm_ ? 0 : s.script.rotten, 100));
    });
}

void SimRunner::schedule_end(SimShim& shim) {
  const AttemptPlan plan = plan_attempt(shim.script, calm_, rng_);
  if (plan.lifetime == Duration{0}) return;
  in_run(shim.spec.id, plan.lifetime, [this, plan](SimShim& s) {
    if (plan.hangs) s.hanging = true;
    else end_process(s, plan.exit);
  });
}

// Does something in the life of the present attempt; what falls due while it is frozen waits for the thaw.
void SimRunner::in_run(const AssignmentId& id, Duration delay, std::function<void(SimShim&)> action) {
  const auto it = shims_.find(id);
  if (it == shims_.end()) return;
  timeline_.after(delay, [this, id, run = it->second.run, action = std::move(action)] {
    const auto found = shims_.find(id);
    if (found == shims_.end() || found->second.run != run) return;
    SimShim& shim = found->second;
    if (shim.frozen) {
      shim.after_thaw.push_back([this, id, action] { in_run(id, Duration{1}, action); });
      return;
    }
    action(shim);
  });
}

void SimRunner::every(const AssignmentId& id, Duration interval, std::function<void(SimShim&)> action) {
  in_run(id, interval, [this, id, interval, action](SimShim& shim) {
    if (shim.hanging) return;
    action(shim);
    every(id, interval, action);
  });
}

void SimRunner::notify(const SimShim& shim, bool ready, bool watchdog, std::optional<std::string> status) {
  node::Notified event;
  event.id = shim.spec.id;
  event.attempt = shim.attempt;
  event.ready = ready;
  event.watchdog = watchdog;
  event.status = std::move(status);
  post_(std::move(event));
}

void SimRunner::end_process(SimShim& shim, job::Exit exit) {
  if (!shim.running) return;
  if (shim.main_ended) exit = *std::exchange(shim.main_ended, {});
  exit.with_host = shim.host_stops;
  shim.running = false;
  shim.frozen = shim.held = shim.hanging = false;
  shim.pid = 0;
  shim.exit = exit;
  ++shim.run;
  shim.after_thaw.clear();
  --live_;
  if (leaving_ && rng_.chance(1, 2))
    for (const std::string& gpu : shim.spec.gpu_ids) leftovers_[gpu] = {shim.spec.id, timeline_.now() + upto(kLongestLeftover)};
  observer_.ended(shim);
  if (shim.lease) {
    report_froze(shim);
    if (shim.lease->guard) shim.lease->guard->told(shim.attempt, false, shim.lease->held.until());
    step_lease(shim, [&](task::LeaseActions& out) { shim.lease->held.ended(boot_(), out); });
  }
  post_(node::AttemptExited{shim.spec.id, shim.attempt, std::move(exit)});
}

void SimRunner::perform(const node::SignalTask& effect) {
  order(effect.id, [this, effect] {
    const auto it = shims_.find(effect.id);
    if (it == shims_.end() || !it->second.running) return;
    if (effect.signal == SIGKILL) end_process(it->second, death(SIGKILL));
    else if (effect.signal == it->second.spec.stop_signal || effect.signal == SIGTERM) stop_signal(it->second, effect);
  });
}

void SimRunner::stop_signal(SimShim& shim, const node::SignalTask& effect) {
  if (shim.script.ignore_term || shim.hanging) return;
  job::Exit exit = death(effect.signal);
  if (shim.script.term_code >= 0) {
    exit.signal = 0;
    exit.code = shim.script.term_code;
  }
  // A frozen process acts on the signal once it is thawed.
  const bool outlived = !effect.whole_tree && shim.script.children > 0 && effect.grace > 0ns;
  in_run(shim.spec.id, std::max(shim.script.term, Duration{1}), [this, exit, outlived, grace = effect.grace](SimShim& s) {
    if (!outlived) return end_process(s, exit);
    s.main_ended = exit;
    in_run(s.spec.id, grace, [this, exit](SimShim& left) { end_process(left, exit); });
  });
}

void SimRunner::perform(const node::KillTask& effect) {
  order(effect.id, [this, effect] {
    const auto it = shims_.find(effect.id);
    if (it != shims_.end()) withdraw_start(it->second, "it was killed before its lease was granted");
    if (lying_ && it != shims_.end() && it->second.running) post_(node::AttemptExited{effect.id, it->second.attempt, death(SIGKILL)});
    else kill_process(effect.id, SIGKILL);
  });
}

void SimRunner::perform(const node::FreezeTask& effect) {
  order(effect.id, [this, effect] {
    const auto it = shims_.find(effect.id);
    if (it == shims_.end() || !it->second.running) {
      post_(node::FreezeDone{effect.id, false, fail(ErrorCode::refused, "could not freeze " + effect.id.text() + ": nothing runs")});
      return;
    }
    if (it->second.lease) order_freeze(it->second, effect.freeze);
    else set_frozen(it->second, it->second.held = effect.freeze);
    post_(node::FreezeDone{effect.id, effect.freeze, {}});
  });
}

void SimRunner::set_frozen(SimShim& shim, bool frozen) {
  const bool thawed = std::exchange(shim.frozen, frozen) && !frozen && shim.running;
  if (thawed) observer_.thawed(shim);
  if (frozen) return;
  const auto waiting = std::exchange(shim.after_thaw, {});
  for (const auto& action : waiting) action();
}

void SimRunner::perform(const node::EndShim& effect) {
  order(effect.id, [this, effect] {
    const auto it = shims_.find(effect.id);
    if (it != shims_.end() && !(lying_ && it->second.running)) {
      withdraw_start(it->second, "its shim was told to end");
      end_process(it->second, death(SIGKILL));
      it->second.alive = false;
      it->second.lease.reset();
    }
    post_(node::ShimGone{effect.id, true});
  });
}

void SimRunner::perform(const node::RemoveJobFiles& effect) {
  timeline_.after(upto(kSlowestRemoval), [this, effect, life = life_] {
    if (life != life_) return;
    if (effect.files != node::JobFiles::temporary) copies_.erase(effect.job);
    if (effect.files == node::JobFiles::logs)
      std::erase_if(shims_, [&](const auto& entry) { return entry.first.job == effect.job && !entry.second.alive; });
    post_(node::JobFilesRemoved{effect.job, {}});
  });
}

std::vector<task::FoundShim> SimRunner::found() const {
  std::vector<task::FoundShim> out;
  for (const auto& [id, shim] : shims_) {
    task::FoundShim f;
    f.id = id;
    f.shim_alive = shim.alive;
    f.attempt = shim.attempt;
    f.running = shim.running;
    f.pid = shim.pid;
    f.started = shim.started;
    f.exit = shim.exit;
    f.ready = shim.ready;
    f.frozen = shim.held;
    f.leased = shim.lease.has_value();
    if (shim.alive) f.cpus = shim.spec.cpus;
    f.epoch = shim.lease ? shim.lease->held.epoch() : 0;
    f.status = shim.status;
    out.push_back(std::move(f));
  }
  return out;
}

void SimRunner::host_died() {
  ++life_;
  ++host_deaths_;
  for (auto& [id, shim] : shims_) {
    shim.lease.reset();
    shim.stopped = false;
    shim.inbox.clear();
    if (shim.running) {
      end_process(shim, unknown_end("host went down"));
      if (!shim.host_stops) shim.exit.reset();  // nobody was left to write the record
    }
    shim.alive = shim.host_stops = false;
    shim.deaf_in_life = life_;
    shim.orders_until = timeline_.now();
  }
  leftovers_.clear();
}

void SimRunner::host_stops() {
  for (auto& [id, shim] : shims_) {
    if (!shim.alive) continue;
    shim.host_stops = true;
    if (!shim.running) continue;
    if (std::exchange(shim.held, false) && !shim.lease) set_frozen(shim, false);
    stop_signal(shim, node::SignalTask{id, shim.spec.stop_signal, true});
  }
}

void SimRunner::watched_ended(const AssignmentId& watched) {
  for (auto it = shims_.lower_bound(AssignmentId{watched.job, watched.generation, {}}); it != shims_.end(); ++it) {
    if (it->first.job != watched.job || it->first.generation != watched.generation) return;
    if (it->second.running && it->second.script.watches == watched.task.text()) leave_if_alone(it->second);
  }
}

void SimRunner::leave_if_alone(SimShim& shim) {
  const std::string& watches = shim.script.watches;
  if (watches.empty() || watches == shim.spec.id.task.text()) return;
  in_run(shim.spec.id, shim.script.leaves, [this](SimShim& s) {
    const std::size_t dash = s.script.watches.rfind('-');
    const auto index = static_cast<std::uint32_t>(std::stoul(s.script.watches.substr(dash + 1)));
    if (calm_ || s.hanging || !is_away_({s.spec.id.job, s.spec.id.generation, {s.script.watches.substr(0, dash), index}})) return;
    s.left = true;
    job::Exit exit;
    exit.code = kGivesUp;
    exit.stderr_tail = s.script.watches + " is away: simulated";
    end_process(s, std::move(exit));
  });
}

void SimRunner::lose_files() {
  shims_.clear();
  copies_.clear();
}

void SimRunner::kill_process(const AssignmentId& id, std::int32_t signal) {
  const auto it = shims_.find(id);
  if (it != shims_.end()) end_process(it->second, death(signal));
}

void SimRunner::kill_shim(const AssignmentId& id) {
  const auto it = shims_.find(id);
  if (it == shims_.end() || !it->second.alive) return;
  it->second.alive = it->second.stopped = false;
  it->second.inbox.clear();
  post_(node::ShimGone{id, false});  // first, in the order of a real runner (runner.h)
  withdraw_start(it->second, "its shim died");
  it->second.lease.reset();
  end_process(it->second, unknown_end("shim died"));
}

void SimRunner::set_calm() {
  calm_ = true;
  failing_ = leaving_ = false;
  leftovers_.clear();
  for (auto& [id, shim] : shims_) {
    if (!shim.running) continue;
    shim.hanging = false;
    schedule_end(shim);
  }
}

const SimRunner::Leftover* SimRunner::leftover(const std::string& gpu) const {
  const auto it = leftovers_.find(gpu);
  return it != leftovers_.end() && it->second.until > timeline_.now() ? &it->second : nullptr;
}

void SimRunner::perform(const node::FindGpuHolders& effect) {
  timeline_.after(upto(kSlowestLook), [this, effect, life = life_] {
    if (life != life_) return;
    std::vector<node::GpuHolder> holders;
    for (const task::OwnGpu& gpu : effect.gpus) {
      const auto it = leftovers_.find(std::to_string(gpu.minor));
      if (it == leftovers_.end() || it->second.until <= timeline_.now()) continue;
      holders.push_back({gpu.pci, 4711, node::kFirstUserUid, "python3", boot_(), false});
    }
    post_(node::GpuHoldersFound{effect.token, std::move(holders)});
  });
}

bool SimRunner::has_files(JobId job) const {
  if (copies_.contains(job)) return true;
  const auto it = shims_.lower_bound(AssignmentId{job, 0, {}});
  return it != shims_.end() && it->first.job == job;
}

}  // namespace dtrain::sim
