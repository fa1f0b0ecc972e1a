#include "common/node/job_watch.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/node/cluster_members.h"
#include "common/node/host_capacities.h"

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;

// A job with tasks on several hosts is not failed earlier than this after its last fault: by then a silent host is suspected.
constexpr Duration kDoubtFor = 3s;

}  // namespace

void JobWatch::look(const JobRecord& job, WatchedJob& soft) {
  if (is_final(job.state)) return watch_end(job, soft);
  if (job.doubted) return watch_doubt(job, soft);
  if (job.evaluators_until && due(soft, *job.evaluators_until))
    return jobs_.propose(soft, job.id, CommandType::finish, cluster::FinishJob{job.id, cluster::JobState::succeeded, ""});
  watch_run(job, soft);
}

// True if that elapsed time of the cluster has come; otherwise the job is looked at again then.
bool JobWatch::due(WatchedJob& soft, Duration when) const {
  if (when <= c_.elapsed()) return true;
  soft.look_by(jobs_.at(when));
  return false;
}

// A job in its final state, until it is removed.
void JobWatch::watch_end(const JobRecord& job, WatchedJob& soft) {
  const auto ttl = job.spec.policy.ttl_after_finished;
  const bool expired = ttl && job.finished_elapsed && due(soft, *job.finished_elapsed + *ttl);
  if ((job.deleting && job.nothing_runs()) || (expired && (job.nothing_runs() || job.leave_running)))
    jobs_.propose(soft, job.id, CommandType::forget, cluster::ForgetJob{job.id});
}

// The longest that a run may take (activeDeadlineSeconds). Time in which the job stands still does not count.
void JobWatch::watch_run(const JobRecord& job, WatchedJob& soft) {
  const auto limit = job.spec.policy.active_deadline;
  if (!limit || job.still_since) return;
  // Hosts must first report what stood still while nobody coordinated.
  const bool leased = std::ranges::any_of(job.tasks, [](const auto& t) { return !t.second.ended && t.second.lease > 0ns; });
  if (leased && leases_.known_from() > c_.now.boot) return soft.look_by(leases_.known_from());
  if (!job.run_started || job.goal != cluster::Goal::run) return;
  if (due(soft, *job.run_started + *limit)) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*limit).count();
    return jobs_.propose(
        soft, job.id, CommandType::finish,
        cluster::FinishJob{job.id, cluster::JobState::failed, "activeDeadlineSeconds of " + std::to_string(seconds) + " is over"});
  }
  const auto warning = job.spec.policy.signal_before_deadline;
  if (warning && !job.signalled && due(soft, *job.run_started + *limit - warning->before))
    jobs_.propose(soft, job.id, CommandType::signal, cluster::SignalJob{job.id});
}

// A task that failed for good may have done so because a host with other tasks of the job is being lost, or was stopped.
// That shows soon: a silent host is suspected and then lost, and a host that is back reports what ended with it. Nothing
// is known of a host that nobody has seen since this agent's start. A task that has ended has reported how.
void JobWatch::watch_doubt(const JobRecord& job, WatchedJob& soft) {
  if (job.goal != cluster::Goal::run) return;
  const auto is_away = [&](const auto& entry) {
    const auto id = MemberId::parse(entry.second.place.node);
    if (!id || entry.second.ended || entry.second.place.node == c_.facts.id) return false;
    const auto member = c_.members->table().find(*id);
    return !member || member->state != wire::MemberState::alive;
  };
  if (std::ranges::any_of(job.tasks, is_away)) {
    all_there_.erase(job.id);
    return soft.look_by(c_.now.boot + kLookEvery);
  }
  const Instant all_there_since = all_there_.try_emplace(job.id, c_.now.boot).first->second;
  const Instant settled = std::max(jobs_.at(*job.doubted), all_there_since) + kDoubtFor;
  if (settled <= c_.now.boot)
    jobs_.propose(soft, job.id, CommandType::finish, cluster::FinishJob{job.id, cluster::JobState::failed, job.doubt});
  else soft.look_by(std::min(settled, c_.now.boot + kLookEvery));
}

// A job stands still from the moment when a task of it must be frozen, long before its host is given up, until all
// its leases are granted again.
Instant JobWatch::watch_leases() {
  Instant next = kNever;
  for (auto& [id, soft] : jobs_.all()) {
    const JobRecord* job = c_.ledger.find(id);
    if (job == nullptr || is_final(job->state) || job->halt != cluster::Halt::none || soft.proposed != 0) continue;
    const Leases::Frozen frozen = leases_.frozen(id);
    next = std::min(next, frozen.next);
    if (frozen.one.has_value() == !job->must_be_frozen.empty() || (!frozen.one && !frozen.none)) continue;
    std::string because;
    NodeId host;
    if (frozen.one) {
      host = job->tasks.at(frozen.one->task).place.node;
      because = frozen.one->task.text() + " on " + host_name(c_, host) + " must be frozen: its lease was not renewed";
    }
    jobs_.propose(soft, id, CommandType::job_still, cluster::JobStill{id, job->generation, std::move(because), std::move(host)});
  }
  return next;
}

}  // namespace dtrain::node
