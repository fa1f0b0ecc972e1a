// No task runs its first attempt of a generation before every task of the roles it starts after has reached, in that
// generation, what startAfter says: by default all ps, then the chief, then the workers.
#include "tests/sim/attempt_ledger.h"
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class StartOrder final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "start_order"; }

  void on_effect(const node::Effect& effect) override { attempts_.effect(effect); }
  void on_event(const node::Event& event) override {
    if (const auto* e = std::get_if<node::Notified>(&event); e != nullptr && e->ready) ready_.insert(e->id);
  }

  void process_started(const SimShim& shim) override {
    const AssignmentId id = shim.spec.id;
    const bool first = !attempts_.ran_in_generation(id);
    attempts_.started(shim);
    if (!first) return;
    const job::JobSpec* spec = world_.book().spec_of(id.job);
    if (spec == nullptr) return;
    const auto role = spec->roles.find(id.task.role);
    if (role == spec->roles.end()) return;
    for (const auto& [earlier, what] : role->second.start_after) {
      const auto other = spec->roles.find(earlier);
      if (other == spec->roles.end()) continue;
      for (std::uint32_t i = 0; i < other->second.replicas; ++i)
        if (!reached(AssignmentId{id.job, id.generation, TaskId{earlier, i}}, what))
          return violation(id.text() + " started before " + earlier + "-" + std::to_string(i) + " was so far");
    }
  }

  void process_ended(const SimShim& shim) override {
    // With several hosts, the order to end the task may have gone to a host from which the task was taken.
    if (shim.exit && shim.exit->success() && (attempts_.own_end(shim) || !world_.alone()))
      succeeded_.insert({shim.spec.id.job, shim.spec.id.task});
  }

 private:
  bool reached(const AssignmentId& id, job::StartAfter what) const {
    if (succeeded_.contains({id.job, id.task})) return true;
    switch (what) {
      case job::StartAfter::running: return attempts_.ran_in_generation(id);
      case job::StartAfter::ready: {
        const SimShim* shim = world_.find_shim(id);
        return ready_.contains(id) || (shim != nullptr && shim->ready);
      }
      case job::StartAfter::succeeded: return false;
    }
    return false;
  }

  AttemptLedger attempts_;
  std::set<AssignmentId> ready_;
  std::set<std::pair<JobId, TaskId>> succeeded_;
};

}  // namespace

std::unique_ptr<Checker> start_order(WorldView& world) { return std::make_unique<StartOrder>(world); }

}  // namespace dtrain::sim
