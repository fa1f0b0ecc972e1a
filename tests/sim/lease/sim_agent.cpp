// The agent of a host of world lease.
#include <algorithm>
#include <utility>

#include "tests/sim/lease/sim_host.h"

namespace dtrain::sim::lease {

// ---------------------------------------------------------------- life

void SimHost::start_agent() {
  if (!up_ || agent_.alive) return;
  const std::uint32_t next_life = agent_.life + 1;
  agent_ = Agent{};
  agent_.alive = true;
  agent_.life = next_life;
  agent_.next_report = local();
  schedule_agent();
  const bool reads = task::lease::Rules(setting_.broken_rule).hold(task::lease::Rule::guard_reads_record);
  world_.after(upto(300ms), [this, life = next_life, reads] {
    if (agent_.life != life || !agent_.alive) return;
    to_agent([this, reads] {
      agent_.found = true;
      for (const auto& shim : shims_) {
        if (shim->exempt) continue;
        shim->guard.emplace(lease_options(false));
        if (reads) shim->guard->told(shim->started, shim->exists, shim->lease.until());
      }
      // The ledger may say something old until it has an entry of this life.
      agent_.report = HostReport{member_, agent_.life, ++agent_.sequence, 0, {}};
      report();
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
  for (const auto& shim : shims_) {
    shim->guard.reset();
    // A start that waits is lost with who ordered it.
    to_shim(shim->instance.number, [this](Shim& due) {
      if (due.lease.withdraw()) schedule(due);
    });
  }
  if (!wipe) return true;
  member_ = next_member(member_);
  term_ = 0;
  copy_ = std::make_shared<const Ledger>();
  records_.clear();
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
    if (shim->frozen) shim->guard->frozen(local(), out);
    else shim->guard->wake(local(), out);
    act(*shim, out);
  }
  follow_copy();
  if (local() >= agent_.next_report) report();
  schedule_agent();
}

void SimHost::schedule_agent() {
  Instant at = agent_.next_report;
  for (const Work& work : agent_.works) {
    at = std::min(at, work.kill_at);
    if (work.phase == Work::Phase::backoff && work.begin_at > local()) at = std::min(at, work.begin_at);
  }
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
  Action handle = [this, message] {
    if (message.kind == Kind::copy) return heard(message);
    if (message.kind != Kind::probe) return answered(message);
    Message alive;
    alive.kind = Kind::alive;
    alive.from = self_;
    alive.to = message.from;
    alive.member = member_;
    world_.send(alive);
  };
  if (agent_.asleep() || paused_) return agent_.inbox.push_back(std::move(handle));
  handle();
}

// The oldest report that the ledger has not goes to the leader, again and again. Observations wait until it is there.
void SimHost::report() {
  agent_.next_report = local() + kReport;
  schedule_agent();
  if (!agent_.report || !agent_.leader) return;
  Message message;
  message.kind = Kind::report;
  message.from = self_;
  message.to = *agent_.leader;
  message.report = *agent_.report;
  world_.send(message);
}

void SimHost::heard(const Message& copy) {
  if (copy.term < term_) return;
  const bool other = copy.term > term_ || agent_.leader != copy.from;
  term_ = copy.term;
  agent_.leader = copy.from;
  const bool news = copy.ledger && copy.ledger->version.index > copy_->version.index;
  if (news) copy_ = copy.ledger;
  if (news && agent_.found) follow_copy();
  if (other && agent_.found) report();
}

SimHost::Work* SimHost::work(std::uint32_t task, Generation generation) {
  for (Work& each : agent_.works)
    if (each.task == task && each.generation == generation) return &each;
  return nullptr;
}

bool SimHost::leased(std::uint32_t task) const {
  return setting_.keeps[task] == Keeps::lease || (setting_.keeps[task] == Keeps::later && copy_->needs_leases);
}

// Carries out what the copy of the log says, as task::Assignments.
void SimHost::follow_copy() {
  if (!agent_.found) return;
  const auto own = copy_->hosts.find(member_);
  if (own != copy_->hosts.end() && agent_.report && own->second.life == agent_.life && own->second.sequence >= agent_.report->sequence) {
    agent_.report.reset();
    agent_.current = true;
  }
  if (!agent_.current) return;
  const auto wanted = [&](std::uint32_t task, Generation generation) -> const TaskRecord* {
    const TaskRecord& t = copy_->tasks[task];
    return t.host == member_ && t.generation == generation && !t.ended ? &t : nullptr;
  };
  for (std::uint32_t task = 0; task < kTasks; ++task)
    if (const TaskRecord& t = copy_->tasks[task]; wanted(task, t.generation) && work(task, t.generation) == nullptr) {
      agent_.works.push_back(begin(task, t));
      agent_.dirty = true;
    }
  std::vector<std::uint32_t> unclaimed;
  for (const auto& shim : shims_)
    if (work(shim->instance.task, shim->instance.generation) == nullptr && !shim->leaving) unclaimed.push_back(shim->instance.number);
  for (const std::uint32_t number : unclaimed) end_shim(number);
  for (Work& each : agent_.works) advance(each, wanted(each.task, each.generation));
  std::erase_if(agent_.works,
                [&](const Work& each) { return each.phase == Work::Phase::over && wanted(each.task, each.generation) == nullptr; });
  const bool settled = std::all_of(shims_.begin(), shims_.end(),
                                   [&](const auto& shim) { return wanted(shim->instance.task, shim->instance.generation) != nullptr; });
  const std::uint64_t lost = own != copy_->hosts.end() ? own->second.lost : 0;
  const bool back = lost != 0 && lost != agent_.said_back && settled;
  if (!agent_.report && (agent_.dirty || back)) {
    agent_.report = HostReport{member_, agent_.life, ++agent_.sequence, back ? lost : 0, {}};
    if (back) agent_.said_back = lost;
    agent_.dirty = false;
    for (const Work& each : agent_.works)
      if (wanted(each.task, each.generation))
        agent_.report->seen[each.task] = {
            each.generation, each.attempt, each.leased ? setting_.lease : 0ns, true, each.phase == Work::Phase::over, each.rebooted};
    report();
  }
  schedule_agent();
}

// As task::Task::begin(): what the ledger or the host knows to have begun has ended unless a living shim shows it.
SimHost::Work SimHost::begin(std::uint32_t task, const TaskRecord& record) {
  Work fresh;
  fresh.task = task;
  fresh.generation = record.generation;
  fresh.phase = Work::Phase::staged;
  const Shim* shim = find(task, record.generation);
  const auto known = records_.find({task, record.generation});
  fresh.attempt = std::max(record.attempt, known == records_.end() ? 0 : known->second);
  if (shim != nullptr && !shim->leaving) {
    fresh.shim = shim->instance.number;
    fresh.leased = !shim->exempt;
    fresh.attempt = std::max<AttemptNumber>(shim->started, fresh.attempt);
    if (shim->exists) fresh.phase = Work::Phase::running;
    else if (fresh.attempt > 0) fresh.phase = Work::Phase::backoff;
  } else if (fresh.attempt > 0) {
    fresh.phase = Work::Phase::backoff;
    fresh.rebooted = true;
  } else {
    launch(fresh);
  }
  if (fresh.phase == Work::Phase::backoff && !setting_.in_place) conclude(fresh);
  return fresh;
}

void SimHost::launch(Work& work) {
  const bool lease = leased(work.task);
  const Instance instance{(self_ << 16) + ++numbers_, work.task, work.generation, self_};
  shims_.push_back(std::make_unique<Shim>(instance, task::Lease(lease_options(!lease), rng_.next() | 1, term_), !lease));
  if (lease) shims_.back()->guard.emplace(lease_options(false));
  work.shim = instance.number;
  work.leased = lease;
}

void SimHost::advance(Work& work, const TaskRecord* record) {
  using Phase = Work::Phase;
  if (work.phase == Phase::ending || work.phase == Phase::over) return;
  if (record == nullptr) return conclude(work);
  if (work.shim != 0 && !work.leased && leased(work.task) && local() >= work.require_at) {
    work.require_at = local() + kRequireEvery;
    to_shim(work.shim, [this](Shim& due) {
      if (!std::exchange(due.exempt, false)) return;
      step(due, [&](task::LeaseActions& out) { due.lease.require(local(), out); });
      push_record(due);
    });
    if (Shim* shim = find(work.shim); shim != nullptr && !shim->guard) shim->guard.emplace(lease_options(false));
  }
  if (work.phase == Phase::running) {
    if (!record->moving) return;
    const std::uint32_t number = work.shim;
    if (!std::exchange(work.signalled, true)) {
      work.kill_at = local() + kStopGrace;
      to_shim(number, [this, number](Shim& due) { try_signal(number, due.process); });
    }
    if (local() < work.kill_at) return;
    work.kill_at = kNever;
    to_shim(number, [this](Shim& due) {
      if (due.exists) kill(due);
    });
    return;
  }
  if (record->moving) return conclude(work);
  if (work.phase == Phase::starting || work.superseded || local() < work.begin_at) return;
  if (!record->staged) return;
  for (const auto& shim : shims_)
    if (shim->instance.task == work.task && shim->instance.number != work.shim) return;  // the predecessor
  if (work.shim == 0) launch(work);
  work.phase = Phase::starting;
  ++work.attempt;
  to_shim(work.shim, [this, attempt = work.attempt](Shim& due) {
    bool ordered = false;
    if (due.lease.phase() == task::Lease::Phase::idle) due.stands_since = world_.now();
    step(due, [&](task::LeaseActions& out) { ordered = due.lease.start(local(), attempt, out); });
    if (!ordered) to_agent([this, number = due.instance.number] { refused(number); });
  });
}

// Ends its shim with all that it began.
void SimHost::conclude(Work& work) {
  work.phase = work.shim != 0 ? Work::Phase::ending : Work::Phase::over;
  work.kill_at = kNever;
  agent_.dirty = true;
  if (work.shim != 0) end_shim(work.shim);
}

void SimHost::end_shim(std::uint32_t number) {
  to_shim(number, [this](Shim& due) {
    due.leaving = true;
    due.lease.withdraw();
    if (due.exists) return kill(due);
    if (!due.gone_unseen) leave(due.instance.number);
  });
}

void SimHost::refused(std::uint32_t number) {
  for (Work& each : agent_.works)
    if (each.shim == number && each.phase == Work::Phase::starting) {
      each.phase = Work::Phase::backoff;
      each.begin_at = local() + kBackoff;
    }
  schedule_agent();
}

void SimHost::exited(std::uint32_t number) {
  for (Work& each : agent_.works) {
    if (each.shim != number || (each.phase != Work::Phase::running && each.phase != Work::Phase::starting)) continue;
    each.kill_at = kNever;
    each.phase = Work::Phase::backoff;
    each.begin_at = local() + kBackoff;
    agent_.dirty = true;
    const TaskRecord& t = copy_->tasks[each.task];
    const bool moving = t.generation == each.generation && t.moving;
    if (moving || (!setting_.in_place && !each.superseded)) conclude(each);
  }
  follow_copy();
}

void SimHost::shim_gone(std::uint32_t number) {
  for (Work& each : agent_.works) {
    if (each.shim != number) continue;
    each.shim = 0;
    if (each.phase == Work::Phase::ending) each.phase = Work::Phase::over;
    agent_.dirty = true;
  }
  follow_copy();
}

// ---------------------------------------------------------------- leases

void SimHost::asked(Shim& shim, const task::LeaseAsk& ask) {
  if (shim.guard) shim.guard->asked(ask);
  Work* of = work(shim.instance.task, shim.instance.generation);
  if (of == nullptr || of->shim != shim.instance.number || !agent_.current) return;
  of->questions.push_back(ask.nonce);
  if (of->questions.size() > kQuestions) of->questions.pop_front();
  if (!std::exchange(of->leased, true)) {
    agent_.dirty = true;
    follow_copy();
  }
  if (!agent_.leader) return;
  Message request;
  request.kind = Kind::request;
  request.from = self_;
  request.to = *agent_.leader;
  request.member = member_;
  request.nonce = ask.nonce;
  request.task = shim.instance.task;
  request.generation = shim.instance.generation;
  world_.send(request);
}

void SimHost::answered(const Message& message) {
  Work* of = work(message.task, message.generation);
  const std::uint64_t epoch = message.term;
  const bool fenced = task::lease::Rules(setting_.broken_rule).hold(task::lease::Rule::epoch_fence);
  if (of == nullptr || of->shim == 0 || message.member != member_) return;
  if (epoch < term_ && fenced) {
    ++figures_.refused;
    return;
  }
  if (std::find(of->questions.begin(), of->questions.end(), message.nonce) == of->questions.end()) return;
  Shim* shim = find(of->shim);
  if (shim == nullptr) return;
  const bool granted = message.kind == Kind::granted;
  of->superseded = of->superseded || !granted;
  for (const auto& checker : world_.checkers()) checker->passed_on(shim->instance, epoch, term_);
  if (granted && shim->guard) {
    task::GuardActions out;
    shim->guard->granted(local(), message.nonce, out);
    act(*shim, out);
  }
  to_shim(shim->instance.number, [this, granted, epoch, nonce = message.nonce](Shim& due) {
    bool taken = false;
    if (granted) due.answered = nonce;
    const bool waited = due.lease.phase() == task::Lease::Phase::waiting;
    step(due, [&](task::LeaseActions& out) {
      taken = granted ? due.lease.granted(local(), nonce, epoch, out) : due.lease.superseded(local(), epoch, out);
    });
    if (waited && due.lease.phase() == task::Lease::Phase::idle) to_agent([this, number = due.instance.number] { refused(number); });
    if (!taken) return;
    push_record(due);
    for (const auto& checker : world_.checkers()) checker->answer_taken(due.instance, epoch);
  });
  schedule_agent();
}

void SimHost::push_record(const Shim& shim) {
  to_agent([this, number = shim.instance.number, attempt = shim.started, runs = shim.exists, until = shim.lease.until()] {
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
