#include "common/node/coordinator.h"

#include <algorithm>
#include <utility>

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;
using cluster::RestoreChoice;

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
  jobs_.clear();
  proposals_.clear();
  bookings_.clear();
  unplaced_.clear();
  away_.clear();
  without_copy_.clear();
  losing_.clear();
  held_.clear();
  stays_said_.clear();
  tried_last_ = {};
  moves_wait_ = next_lead_elsewhere_ = {};
  if (leads_elsewhere_ != 0) led_elsewhere_ = std::exchange(leads_elsewhere_, 0);
  next_look_ = {};
  queue_.forget();
}

void Coordinator::consider(const std::set<JobId>& ids) {
  bool changed = false;
  for (const JobId id : ids) changed = look_at(id) || changed;
  if (!changed) return;
  move_jobs();
  start_waiting();
}

// Returns true if the job wants a place, or if something that it held may be free.
bool Coordinator::look_at(JobId id) {
  const JobRecord* job = c_.ledger.find(id);
  if (job == nullptr) {
    jobs_.erase(id);
    unplaced_.erase(id);
  } else {
    Job& soft = jobs_[id];
    soft.deadline = kNever;
    // A choice for a generation that is not wanted any more; its outstanding answer is ignored.
    if (job->goal != cluster::Goal::run || !job->needs_generation) soft.choosing.reset();
    if (soft.proposed == 0) watch_time(*job, soft);
    watch_room(*job, soft);
    if (!tasks_to_place(*job, soft).empty()) {
      unplaced_.insert(id);
      return true;
    }
    const bool waits = job->goal == cluster::Goal::run && !is_final(job->state) && job->needs_generation;
    if (!waits) {  // otherwise it waits for its turn, a checkpoint, or the end of its running tasks
      unplaced_.erase(id);
      soft.waiting.clear();
    }
    // A quiet finished job without a time to live needs nothing more: 10,000 of them may be kept.
    if (is_final(job->state) && job->nothing_runs() && !job->deleting &&
        !job->spec.policy.ttl_after_finished && soft.proposed == 0)
      jobs_.erase(id);
  }
  return job == nullptr || job->nothing_runs();
}

// Watches the deadlines of the job as a whole, and proposes what must follow when one has passed.
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
  if (job.doubted) return watch_doubt(job, soft);
  if (job.evaluators_until && due(*job.evaluators_until)) {
    propose(soft, job.id, CommandType::finish, cluster::FinishJob{job.id, cluster::JobState::succeeded, ""});
    return;
  }
  const auto limit = job.spec.policy.active_deadline;
  if (job.still_since) return;
  // Hosts must first report what stood still while nobody coordinated.
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

// Returns false if the job cannot begin now, so that its place is free for others.
bool Coordinator::begin_generation(const JobRecord& job, Job& soft, std::vector<cluster::TaskPlacement> placements) {
  const Restoring restoring = look_for_restore(job, soft);
  if (restoring != Restoring::ready) return restoring == Restoring::under_way;
  cluster::BeginGeneration begin;
  begin.job = job.id;
  const bool same_history = job.history == cluster::history_of(c_.ledger.state().epoch);
  begin.generation = job.generation + (same_history ? 1 : cluster::kGenerationsOfHistory);
  begin.sizes = cluster::sizes_of(job, placements);
  begin.placements = std::move(placements);
  if (wants_restore(job)) {
    const auto& step = soft.choosing->choice.step();
    if (step.kind == RestoreChoice::Step::Kind::chosen) {
      begin.restore = job::Restore{step.at.info.path, step.at.info.step};
      begin.restore_digest = step.at.info.digest;
      begin.restore_place = step.at.info.place;
    }
    begin.message = why_restored(step);
  }
  soft.waiting.clear();
  unplaced_.erase(job.id);
  propose(soft, job.id, CommandType::begin_generation, begin);
  bookings_.push_back({soft.proposed, job.id, job.spec, std::move(begin.placements)});
  soft.choosing.reset();
  return true;
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
