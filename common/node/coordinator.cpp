#include "common/node/coordinator.h"

#include <algorithm>
#include <utility>

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;
using cluster::RestoreChoice;

// A checkpoint directory that could not be read is looked at again after this.
constexpr Duration kScanRetry = 5s;
// Token of a verification that nobody waits for: the agent takes its time over it (storage.checkpointRate).
constexpr std::uint64_t kInBackground = 0;
// A checkpoint that cannot be read (but is not damaged) is tried this often, kScanRetry apart.
constexpr std::uint32_t kUnreadableTries = 3;

std::string identity(const transfer::CheckpointInfo& info) {
  return info.digest + " " + info.path;
}

bool wants_restore(const JobRecord& job) {
  return job.spec.checkpoint && (job.spec.checkpoint->restore != "never" || job.from_scratch);
}

// Of those that the ledger knows.
bool has_newest(const JobRecord& job, const std::vector<transfer::CheckpointInfo>& found) {
  using State = cluster::CheckpointState;
  std::int64_t newest = -1, there = -1;
  for (const auto& r : job.checkpoints)
    if (r.state == State::complete || r.state == State::verified) newest = std::max(newest, r.info.step);
  for (const auto& info : found)
    if (info.complete) there = std::max(there, info.step);
  return there >= newest;
}

}  // namespace

std::set<JobId> Coordinator::applied(std::uint64_t index) {
  std::set<JobId> ids;
  const auto last = proposals_.upper_bound(index);
  for (auto it = proposals_.begin(); it != last; ++it) {
    ids.insert(it->second);
    const auto job = jobs_.find(it->second);
    if (job != jobs_.end() && job->second.proposed == it->first) job->second.proposed = 0;
  }
  proposals_.erase(proposals_.begin(), last);
  std::erase_if(bookings_, [&](const Booking& b) { return b.index <= index; });
  for (auto& [id, held] : held_)
    if (held.proposal <= index) held.proposal = 0;
  std::erase_if(losing_, [&](const auto& entry) {
    if (entry.second > index) return false;
    leases_.applied(entry.first);
    return true;
  });
  return ids;
}

void Coordinator::reset() {
  for (const auto& [id, soft] : jobs_)
    if (soft.watched) c_.emit(WatchCheckpoints{id, {}, {}, false});
  jobs_.clear();
  proposals_.clear();
  bookings_.clear();
  unplaced_.clear();
  away_.clear();
  bound_.clear();
  losing_.clear();
  held_.clear();
  stays_said_.clear();
  tried_last_ = {};
  moves_wait_ = next_lead_elsewhere_ = {};
  if (leads_elsewhere_ != 0) led_elsewhere_ = std::exchange(leads_elsewhere_, 0);
  next_look_ = {};
  next_hand_over_ = {};
  queue_.forget();
}

void Coordinator::consider(const std::set<JobId>& ids) {
  bool changed = false;
  for (const JobId id : ids) changed = look_at(id) || changed;
  if (!changed) return;
  move_jobs();
  start_waiting();
}

// True: it wants a place, or something that it held may be free.
bool Coordinator::look_at(JobId id) {
  const JobRecord* job = c_.ledger.find(id);
  if (job == nullptr) {
    if (const auto gone = jobs_.find(id); gone != jobs_.end()) {
      if (gone->second.watched) c_.emit(WatchCheckpoints{id, {}, {}, false});
      jobs_.erase(gone);
    }
    unplaced_.erase(id);
    bound_.erase(id);
  } else {
    Job& soft = jobs_[id];
    soft.deadline = kNever;
    watch(*job, soft);
    // A choice made for a generation that is not wanted any more; its outstanding answer finds nobody.
    if (job->goal != cluster::Goal::run || !job->needs_generation) soft.choosing.reset();
    if (soft.proposed == 0) watch_time(*job, soft);
    if (!tasks_to_place(*job, soft).empty()) {
      unplaced_.insert(id);
      return true;
    }
    const bool waits = job->goal == cluster::Goal::run && !is_final(job->state) && job->needs_generation;
    if (!waits) {  // else for its turn, a checkpoint, or the end of what runs
      unplaced_.erase(id);
      soft.waiting.clear();
    }
    // A quiet finished job without a time to live needs nothing more: 10,000 of them may be kept.
    if (is_final(job->state) && job->nothing_runs() && !job->deleting &&
        !job->spec.policy.ttl_after_finished && soft.proposed == 0 && !soft.watched)
      jobs_.erase(id);
  }
  return job == nullptr || job->nothing_runs();
}

