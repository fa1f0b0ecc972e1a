// The ledger's part about jobs that leave their places: drained hosts, and preemption.
#include "common/cluster/job_transition.h"
#include "common/cluster/ledger.h"
#include "common/cluster/outcome.h"

namespace dtrain::cluster {

Applied Ledger::apply_drain(const DrainHost& c, std::uint64_t index, WallTime wall) {
  const auto known = state_.drained.find(c.node);
  if (!c.on) {
    if (known == state_.drained.end()) return {};
    state_.drained.erase(known);
    drains_ = true;
    add_event(wall, 0, "node.undrained", c.name, "", {{"node", c.name}, {"by", c.by}});
    audit(wall, c.asker, 0, "undrain", c.name, "", {{"node", c.name}});
    return {};
  }
  if (known == state_.drained.end() && state_.drained.size() >= kDrainedHosts)
    return refused(ErrorCode::limit, "could not drain host " + c.name + ": " + std::to_string(kDrainedHosts) + " hosts are drained already",
                   "dtrainctl undrain those that may be given tasks again, or forget-node those that are gone");
  DrainedHost& drain = state_.drained[c.node];
  const bool begins = drain.index == 0;
  if (begins) {
    drain.index = index;
    drain.since = wall;
  }
  const bool said = !begins && drain.reason == c.reason && drain.by == c.by && c.within == Duration{};
  drain.name = c.name;
  drain.reason = c.reason;
  drain.by = c.by;
  // A repeated drain without a deadline keeps the earlier deadline.
  if (c.within > Duration{}) drain.deadline = state_.elapsed + c.within;
  drains_ = true;
  if (said) return {};
  add_event(wall, 0, "node.drained", c.name, c.reason, {{"node", c.name}, {"by", c.by}});
  audit(wall, c.asker, 0, "drain", c.name, c.reason, {{"node", c.name}});
  return {};
}

Applied Ledger::apply_move(const MoveJob& c, WallTime wall) {
  const auto it = state_.jobs.find(c.job);
  const auto drain = state_.drained.find(c.node);
  if (it == state_.jobs.end() || drain == state_.drained.end() || it->second.generation != c.generation)
    return refused(ErrorCode::refused, "job moved on");
  JobRecord& job = it->second;
  auto& stays = drain->second.stays;
  if (!c.stays.empty()) {
    if (tasks_on(job, c.node).empty() || (stays.size() >= kStayingJobs && !stays.contains(c.job)))
      return refused(ErrorCode::refused, "job moved on");
    stays[c.job] = c.stays;
    touched_.insert(c.job);
    return done(job);
  }
  JobTransition transition(*this, job, wall);
  if (!transition.move_off(c.node, drain->second.name, c.forced)) return refused(ErrorCode::refused, "job moved on");
  stays.erase(c.job);
  transition.settle();
  ++job.version;
  touched_.insert(c.job);
  return done(job);
}

Applied Ledger::apply_preempt(const PreemptJob& c, WallTime wall) {
  const auto it = state_.jobs.find(c.job);
  const JobRecord* by = find(c.by);
  if (it == state_.jobs.end() || by == nullptr || it->second.generation != c.generation) return refused(ErrorCode::refused, "job moved on");
  JobRecord& job = it->second;
  const bool waits = by->goal == Goal::run && by->needs_generation && by->nothing_runs() && by->preempted.by == 0 && !is_final(by->state);
  const bool lower = job.spec.policy.priority < by->spec.policy.priority || broken_rule == "victims-have-lower-priority";
  JobTransition transition(*this, job, wall);
  if (!waits || !lower || !transition.make_room(*by)) return refused(ErrorCode::refused, "job moved on");
  transition.settle();
  ++job.version;
  touched_.insert(c.job);
  return done(job);
}

}  // namespace dtrain::cluster
