// The coordinator's preemptions: a job that must make room for the first waiting job is ended with its stop grace.
// The queue chooses the victims and reserves their places. The decision is in the log, so that the next coordinator
// finds them ending and ends no others.
#include <algorithm>

#include "common/node/coordinator.h"

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;

// Pause before looking again at a decision that could not be proposed or was refused, and at a job that makes way.
constexpr Duration kLookAgain = 1s;

// True if the job's last generation ends or has ended, and the next is to come soon.
bool between_generations(const JobRecord& job, const cluster::LedgerState& state, Duration now) {
  if (job.goal != cluster::Goal::run || is_final(job.state) || !job.needs_generation || job.generation == 0) return false;
  const bool away = std::ranges::any_of(
      job.tasks, [&](const auto& t) { return !t.second.ended && state.lost.contains(t.second.place.node); });
  return !away && (!job.nothing_runs() || job.not_before > now);
}

}  // namespace

// Ends the victims, all for the same job. Nobody is ended for a job that could not begin then, so its checkpoint is
// found first. Returns true if that job has nothing to restore from, and the others are to be looked at without it.
bool Coordinator::preempt(const std::vector<cluster::Preemption>& victims) {
  if (victims.empty()) return false;
  const JobRecord& by = *c_.ledger.find(victims.front().beneficiary);
  Job& waits = jobs_.at(by.id);
  if (const Restoring restoring = look_for_restore(by, waits); restoring != Restoring::ready) return restoring == Restoring::blocked;
  waits.deadline = std::min(waits.deadline, c_.now.boot + kLookAgain);
  for (const cluster::Preemption& p : victims) {
    const JobRecord* job = c_.ledger.find(p.victim);
    const auto soft = jobs_.find(p.victim);
    if (job == nullptr || soft == jobs_.end() || soft->second.proposed != 0) continue;
    propose(soft->second, job->id, CommandType::preempt_job, cluster::PreemptJob{job->id, job->generation, by.id});
  }
  return false;
}

// A job that was preempted does not go back to its place while the job that got the place is between two generations;
// otherwise it would be preempted at each recovery of that job.
bool Coordinator::makes_way(const JobRecord& job, Job& soft) {
  const JobRecord* by = job.preempted.by == 0 ? nullptr : c_.ledger.find(job.preempted.by);
  if (by == nullptr || !between_generations(*by, c_.ledger.state(), c_.elapsed())) return false;
  soft.deadline = std::min(soft.deadline, c_.now.boot + kLookAgain);
  wait(job, soft, "preempted by " + job.preempted.name + ", which is about to go on");
  return true;
}

}  // namespace dtrain::node
