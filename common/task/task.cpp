#include "common/task/task.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/duration_text.h"
#include "common/base/lease.h"
#include "common/job/framework.h"
#include "common/job/restart.h"
#include "common/job/warm.h"
#include "common/wire/codec.h"

namespace dtrain::task {

constexpr Duration kRequireEvery = 10s;  // a shim that does not ask for a lease is told again that it needs one

Task::Task(TaskOrder order, const HostContext& host, HostActions& actions, RestartGate& gate)
    : order_(std::move(order)),
      host_(host),
      actions_(actions),
      gate_(gate),
      wants_lease_(job::wants_lease(order_.context->spec, order_.id.task)) {
  consecutive_failures_ = order_.consecutive_failures;
  failures_ = order_.failures;
  attempt_ = std::max(order_.known_attempt, order_.first_attempt - 1);
  exit_attempt_ = std::min(order_.exit_attempt, attempt_);
  stood_still_ = order_.stood_still;
}

void Task::begin(Instant now, const FoundShim* found) {
  since_ = now;
  // An attempt that the ledger or the host knows has ended unless a living shim shows it running.
  const bool ran_here = order_.known_attempt >= order_.first_attempt || (found && found->attempt >= order_.first_attempt);
  if (!ran_here && !(found && found->shim_alive)) {
    if (order_.desire != Desire::run) return conclude(Outcome::on_request, "");
    enter(Phase::staging);
    actions_.stage(order_);
    return;
  }
  if (found) {
    shim_alive_ = found->shim_alive;
    if (shim_alive_ && found->leased) lease_ = std::max(host_.lease, order_.lease);
    attempt_ = std::max(attempt_, found->attempt);
    started_wall_ = found->started;
  }
  started_ = last_sign_of_life_ = not_ready_since_ = now;
  const bool runs = found && found->shim_alive && found->running;
  if (runs) {
    pid_ = found->pid;
    ready_ = found->ready;
    frozen_ = found->frozen;
    enter(Phase::running);
    return advance(now);
  }
  // The previous life of the agent ordered the attempt, which had not begun when the agent ended: it waited for its
  // lease. A living shim would know of it.
  const bool end_known = attempt_ <= std::max(order_.exit_attempt + 1, order_.first_attempt);
  const bool ordered = attempt_ >= order_.first_attempt && order_.exit_attempt < attempt_ && end_known;
  if (ordered && shim_alive_ && found->attempt < attempt_) --attempt_;
  if (attempt_ < order_.first_attempt) {  // launched but never started
    enter(Phase::staged);
    return advance(now);
  }
  if (found && found->exit && found->attempt == attempt_) exit_ = reportable(*found->exit);
  else exit_.reset();
  if (!exit_) {
    exit_ = Exit{};
    exit_->unknown = true;
    exit_->cause = "its host or its shim went away";
  }
  const bool counted = order_.exit_attempt >= attempt_;
  exit_attempt_ = attempt_;
  after_exit(now, counted);
}

void Task::update(Instant now, TaskOrder order) {
  order_ = std::move(order);
  advance(now);
}

ShimSpec Task::shim_spec() const {
  ShimSpec s;
  const JobContext& c = *order_.context;
  s.id = order_.id;
  s.job_name = c.spec.name;
  s.user = c.user;
  s.work_dir = work_dir_;
  s.port = order_.address.port;
  s.address = order_.address.host;
  s.memory_bytes = role().resources.memory_bytes;
  s.cpu_millis = role().resources.cpu_millis;
  const job::GpuIds& gpus = order_.gpu_ids;
  s.gpu_ids = gpus.cuda;
  for (const std::string& id : gpus.rocr)
    if (std::find(gpus.cuda.begin(), gpus.cuda.end(), id) == gpus.cuda.end()) s.gpu_ids.push_back(id);
  s.own_gpus = order_.own_gpus;
  s.stop_signal = role().stop_signal;
  s.stop_grace = c.spec.policy.stop_grace_period;
  s.signal_to = role().signal_to;
  s.warm = job::warm_of(c.spec, order_.id.task.role);
  s.error_file = job::rules_of(c.spec.framework).error_file;
  s.first_leads = job::rules_of(c.spec.framework).first_leads;
  if (in_image()) {
    s.image = TaskImage{role().image, c.spec.require_paths, order_.gpus};
    s.image->directories.insert(s.image->directories.end(), c.spec.make_dirs.begin(), c.spec.make_dirs.end());
    if (c.spec.checkpoint) s.image->directories.push_back(c.spec.checkpoint->dir);
    // Imports are of the host's Python; and signals reach the engine's program, which passes them on.
    s.warm.clear();
    s.signal_to = job::SignalTo::main;
  }
  s.exclusive = job::is_exclusive(c.spec, order_.id.task);
  if (wants_lease_ && (host_.needs_leases || order_.lease > 0ns)) s.lease = std::max(host_.lease, order_.lease);
  return s;
}

void Task::launch() {
  ShimSpec spec = shim_spec();
  job::TaskView view;
  view.task = order_.id.task;
  view.node = host_.node_name;
  view.gpu_ids = order_.gpu_ids;
  view.work_dir = work_dir_;
  view.package_dir = work_dir_;
  view.interface = host_.task_interface;
  view.user = order_.context->user.name;
  view.pass_env = host_.pass_env;
  view.in_image = in_image();
  auto rendered = job::render(order_.context->spec, order_.context->cluster, view);
  if (!rendered) return stage_failure(rendered.error());
  spec.argv = std::move(rendered->argv);
  spec.env = std::move(rendered->env);
  spec.ranks = job::rank_variables(order_.context->spec, order_.context->cluster, view.task);
  lease_ = spec.lease;
  if (const std::string why = gate_.bind(spec, order_.gpu_nodes); !why.empty()) actions_.unbound(spec.id, why);
  enter(Phase::launching);
  actions_.launch(std::move(spec));
}

void Task::stage_failure(const Error& error) {
  stage_failed_ = true;
  stage_error_ = error.code;
  conclude(Outcome::failed, error.text());
}

void Task::staged(const Result<std::string>& work_dir, const std::string& host_refused) {
  if (phase_ != Phase::staging) return;
  if (order_.desire != Desire::run) return conclude(Outcome::on_request, "");
  if (!work_dir) host_refused_ = host_refused;
  if (!work_dir) return stage_failure(work_dir.error());
  work_dir_ = *work_dir;
  launch();
}

void Task::waits(const std::string& reason) {
  if (phase_ != Phase::staging || reason_ == reason) return;
  reason_ = reason;
  has_news();
}

void Task::shim_up(Instant now, const Status& result) {
  if (phase_ != Phase::launching) return;
  if (!result) {
    gate_.unbind(order_.id);
    if (order_.desire != Desire::run) return conclude(Outcome::on_request, "");
    return stage_failure(result.error());
  }
  shim_alive_ = true;
  // Launched again because its shim died between two attempts: the delay is over already.
  enter(attempt_ >= order_.first_attempt ? Phase::backoff : Phase::staged);
  backoff_until_ = now;
  advance(now);
}

void Task::start_next(Instant now) {
  if (!shim_alive_) {
    // A new life of the agent does not know the working directory; staging finds it again.
    if (work_dir_.empty()) {
      enter(Phase::staging);
      actions_.stage(order_);
      return;
    }
    return launch();
  }
  ++attempt_;
  ready_ = false;
  pid_ = 0;
  started_wall_ = WallTime{};
  killed_ = stop_announced_ = stop_signalled_ = false;
  overdue_.clear();
  not_ready_since_ = now;
  backoff_until_ = kNever;
  enter(Phase::starting);
  actions_.start(order_.id, attempt_);
}

void Task::attempt_started(Instant now, AttemptNumber attempt, std::int32_t pid, WallTime at) {
  if (phase_ != Phase::starting || attempt != attempt_) return;
  pid_ = pid;
  started_wall_ = at;
  started_ = last_sign_of_life_ = not_ready_since_ = now;
  idle_deaths_ = 0;
  reason_.clear();
  process_stopped_.clear();
  enter(Phase::running);
  advance(now);
}

void Task::attempt_refused(Instant now, AttemptNumber attempt, const Error& error) {
  if (phase_ != Phase::starting || attempt != attempt_) return;
  Exit e;
  // If its shim died before the attempt could begin, nothing of it ran and nothing counts, unless that goes on.
  // Otherwise as with env(1), nice(1) and others: the launcher failed, not the program.
  never_began_ = !shim_alive_ && ++idle_deaths_ <= kIdleShimDeaths;
  if (!shim_alive_) e.unknown = true;
  else e.code = 125;
  e.cause = error.text();
  started_ = now;
  enter(Phase::running);
  attempt_exited(now, attempt, e);
}

// A ledger that took no job of version 3 must not be given an exit of version 3 either.
Exit Task::reportable(Exit exit) const {
  if (wire::needed_version(exit) <= wire::needed_version(order_.context->spec)) return exit;
  exit.rank = 0;
  exit.ended = {};
  exit.recorded.reset();
  return exit;
}

void Task::attempt_exited(Instant now, AttemptNumber attempt, const Exit& exit) {
  if (attempt != attempt_ || (phase_ != Phase::running && phase_ != Phase::starting)) return;
  pid_ = 0;
  exit_ = reportable(exit);
  exit_attempt_ = attempt;
  if (!overdue_.empty()) exit_->cause = overdue_;
  thaw(now);
  frozen_ = freeze_pending_ = false;
  stop_deadline_ = kNever;
  after_exit(now, false);
}

std::optional<std::string> Task::why_no_restart(Instant now) const {
  const job::Policy& policy = order_.context->spec.policy;
  if (!job::may_restart(role(), *exit_)) return "";
  if (spared_) return std::nullopt;
  if (!exit_->success() && policy.failure_threshold.count > 0) {
    const auto recent =
        std::count_if(failures_.begin(), failures_.end(), [&](Instant at) { return now - at <= policy.failure_threshold.within; });
    if (recent >= policy.failure_threshold.count)
      return "failed " + std::to_string(recent) + " times within the failure threshold's window";
  }
  if (!gate_.budget_allows(order_.id))
    return "backoffLimit of " + std::to_string(policy.backoff_limit.value_or(0)) + " restarts is used up";
  return std::nullopt;
}

// `counted`: the ledger knows this exit already (a new life of the agent decides again what to do next).
void Task::after_exit(Instant now, bool counted) {
  const bool asked = attempt_ == order_.restart_attempt;
  stood_ = job_stands_still();
  const bool began = !std::exchange(never_began_, false);
  spared_ = stood_ || exit_->with_host || exit_->port_taken || !began;
  exit_on_request_ = order_.desire != Desire::run || asked || order_.freeze || stop_announced_ || superseded_;
  // An attempt that ended well by itself has succeeded, even if its end was about to be asked for. SIGKILL makes no
  // exit 0: a kill that was sent came too late.
  const bool by_itself = exit_->success() && !stop_signalled_ && !order_.stop_known && role().restart_policy != job::RestartPolicy::always;
  if (order_.desire != Desire::run && !by_itself) return conclude(Outcome::on_request, "");
  if (by_itself) exit_on_request_ = false;
  if (!exit_on_request_) {
    if (by_itself) return conclude(Outcome::succeeded, "");
    if (order_.last_attempt) return conclude(Outcome::on_request, "ended after the signal before its job's deadline");
    // The place is at fault; a new place has other ports.
    if (exit_->port_taken)
      return stage_failure(Error{ErrorCode::unavailable, "could not start " + order_.id.task.text() + ": " + exit_->cause,
                                 "stop it, or keep the range network.taskPorts free of other programs"});
    const auto& backoff = order_.context->spec.policy.restart_backoff;
    if (now - started_ >= backoff.reset_after) consecutive_failures_ = 0;
    if (!exit_->success() && !counted && !spared_) failures_.push_back(now);
    if (failures_.size() > 64) failures_.erase(failures_.begin());
    if (!order_.in_place) return conclude(Outcome::failed, "");
    if (auto why = why_no_restart(now)) return conclude(Outcome::failed, *why);
    const std::uint32_t in_row = counted && consecutive_failures_ > 0 ? consecutive_failures_ - 1 : consecutive_failures_;
    // An end with the host costs nothing, but is delayed if it repeats: whoever may signal a shim can feign one.
    backoff_until_ = stood_ ? now : now + job::backoff_delay(backoff, in_row, order_.id.job * 7919 + attempt_);
    consecutive_failures_ = in_row + (stood_ ? 0 : 1);
  } else {
    backoff_until_ = now;
  }
  reason_ = job::describe(*exit_);
  enter(Phase::backoff);
  advance(now);
}

void Task::conclude(Outcome outcome, std::string reason) {
  outcome_ = outcome;
  if (!reason.empty()) reason_ = std::move(reason);
  backoff_until_ = stop_deadline_ = kNever;
  if (shim_alive_) {
    enter(Phase::ending);
    actions_.end(order_.id);
  } else {
    leave();
  }
}

// Its shim is gone, with all that the shim began.
void Task::leave() {
  if (order_.gpus.empty() || attempt_ < order_.first_attempt) return enter(Phase::over);
  enter(Phase::reclaiming);
  actions_.reclaim(order_, since_);
}

void Task::reclaimed() {
  if (phase_ == Phase::reclaiming) enter(Phase::over);
}

void Task::shim_gone(Instant now) {
  shim_alive_ = false;
  switch (phase_) {
    case Phase::ending: leave(); break;
    case Phase::staged:  // the shim died before it had anything to run
      if (++idle_deaths_ <= kIdleShimDeaths) return launch();
      return stage_failure(Error{ErrorCode::unavailable,
                                 "could not start it: " + std::to_string(idle_deaths_) + " shims in a row died before it began",
                                 "look for dtrain-shim in that host's log"});
    case Phase::backoff: advance(now); break;  // relaunched when the delay is over
    default: break;  // running, starting: the exit or refusal follows, and then it is launched again; launching: the result follows
  }
}

void Task::freeze_done(Instant now, bool frozen, const Status& result) {
  freeze_pending_ = false;
  if (phase_ != Phase::running) return;
  if (result) {
    frozen_ = frozen;
    stood(now);
    has_news();
  } else if (!killed_) {
    // A task that cannot be frozen must not run on beside the others: its next attempt waits for the thaw.
    killed_ = true;
    reason_ = result.error().text();
    actions_.kill(order_.id);
  }
  advance(now);
}

void Task::notified(Instant now, AttemptNumber attempt, bool ready, bool watchdog) {
  if (attempt != attempt_ || phase_ != Phase::running) return;
  if (watchdog || ready) last_sign_of_life_ = now;
  if (ready && !ready_) {
    ready_ = true;
    has_news();
  }
}

void Task::stop(Instant now) {
  if (order_.desire == Desire::kill || now >= stop_deadline_) {
    if (!killed_) {
      killed_ = true;
      actions_.kill(order_.id);
    }
    stop_deadline_ = kNever;
    return;
  }
  if (stop_signalled_) return;
  // The ledger must know of the stop before the task does: an exit 0 in answer to the signal must not pass for
  // success, even if this agent dies in between.
  if (!stop_announced_) {
    stop_announced_ = true;
    has_news();
  }
  if (!order_.stop_known) return;
  // A frozen task cannot receive its signal.
  if (frozen_) {
    if (!freeze_pending_) {
      freeze_pending_ = true;
      actions_.freeze(order_.id, false);
    }
    return;
  }
  stop_signalled_ = true;
  const Duration grace = order_.context->spec.policy.stop_grace_period;
  stop_deadline_ = now + grace;
  // In an image the main process is the engine's program, which passes the signal on and stays until the command has ended.
  if (in_image()) actions_.signal(order_.id, role().stop_signal, job::SignalTo::main, Duration{0});
  else actions_.signal(order_.id, role().stop_signal, role().signal_to, grace);
}

void Task::require_lease(Instant now) {
  if (!lacks_lease() || now < require_at_) return;
  require_at_ = now + kRequireEvery;
  actions_.require_lease(order_.id, std::max(host_.lease, order_.lease));
}

void Task::lease_asked(std::uint64_t nonce) {
  questions_[next_question_++ % questions_.size()] = nonce;
  if (lease_ > 0ns) return;
  lease_ = std::max(host_.lease, order_.lease);
  has_news();
}

bool Task::lease_answered(std::uint64_t nonce, bool granted) {
  if (nonce == 0 || std::ranges::find(questions_, nonce) == questions_.end()) return false;
  superseded_ = superseded_ || !granted;
  return true;
}

void Task::thaw(Instant now) {
  if (std::exchange(lease_frozen_, false)) stood_still_ += now - froze_;
}

void Task::lease_froze(Instant now, AttemptNumber attempt, bool frozen) {
  if (phase_ != Phase::running || attempt != attempt_ || lease_frozen_ == frozen) return;
  thaw(now);
  lease_frozen_ = frozen;
  froze_ = now;
  stood(now);
  reason_ = frozen ? "no word from the council for " + duration_text(lease_ - kFreezeAhead) : "";
  has_news();
}

void Task::enter(Phase phase) {
  phase_ = phase;
  if (preparing()) return;
  untold_ = true;
  has_news();
  tell_at_ = kNever;
}

void Task::advance(Instant now) {
  proceed(now);
  watch_preparation(now);
}

void Task::proceed(Instant now) {
  require_lease(now);
  const bool waits = phase_ == Phase::backoff || overdue_at() != kNever;
  const bool still = waits && job_stands_still();
  if (std::exchange(stood_, still) && !still) stood(now);
  switch (phase_) {
    case Phase::running: {
      if (to_be_stopped()) return stop(now);
      if (order_.freeze != frozen_ && !freeze_pending_ && !killed_) {
        freeze_pending_ = true;
        actions_.freeze(order_.id, order_.freeze);
      }
      if (!frozen() && !still) kill_overdue(now);
      return;
    }
    case Phase::staged:
      if (order_.desire != Desire::run) return conclude(Outcome::on_request, "");
      if (order_.go && !superseded_ && gate_.predecessor_gone(order_.id)) start_next(now);
      return;
    case Phase::starting:
      // The grant may never come.
      if (lease_ > 0ns && order_.desire != Desire::run) return conclude(Outcome::on_request, "");
      if (!still) kill_overdue(now);
      return;
    case Phase::backoff:
      if (order_.desire != Desire::run) return conclude(Outcome::on_request, "");
      if (order_.freeze || superseded_ || still || now < backoff_until_) return;
      if (order_.hold_restart && order_.release_attempt <= attempt_) return;
      if (gate_.halt_expected(order_.id)) return;  // it would be killed at once, and cost budget
      return start_next(now);
    default: return;
  }
}

Instant Task::deadline() const {
  Instant d = std::min(stop_deadline_, kNever);
  if (phase_ == Phase::backoff && !order_.freeze && !superseded_ && !job_stands_still() &&
      !(order_.hold_restart && order_.release_attempt <= attempt_) && !gate_.halt_expected(order_.id))
    d = std::min(d, backoff_until_);
  if (overdue_at() != kNever && !frozen() && !job_stands_still() && !killed_ && (phase_ == Phase::starting || !to_be_stopped()))
    d = std::min(d, overdue_at());
  if (lacks_lease()) d = std::min(d, require_at_);
  if (!dirty_) d = std::min(d, tell_at_);
  return d;
}

}  // namespace dtrain::task
