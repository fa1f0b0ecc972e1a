#include "common/node/host_tasks.h"

#include "common/base/check.h"
#include "common/base/lease.h"
#include "common/base/limits.h"
#include "common/node/cluster_members.h"
#include "common/node/forming.h"
#include "common/node/orders.h"

namespace dtrain::node {

using cluster::JobRecord;

namespace {

constexpr std::uint32_t kNewsSince = 3;  // version of the ledger that takes news of standbys and of stopped processes

// Turns the task core's actions into effects.
class EffectActions final : public task::HostActions {
 public:
  EffectActions(Context& c, Staging& staging) : c_(c), staging_(staging) {}
  void stage(const task::TaskOrder& o) override { staging_.stage(o); }
  void launch(task::ShimSpec spec) override {
    if (const task::Task* t = c_.host->find(spec.id)) staging_.launching(t->order());
    spec.epoch = c_.replicated->epoch();
    c_.emit(LaunchShim{std::move(spec)});
  }
  void unbound(const AssignmentId& id, const std::string& reason) override {
    c_.log.write(LogLevel::warn, "task.unbound",
                 {{"task", id.text()}, {"reason", reason}, {"next", "nothing: it shares the host's CPUs with others"}});
  }
  void start(const AssignmentId& id, AttemptNumber attempt) override { staging_.begin_attempt(id, attempt); }
  void signal(const AssignmentId& id, std::int32_t signal, job::SignalTo to, Duration grace) override {
    c_.emit(SignalTask{id, signal, to == job::SignalTo::all, grace});
  }
  void kill(const AssignmentId& id) override { c_.emit(KillTask{id}); }
  void freeze(const AssignmentId& id, bool freeze) override { c_.emit(FreezeTask{id, freeze}); }
  void end(const AssignmentId& id) override { staging_.end_shim(id); }
  void reclaim(const task::TaskOrder& o, Instant since) override { staging_.ended(o, since); }
  void require_lease(const AssignmentId& id, Duration lease) override { c_.emit(RequireLease{id, lease}); }