// Deadlines of the job as a whole: when one has passed something is proposed.
void Coordinator::watch_time(const JobRecord& job, Job& soft) {
  const Duration now = c_.elapsed();
  const auto due = [&](Duration when) {
    if (when <= now) return true;
    soft.deadline = std::min(soft.deadline, at(when));
    return false;
  };
  if (is_final(job.state)) {
    const auto ttl = job.spec.policy.ttl_after_finished;
    const bool expired = ttl && job.finished_elapsed && due(*job.finished_elapsed + *ttl);
    if ((job.deleting && job.nothing_runs()) || (expired && (job.nothing_runs() || job.leave_running))) {
      propose(soft, job.id, CommandType::forget, cluster::ForgetJob{job.id});
    }
    return;
  }
  const auto limit = job.spec.policy.active_deadline;
  if (job.still_since) return;
  // What stood still while nobody coordinated says so first.
  const bool leased = limit && std::ranges::any_of(job.tasks, [](const auto& t) { return !t.second.ended && t.second.lease > 0ns; });
  if (leased && leases_.known_from() > c_.now.boot) {
    soft.deadline = std::min(soft.deadline, leases_.known_from());
    return;
  }
  if (!limit || !job.run_started || job.goal != cluster::Goal::run) return;
  if (due(*job.run_started + *limit)) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*limit).count();
    propose(soft, job.id, CommandType::finish,
            cluster::FinishJob{job.id, cluster::JobState::failed,
                               "activeDeadlineSeconds of " + std::to_string(seconds) + " is over"});
    return;
  }
  const auto warning = job.spec.policy.signal_before_deadline;
  if (warning && !job.signalled && due(*job.run_started + *limit - warning->before)) {
    propose(soft, job.id, CommandType::signal, cluster::SignalJob{job.id});
  }
}

// What its next generation restores. Under way: an answer is awaited; blocked: there is none now, and it says why.
Coordinator::Restoring Coordinator::look_for_restore(const JobRecord& job, Job& soft) {
  using Kind = RestoreChoice::Step::Kind;
  if (!wants_restore(job)) return Restoring::ready;
  if (!soft.choosing || soft.choosing->choice.from_scratch() != job.from_scratch) choose(job, soft);
  if (soft.choosing->choice.step().kind == Kind::blocked && soft.choosing->retry <= c_.now.boot) choose(job, soft);
  drive_choice(job, soft);
  const auto& step = soft.choosing->choice.step();
  if (step.kind == Kind::blocked) {
    if (soft.choosing->choice.pinned()) {
      propose(soft, job.id, CommandType::finish,
              cluster::FinishJob{job.id, cluster::JobState::failed, "could not restore: " + step.reason});
      return Restoring::blocked;
    }
    // Another look only when the user acts (restart --from-scratch changes the job) or the directory may
    // have.
    const std::string where = c_.among_others() ? "no checkpoint to restore on host " + c_.facts.name : "no checkpoint to restore";
    const std::string reason = where + ": " + step.reason + "; dtrainctl restart " +
                               job.spec.name + " --from-scratch gives up what was trained";
    if (soft.choosing->retry == kNever) soft.choosing->retry = c_.now.boot + kScanRetry;
    soft.deadline = std::min(soft.deadline, soft.choosing->retry);
    wait(job, soft, reason);
    return Restoring::blocked;
  }
  if (step.kind == Kind::chosen || step.kind == Kind::nothing) return Restoring::ready;
  soft.deadline = std::min(soft.deadline, soft.choosing->retry);
  return Restoring::under_way;
}

// False: it cannot begin now, and its place is free for others.
bool Coordinator::begin_generation(const JobRecord& job, Job& soft, std::vector<cluster::TaskPlacement> placements) {
  const Restoring restoring = look_for_restore(job, soft);
  if (restoring != Restoring::ready) return restoring == Restoring::under_way;
  cluster::BeginGeneration begin;
  begin.job = job.id;
  begin.generation = job.generation + 1;
  begin.placements = std::move(placements);
  if (wants_restore(job)) {
    const auto& step = soft.choosing->choice.step();
    if (step.kind == RestoreChoice::Step::Kind::chosen) {
      begin.restore = job::Restore{step.info.path, step.info.step};
      begin.restore_digest = step.info.digest;
    }
    begin.message = step.reason;
  }
  soft.waiting.clear();
  unplaced_.erase(job.id);
  propose(soft, job.id, CommandType::begin_generation, begin);
  bookings_.push_back({soft.proposed, job.id, job.spec, std::move(begin.placements)});
  soft.choosing.reset();
  return true;
}

