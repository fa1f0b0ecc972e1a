// A task that exited 0 by itself is complete: it never runs again, in no later generation and after no crash, unless
// its role restarts always or a user asked for it.
//
// In a collective job the members stand or fall together: when one dies, those that had already ended must run
// again, so only a finished job protects them.
#include "tests/sim/attempt_ledger.h"
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class CompletedTaskNeverRerun final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "completed_task_never_rerun"; }

  void on_effect(const node::Effect& effect) override { attempts_.effect(effect); }

  void process_started(const SimShim& shim) override {
    const AssignmentId& id = shim.spec.id;
    attempts_.started(shim);
    const auto done = completed_.find({id.job, id.task});
    if (done == completed_.end()) return;
    const KnownJob* job = world_.book().find(id.job);
    if (job != nullptr && (job->restart_asked || job->tasks_restarted.contains(id.task.text()))) return;
    const job::JobSpec* spec = world_.book().spec_of(id.job);
    if (spec == nullptr || (job::is_collective(*spec) && done->second != id.generation)) return;
    violation(id.text() + " attempt " + std::to_string(shim.attempt) + " started although the task had completed in generation " +
              std::to_string(done->second));
  }

  void process_ended(const SimShim& shim) override {
    if (!shim.exit || !shim.exit->success() || !attempts_.own_end(shim)) return;
    const AssignmentId& id = shim.spec.id;
    const job::JobSpec* spec = world_.book().spec_of(id.job);
    if (spec == nullptr) return;
    const auto role = spec->roles.find(id.task.role);
    if (role == spec->roles.end() || role->second.restart_policy == job::RestartPolicy::always) return;
    completed_.try_emplace({id.job, id.task}, id.generation);
  }

 private:
  AttemptLedger attempts_;
  std::map<std::pair<JobId, TaskId>, Generation> completed_;
};

}  // namespace

std::unique_ptr<Checker> completed_task_never_rerun(WorldView& world) { return std::make_unique<CompletedTaskNeverRerun>(world); }

}  // namespace dtrain::sim
