// A job stands still while a task of it is frozen for want of a lease, as its host reports, or because the
// coordinator has granted none for so long. Exits of the others then prove nothing about them, and the job's time
// does not run (docs/recovery.md).
#include <algorithm>

#include "common/cluster/job_transition.h"
#include "common/cluster/outcome.h"

namespace dtrain::cluster {

// By what its host knew when it saw the exit, or by what the ledger knows.
bool JobTransition::spares(const TaskObservation& seen) const {
  return (seen.spared || job_.still_since) && ledger_.broken_rule != "frozen-costs-nothing";
}

// The time since `from` was no part of the run; time that was counted so already is not counted twice.
void JobTransition::credit_still(Duration from) {
  const Duration now = ledger_.state_.elapsed;
  if (!job_.run_started) return;
  from = std::max({from, job_.still_to, *job_.run_started});
  if (from < now) *job_.run_started += now - from;
  job_.still_to = now;
}

// A host that was cut off with its cluster, or heard no coordinator, reports afterwards how long the task stood still.
void JobTransition::stood_still(TaskRecord& task, const TaskObservation& seen) {
  task.lease_frozen = seen.lease_frozen && !seen.ended;
  if (seen.stood_still <= task.stood_still) return;
  const Duration from = ledger_.state_.elapsed - (seen.stood_still - task.stood_still);
  task.stood_still = seen.stood_still;
  if (job_.still_since) job_.still_since = std::min(*job_.still_since, std::max(from, job_.still_to));
  else credit_still(from);
}

void JobTransition::watch_still() {
  bool leased = false;
  std::string because;
  for (const auto& [id, t] : job_.tasks) {
    if (t.ended) continue;
    leased = leased || t.lease > 0ns;
    if (t.lease_frozen && because.empty()) because = id.text() + " is frozen for want of a lease";
  }
  if (!leased || is_final(job_.state)) job_.must_be_frozen.clear();
  if (job_.must_be_frozen.empty()) job_.frozen_on.clear();
  if (because.empty()) because = job_.must_be_frozen;
  const bool still = !because.empty() && !is_final(job_.state);
  if (still == job_.still_since.has_value()) return;
  if (still) {
    job_.still_since = ledger_.state_.elapsed;
  } else {
    credit_still(*job_.still_since);
    job_.still_since.reset();
  }
  if (is_final(job_.state)) return;
  ledger_.add_event(wall_, job_.id, still ? "job.stands-still" : "job.goes-on", job_.spec.name, because, {{"job", job_.spec.name}});
}

Applied Ledger::apply_still(const JobStill& c, WallTime wall) {
  const auto it = state_.jobs.find(c.job);
  if (it == state_.jobs.end() || is_final(it->second.state) || it->second.generation != c.generation)
    return refused(ErrorCode::refused, "job moved on");
  JobRecord& job = it->second;
  job.must_be_frozen = c.because;
  job.frozen_on = c.because.empty() ? NodeId{} : c.host;
  JobTransition(*this, job, wall).settle();
  ++job.version;
  touched_.insert(c.job);
  return done(job);
}

}  // namespace dtrain::cluster