void Coordinator::choose(const JobRecord& job, Job& soft) {
  soft.choosing.emplace(
      Choosing{RestoreChoice(job, c_.options.broken_rule == "verify-before-restore"), 0, kNever});
}

// Turns the choice's next step into an effect, once; steps that need no answer are left to the caller.
void Coordinator::drive_choice(const JobRecord& job, Job& soft) {
  using Kind = RestoreChoice::Step::Kind;
  Choosing& choosing = *soft.choosing;
  if (choosing.token != 0) return;
  const auto& step = choosing.choice.step();
  if (step.kind == Kind::blocked) return;
  if (choosing.retry != kNever) {
    if (choosing.retry > c_.now.boot) return;
    choosing.retry = kNever;
  }
  job::CheckpointSpec spec = *job.spec.checkpoint;
  switch (step.kind) {
    case Kind::scan:
      if (choosing.choice.pinned()) spec.dir = spec.restore;
      choosing.token = c_.next_token();
      c_.emit(ScanCheckpoints{job.id, choosing.token, spec, job.user});
      return;
    case Kind::scan_parent:
      spec.dir = spec.restore.substr(0, std::max<std::size_t>(spec.restore.rfind('/'), 1));
      choosing.token = c_.next_token();
      c_.emit(ScanCheckpoints{job.id, choosing.token, spec, job.user});
      return;
    case Kind::verify:
      choosing.token = c_.next_token();
      c_.emit(VerifyCheckpoint{job.id, choosing.token, step.info, job.user});
      return;
    case Kind::quarantine:
      choosing.token = c_.next_token();
      c_.propose(CommandType::checkpoint,
                 cluster::CheckpointSeen{
                     job.id, step.info,
                     step.damaged ? cluster::CheckpointState::damaged : cluster::CheckpointState::quarantined,
                     step.reason});
      c_.emit(QuarantineCheckpoint{job.id, choosing.token, step.info, job.user});
      return;
    case Kind::chosen:
    case Kind::nothing:
    case Kind::blocked:
      return;
  }
}

void Coordinator::scanned(const CheckpointsScanned& e) {
  const JobRecord* job = c_.ledger.find(e.job);
  const auto it = jobs_.find(e.job);
  if (job == nullptr || it == jobs_.end()) return;
  Job& soft = it->second;
  if (e.token == 0) {
    if (!e.found || is_final(job->state)) return;
    for (const auto& info : *e.found)
      if (info.complete && soft.known.insert(identity(info)).second) soft.to_verify.push_back(info);
    return verify_next(*job, soft);
  }
  if (!soft.choosing || soft.choosing->token != e.token) return;
  soft.choosing->token = 0;
  if (!e.found) {
    soft.choosing->retry = c_.now.boot + kScanRetry;
    wait(*job, soft, e.found.error().text());
  } else {
    // On another host than that which wrote them an old copy must not pass for the newest.
    const bool here = job->tasks.empty() || job->tasks.begin()->second.place.node == c_.facts.id;
    const bool newest = here || job->from_scratch || has_newest(*job, *e.found);
    soft.choosing->choice.scanned(newest ? *e.found : std::vector<transfer::CheckpointInfo>{});
  }
  consider({e.job});
}