 private:
  Context& c_;
  Staging& staging_;
};

}  // namespace

HostTasks::HostTasks(Context& context, Staging& staging, Proposals& proposals, Leases& leases, Streams& streams, const HostFitness& fitness)
    : Part(Runs::with_disk),
      c_(context),
      staging_(staging),
      proposals_(proposals),
      leases_(leases),
      streams_(streams),
      fitness_(fitness),
      actions_(std::make_unique<EffectActions>(context, staging)) {}

void HostTasks::start(const Started& e) {
  CHECK(!tasks_);
  for (const JobId id : c_.ledger.take_forgotten()) remove_files(id, JobFiles::logs);
  c_.ledger.take_touched();
  tasks_.emplace(task::HostContext{c_.facts.name, c_.facts.task_interface, c_.options.pass_env, c_.options.lease, false, c_.facts.cpus,
                                   c_.runs_images()},
                 *actions_);
  tasks_->broken_rule = c_.options.broken_rule;
  c_.host = &*tasks_;
  for (const auto& shim : e.shims) {
    found_jobs_.insert(shim.id.job);
    if (shim.running && !shim.status.empty()) c_.seen_here[shim.id].status = shim.status;
  }
  tasks_->adopt(e.shims);
}

bool HostTasks::wants(const AssignmentId& id) const {
  const task::Task* t = tasks_ ? tasks_->find(id) : nullptr;
  return t != nullptr && t->order().desire == task::Desire::run;
}

Instant HostTasks::deadline() const { return c_.current && !stopping_ ? tasks_->deadline() : kNever; }

void HostTasks::tick() {
  if (c_.current && !stopping_) tasks_->tick(c_.now.boot);
}

void HostTasks::log_advanced() {
  answer_leases();
  report();
}

// ---------------------------------------------------------------- the ledger

// Recomputes the orders of one job for this host.
void HostTasks::give_orders(JobId id) {
  // An attempt that is begun now, while its host is shut down, would end with the host before anybody knows of it, and cost a restart.
  if (stopping_) return;
  const JobRecord* job = c_.ledger.find(id);
  if (job == nullptr || job->nothing_runs()) {
    tasks_->forget(c_.now.boot, id);
    contexts_.erase(id);
  } else {
    auto& context = contexts_[id];
    if (!context || !is_current(*context, *job)) context = make_context(*job);
    tasks_->update(c_.now.boot, make_orders(*job, c_.facts, context, {c_.now.boot, c_.elapsed()}, c_.options.broken_rule));
  }
  for (const AssignmentId& waiting : staging_.in_steps(id)) {
    if (wants(waiting)) continue;
    staging_.give_up(waiting);
    staged({waiting, fail(ErrorCode::refused, "it is not wanted any more")});
  }
  if (job == nullptr) {
    std::erase_if(c_.seen_here, [&](const auto& entry) { return entry.first.job == id; });
  } else if (is_final(job->state) && job->nothing_runs()) {
    remove_files(id, job->spec.policy.clean_pod_policy == job::CleanPodPolicy::all ? JobFiles::copy : JobFiles::temporary);
  }
}

void HostTasks::remove_files(JobId id, JobFiles files) {
  JobFiles& most = files_to_remove_.try_emplace(id, files).first->second;
  most = std::max(most, files);
}

// signalBeforeDeadline: sends the signal to the tasks that run here.
void HostTasks::signal(JobId id) {
  const cluster::JobRecord* job = c_.ledger.find(id);
  if (job == nullptr || !job->spec.policy.signal_before_deadline) return;
  const job::SignalBeforeDeadline& warning = *job->spec.policy.signal_before_deadline;
  for (const auto& [task, t] : job->tasks) {
    if (t.pid == 0 || t.place.node != c_.facts.id) continue;
    const job::RoleSpec& role = job->spec.roles.at(task.role);
    // In an image as Task::stop() does it.
    const bool in_image = c_.runs_images() && !role.image.empty();
    c_.emit(SignalTask{{id, job->generation, task},
                       warning.signal,
                       role.signal_to == job::SignalTo::all && !in_image,
                       in_image ? Duration{0} : warning.before});
  }
}

// Turns observations into one report; removes the files of forgotten jobs once nothing of them runs.
void HostTasks::report() {
  if (!c_.current) return;
  const auto lost = c_.ledger.state().lost.find(c_.facts.id);
  if (lost != c_.ledger.state().lost.end() && lost->second.index != said_back_ && tasks_->settled() && staging_.settled())
    proposals_.report_back(said_back_ = lost->second.index);
  // Observations that find no room stay with the tasks, where only the newest state of each is kept.
  auto seen = tasks_->take_observations(proposals_.report_room());
  if (!seen.empty()) proposals_.report(std::move(seen));
  // What was taken from this host may run on here for a while after the ledger has recorded its end.
  std::erase_if(files_to_remove_, [&](const auto& entry) {
    const bool quiet = tasks_->quiet(entry.first);
    if (quiet) c_.emit(RemoveJobFiles{entry.first, entry.second});
    return quiet;
  });
}

void HostTasks::remember_jobs() {
  for (const auto& [id, job] : c_.ledger.state().jobs) found_jobs_.insert(id);
  said_back_ = 0;
}

// ---------------------------------------------------------------- what happens to the tasks

template <class F>
void HostTasks::with_task(const AssignmentId& id, F&& act) {
  if (!tasks_ || c_.storage_failed) return;  // what cannot be stored is not acted on
  if (task::Task* t = tasks_->find(id)) act(*t);
  tasks_->settle(c_.now.boot, id.job);
}

void HostTasks::take_from_staging() {
  for (const auto& [id, reason] : staging_.take_reasons())
    if (task::Task* t = tasks_->find(id)) t->waits(reason);
  for (const AssignmentId& id : staging_.take_over()) {
    if (task::Task* t = tasks_->find(id)) t->reclaimed();
    tasks_->settle(c_.now.boot, id.job);
  }
}

void HostTasks::staged(const Staged& e) {
  if (staging_.staged(e, wants(e.id))) return;
  with_task(e.id, [&](task::Task& t) { t.staged(e.work_dir, e.host_refused); });
}

void HostTasks::shim_up(const ShimUp& e) {
  with_task(e.id, [&](task::Task& t) { t.shim_up(c_.now.boot, e.result); });
}

void HostTasks::attempt_started(const AttemptStarted& e) {
  c_.members->touch();
  with_task(e.id, [&](task::Task& t) { t.attempt_started(c_.now.boot, e.attempt, e.pid, e.at); });
}

void HostTasks::attempt_refused(const AttemptRefused& e) {
  with_task(e.id, [&](task::Task& t) { t.attempt_refused(c_.now.boot, e.attempt, e.error); });
}

void HostTasks::attempt_exited(const AttemptExited& e) {
  c_.seen_here.erase(e.id);
  c_.members->touch();
  with_task(e.id, [&](task::Task& t) { t.attempt_exited(c_.now.boot, e.attempt, fitness_.explained(e)); });
}

void HostTasks::processes_seen(const ProcessesSeen& e) {
  std::string stopped;
  if (e.stopped) {
    const std::string pid = std::to_string(e.stopped->pid);
    const std::string which =
        e.stopped->rank > 0 ? "rank " + std::to_string(e.stopped->rank - 1) + " (process " + pid + ")" : "its process " + pid;
    stopped = which + " was stopped (SIGSTOP) at " + to_rfc3339(e.stopped->since) + "; kill -CONT " + pid + " lets it go on";
  }
  with_task(e.id, [&](task::Task& t) {
    if (e.attempt != t.attempt()) return;
    c_.seen_here[e.id].pids = e.pids;
    if (c_.ledger.state().version >= kNewsSince) t.process_stopped(stopped);
    streams_.changed(e.id.job);
  });
}

void HostTasks::standby_reported(const StandbyReport& e) {
  if (c_.ledger.state().version >= kNewsSince) with_task(e.id, [&](task::Task& t) { t.standby_told(e.news, e.cause); });
  switch (e.news) {
    case StandbyReport::News::none: return;
    case StandbyReport::News::ready: return c_.log.write(LogLevel::info, "task.standby_ready", {{"task", e.id.text()}});
    case StandbyReport::News::used: return c_.log.write(LogLevel::info, "task.warm_start", {{"task", e.id.text()}});
    case StandbyReport::News::failed:
      return c_.log.write(LogLevel::info, "task.no_standby",
                          {{"task", e.id.text()}, {"reason", e.cause}, {"next", "nothing: it starts without one"}});
  }
}

void HostTasks::shim_gone(const ShimGone& e) {
  if (tasks_ && !c_.storage_failed) tasks_->shim_gone(c_.now.boot, e.id);
}

void HostTasks::freeze_done(const FreezeDone& e) {
  with_task(e.id, [&](task::Task& t) { t.freeze_done(c_.now.boot, e.frozen, e.result); });
}

void HostTasks::notified(const Notified& e) {
  with_task(e.id, [&](task::Task& t) {
    t.notified(c_.now.boot, e.attempt, e.ready, e.watchdog);
    if (!e.status || e.attempt != t.attempt()) return;
    c_.seen_here[e.id].status = e.status->substr(0, limits::kStatusTextBytes);
    streams_.changed(e.id.job);
  });
}

void HostTasks::files_removed(const JobFilesRemoved& e) {
  if (!e.result) c_.log.write(LogLevel::warn, "files.not-removed", {{"job", std::to_string(e.job)}, {"cause", e.result.error().text()}});
}

// ---------------------------------------------------------------- leases

// Before the tasks are adopted nobody can say whether they are still wanted: the shim asks again.
void HostTasks::lease_asked(const LeaseAsked& e) {
  if (!tasks_ || c_.storage_failed || c_.forming->log_changes()) return;
  // This agent will not adopt the task, but the coordinator knows what is to run where.
  if (c_.ledger.behind() && tasks_->unclaimed(e.id)) return leases_.ask(e);
  task::Task* task = tasks_->find(e.id);
  if (task == nullptr || !c_.current) return;
  task->lease_asked(e.nonce);
  leases_.ask(e);
}

void HostTasks::lease_froze(const LeaseFroze& e) {
  c_.log.write(LogLevel::warn, e.frozen ? "lease.frozen" : "lease.thawed", {{"task", e.id.text()}, {"attempt", std::to_string(e.attempt)}});
  streams_.changed(e.id.job);
  with_task(e.id, [&](task::Task& t) { t.lease_froze(c_.now.boot, e.attempt, e.frozen); });
}

// If no coordinator was heard for one lease, all tasks whose leases the same coordinator granted are frozen.
void HostTasks::watch_word() {
  if (!tasks_ || !c_.replicated || c_.storage_failed || !tasks_->needs_leases()) return;
  const bool own = c_.serving || c_.replicated->alone() || last_word_ == Instant{};
  last_word_ = own ? c_.now.boot : std::max(last_word_, c_.replicated->raft().heard());
  tasks_->cut_off(c_.now.boot, c_.now.boot - last_word_ >= c_.options.lease - kFreezeAhead);
}

void HostTasks::answer_leases() {
  for (AnswerLease& answer : leases_.take_answers()) {
    task::Task* task = tasks_ ? tasks_->find(answer.id) : nullptr;
    const bool runs_on = tasks_ && c_.ledger.behind() && tasks_->unclaimed(answer.id);
    if (!runs_on && (task == nullptr || !task->lease_answered(answer.nonce, answer.granted))) continue;
    if (!answer.granted)
      c_.log.write(LogLevel::warn, "lease.superseded", {{"task", answer.id.text()}, {"reason", "it is another host's, or nobody's"}});
    c_.emit(std::move(answer));
  }
}

}  // namespace dtrain::node
