// The world's view of one job's attempts: which ends were ordered, which tasks completed. Shared by the checkers that
// must tell a task's own end from one that the agent asked for.
#pragma once

#include <csignal>
#include <map>
#include <set>

#include "common/node/effect.h"
#include "tests/sim/sim_runner.h"

namespace dtrain::sim {

class AttemptLedger {
 public:
  // Feed it all three, in the order in which they happen.
  void effect(const node::Effect& effect) {
    // Other signals (signalBeforeDeadline) are a message to the task, no order to end.
    if (const auto* e = std::get_if<node::SignalTask>(&effect); e != nullptr && (e->signal == SIGTERM || e->signal == SIGKILL))
      ordered_.insert(e->id);
    if (const auto* e = std::get_if<node::KillTask>(&effect)) ordered_.insert(e->id);
    if (const auto* e = std::get_if<node::EndShim>(&effect)) ordered_.insert(e->id);
  }
  // To be called at the start of an attempt, after judging it.
  void started(const SimShim& shim) {
    ordered_.erase(shim.spec.id);
    started_[shim.spec.id] = shim.attempt;
  }
  // To be called at its end, before judging it; returns true when the task ended by itself.
  bool own_end(const SimShim& shim) const { return !ordered_.contains(shim.spec.id); }
  bool ran_in_generation(const AssignmentId& id) const { return started_.contains(id); }
  AttemptNumber last_attempt(const AssignmentId& id) const {
    const auto it = started_.find(id);
    return it == started_.end() ? 0 : it->second;
  }

 private:
  std::set<AssignmentId> ordered_;
  std::map<AssignmentId, AttemptNumber> started_;
};

}  // namespace dtrain::sim
