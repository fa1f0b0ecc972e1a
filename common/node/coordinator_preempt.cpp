// The coordinator's preemptions: who makes room for the first that waits is ended with its stop grace. The queue chooses whom, and keeps
// their places for it; what was decided is in the log, so that the next coordinator finds them ending and ends nobody else.
#include <algorithm>

#include "common/node/coordinator.h"

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;

// A decision that could not be proposed now, or was refused, is looked at again after this; and so is a job that makes way.
constexpr Duration kLookAgain = 1s;

// Its last generation ends, or has ended, and the next is to come soon.
bool between_generations(const JobRecord& job, const cluster::LedgerState& state, Duration now) {
  if (job.goal != cluster::Goal::run || is_final(job.state) || !job.needs_generation || job.generation == 0) return false;
  const bool away = std::ranges::any_of(
      job.tasks, [&](const auto& t) { return !t.second.ended && state.lost.contains(t.second.place.node); });
  return !away && (!job.nothing_runs() || job.not_before > now);
}

}  // namespace

// All for the same job. Nobody is ended for one that could not begin then: what it restores is found first. True: there is nothing to
// restore, and the others are to be looked at without it.
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

// A job that was preempted does not go back to its place while the one that got it is between two of its generations: it would be
// preempted at each of that one's recoveries.
bool Coordinator::makes_way(const JobRecord& job, Job& soft) {
  const JobRecord* by = job.preempted.by == 0 ? nullptr : c_.ledger.find(job.preempted.by);
  if (by == nullptr || !between_generations(*by, c_.ledger.state(), c_.elapsed())) return false;
  soft.deadline = std::min(soft.deadline, c_.now.boot + kLookAgain);
  wait(job, soft, "preempted by " + job.preempted.name + ", which is about to go on");
  return true;
}

}  // namespace dtrain::node