void Coordinator::verified(const CheckpointVerified& e) {
  const JobRecord* job = c_.ledger.find(e.job);
  const auto it = jobs_.find(e.job);
  if (job == nullptr || it == jobs_.end()) return;
  Job& soft = it->second;
  if (e.token == kInBackground) {
    if (!soft.verifying || soft.verifying->path != e.path) return;
    const transfer::CheckpointInfo info = *std::exchange(soft.verifying, {});
    // What changed or went away while it was read is looked at again when the directory changes.
    if (e.result || e.result.error().code == ErrorCode::damaged)
      c_.propose(
          CommandType::checkpoint,
          cluster::CheckpointSeen{
              e.job, info, e.result ? cluster::CheckpointState::verified : cluster::CheckpointState::damaged,
              e.result ? std::string() : e.result.error().text()});
    else
      soft.known.erase(identity(info));
    return verify_next(*job, soft);
  }
  if (!soft.choosing || soft.choosing->token != e.token) return;
  soft.choosing->token = 0;
  // Only damage condemns a checkpoint. One that cannot be read now is tried again before an older one is
  // taken.
  if (!e.result && e.result.error().code != ErrorCode::damaged &&
      soft.choosing->unreadable < kUnreadableTries) {
    ++soft.choosing->unreadable;
    soft.choosing->retry = c_.now.boot + kScanRetry;
    wait(*job, soft, e.result.error().text());
    return consider({e.job});
  }
  if (e.result)
    c_.propose(CommandType::checkpoint, cluster::CheckpointSeen{e.job, soft.choosing->choice.step().info,
                                                                cluster::CheckpointState::verified, ""});
  soft.choosing->choice.verified(e.result);
  consider({e.job});
}

void Coordinator::quarantined(const CheckpointQuarantined& e) {
  const auto it = jobs_.find(e.job);
  if (it == jobs_.end() || !it->second.choosing || it->second.choosing->token != e.token) return;
  it->second.choosing->token = 0;
  if (!e.moved_to)
    c_.log.write(LogLevel::warn, "checkpoint.not-moved",
                 {{"path", e.path}, {"cause", e.moved_to.error().text()}});
  it->second.choosing->choice.quarantined();
  consider({e.job});
}

void Coordinator::watch(const JobRecord& job, Job& soft) {
  const bool on = job.spec.checkpoint && job.generation > 0 && !is_final(job.state) && !job.nothing_runs() &&
                  job.tasks.begin()->second.place.node == c_.facts.id;
  if (on != soft.watched) {
    soft.watched = on;
    c_.emit(WatchCheckpoints{job.id, on ? *job.spec.checkpoint : job::CheckpointSpec{}, job.user, on});
    if (!on) soft.to_verify.clear();
    for (const auto& r : job.checkpoints) soft.known.insert(identity(r.info));
  }
  if (on && job.spec.checkpoint->keep > 0) delete_surplus(job, soft);
}

void Coordinator::verify_next(const JobRecord& job, Job& soft) {
  if (soft.verifying || soft.to_verify.empty()) return;
  const auto newest = std::max_element(soft.to_verify.begin(), soft.to_verify.end(),
                                       [](const auto& a, const auto& b) { return a.step < b.step; });
  soft.verifying = std::move(*newest);
  soft.to_verify.erase(newest);
  c_.emit(VerifyCheckpoint{job.id, kInBackground, *soft.verifying, job.user});
}

// checkpoint.keep: the newest verified ones stay; the one that tasks may still read from is pinned.
void Coordinator::delete_surplus(const JobRecord& job, Job& soft) {
  std::vector<const cluster::CheckpointRecord*> good;
  for (const auto& r : job.checkpoints)
    if (r.state == cluster::CheckpointState::verified) good.push_back(&r);
  const std::size_t keep = job.spec.checkpoint->keep;
  if (good.size() <= keep) return;
  std::sort(good.begin(), good.end(),
            [](const auto* a, const auto* b) { return a->info.step > b->info.step; });
  for (std::size_t i = keep; i < good.size(); ++i) {
    if (good[i]->info.digest == job.restored_digest || !soft.deleted.insert(identity(good[i]->info)).second)
      continue;
    c_.emit(DeleteCheckpoint{job.id, good[i]->info, job.user});
    c_.propose(CommandType::checkpoint,
               cluster::CheckpointSeen{job.id, good[i]->info, cluster::CheckpointState::deleted,
                                       "surplus over keep: " + std::to_string(keep)});
  }
}

void Coordinator::tick() {
  std::set<JobId> due;
  for (const auto& [id, soft] : jobs_)
    if (soft.deadline <= c_.now.boot) due.insert(id);
  consider(due);
  if (next_look_ <= c_.now.boot) look_at_hosts();
}

Instant Coordinator::deadline() const {
  Instant d = watches_hosts() ? next_look_ : kNever;
  for (const auto& [id, soft] : jobs_) d = std::min(d, soft.deadline);
  return d;
}

}  // namespace dtrain::node
