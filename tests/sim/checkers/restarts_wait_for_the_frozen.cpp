// While a task is frozen for want of a lease no other of its generation is restarted by the same host, which knows.
//
// But for one that an order freezes too (onPsFailure: freeze): it asks for no lease until the ps that this waits for runs again.
#include <set>

#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class RestartsWaitForTheFrozen final : public HostChecker {
 public:
  using HostChecker::HostChecker;
  std::string_view name() const override { return "restarts_wait_for_the_frozen"; }

  void on_event(const node::Event& event) override {
    if (const auto* froze = std::get_if<node::LeaseFroze>(&event)) {
      if (froze->frozen) frozen_.insert(froze->id);
      else frozen_.erase(froze->id);
    }
    // A start that was ordered and has not begun because its host was lost meanwhile still happens (three hosts, seed 3198).
    if (const auto* began = std::get_if<node::AttemptStarted>(&event)) started_.insert(began->id);
    if (const auto* exited = std::get_if<node::AttemptExited>(&event)) ended(exited->id);
    if (const auto* gone = std::get_if<node::ShimGone>(&event)) ended(gone->id);
  }

  void on_effect(const node::Effect& effect) override {
    if (const auto* freeze = std::get_if<node::FreezeTask>(&effect)) {
      if (freeze->freeze) held_.insert(freeze->id);
      else held_.erase(freeze->id);
    }
    const auto* start = std::get_if<node::StartAttempt>(&effect);
    if (start == nullptr || !started_.contains(start->id)) return;
    for (const AssignmentId& other : frozen_)
      if (!held_.contains(other) && other.job == start->id.job && other.generation == start->id.generation && other.task != start->id.task)
        return violation(host().name() + " restarts " + start->id.text() + " while " + other.text() + " is frozen there");
  }

  void agent_dies() override { frozen_.clear(); }  // the next life is told anew

 private:
  void ended(const AssignmentId& id) {
    frozen_.erase(id);
    held_.erase(id);
  }
  std::set<AssignmentId> frozen_, held_, started_;
};

}  // namespace

std::unique_ptr<Checker> restarts_wait_for_the_frozen(WorldView& world, std::size_t host) {
  return std::make_unique<RestartsWaitForTheFrozen>(world, host);
}

}  // namespace dtrain::sim
