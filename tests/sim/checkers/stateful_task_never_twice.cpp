// At no instant do two instances of one task of a job live, on whichever hosts, and when a generation's first task starts, nothing of an
// older generation of that job lives any more.
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class StatefulTaskNeverTwice final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "stateful_task_never_twice"; }

  void process_started(const SimShim& shim) override {
    const AssignmentId& id = shim.spec.id;
    for (std::size_t i = 0; i < world_.hosts(); ++i) judge(id, world_.host_view(i).runner().shims());
  }

 private:
  void judge(const AssignmentId& id, const std::map<AssignmentId, SimShim>& shims) {
    for (auto it = shims.lower_bound(AssignmentId{id.job, 0, {}}); it != shims.end() && it->first.job == id.job; ++it) {
      const auto& [other, state] = *it;
      if (!state.running || other == id) continue;
      if (other.task == id.task) return violation(id.text() + " started while " + other.text() + " ran");
      if (other.generation != id.generation)
        return violation(id.text() + " started while " + other.text() + " of another generation ran");
    }
  }
};

}  // namespace

std::unique_ptr<Checker> stateful_task_never_twice(WorldView& world) { return std::make_unique<StatefulTaskNeverTwice>(world); }

}  // namespace dtrain::sim
