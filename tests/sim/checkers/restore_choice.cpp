// A generation restores the newest checkpoint that verifies. Never one that does not, never one of a branch that a
// later generation left behind, never "from scratch" while a good one lies there, unless the job file or a user says
// so. An older one is right only after two failures in a row without progress from the newer.
#include <optional>

#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class RestoreChoice final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "restore_choice"; }

  // All tasks of a generation get the same; the first that starts shows it.
  void process_started(const SimShim& shim) override {
    const AssignmentId& id = shim.spec.id;
    History& job = jobs_[id.job];
    if (id.generation <= job.generation) return;
    job.generation = id.generation;
    const job::JobSpec* spec = world_.book().spec_of(id.job);
    const KnownJob* known = world_.book().find(id.job);
    if (spec == nullptr || known == nullptr || !spec->checkpoint) return;
    const auto from = shim.spec.env.find("DTRAIN_RESTORE_FROM");
    const std::string path = from == shim.spec.env.end() ? "" : from->second;
    if (spec->checkpoint->restore == "never") {
      if (!path.empty()) violation(id.text() + " restores " + path + " although the job says never");
      return;
    }
    judge(id, path, *spec, *known, job);
    job.fruitless = path == job.path && !path.empty() ? job.fruitless + 1 : 1;
    job.path = path;
    job.restored[id.generation] = step_of(*spec, path);
  }

 private:
  struct History {
    Generation generation = 0;
    std::string path;                              // restored last
    std::uint32_t fruitless = 0;                   // generations in a row that restored it
    std::map<Generation, std::int64_t> restored;   // step, -1: from scratch
  };

  void judge(const AssignmentId& id, const std::string& path, const job::JobSpec& spec, const KnownJob& known, const History& job) {
    const auto& found = world_.checkpoints().in(spec.checkpoint->dir);
    const SimCheckpoint* chosen = nullptr;
    for (const SimCheckpoint& c : found)
      if (c.info.path == path) chosen = &c;
    if (!path.empty()) {
      if (chosen == nullptr) return violation(id.text() + " restores " + path + ", which does not exist");
      if (!chosen->good) return violation(id.text() + " restores " + path + ", which does not verify");
      if (stale(*chosen, id.job, job)) return violation(id.text() + " restores " + path + " of a branch that was left behind");
    }
    if (known.scratch_asked) return;
    for (const SimCheckpoint& c : found) {   // newest first
      if (chosen != nullptr && c.info.step <= chosen->info.step) break;
      if (!c.good || stale(c, id.job, job)) continue;
      if (c.info.path == job.path && job.fruitless >= 2) continue;
      if (job.fruitless >= 2 && !job.path.empty() && c.info.step >= step_of(spec, job.path)) continue;
      return violation(id.text() + " restores " + (path.empty() ? "nothing" : path) + " although " + c.info.path + " is good");
    }
  }

  // Written by a generation beyond the point where a later one restored.
  static bool stale(const SimCheckpoint& c, JobId id, const History& job) {
    if (c.job != id) return false;   // another job's, from before
    for (auto it = job.restored.upper_bound(c.generation); it != job.restored.end(); ++it)
      if (it->second < c.info.step) return true;
    return false;
  }

  std::int64_t step_of(const job::JobSpec& spec, const std::string& path) const {
    for (const SimCheckpoint& c : world_.checkpoints().in(spec.checkpoint->dir))
      if (c.info.path == path) return c.info.step;
    return -1;
  }

  std::map<JobId, History> jobs_;
};

}  // namespace

std::unique_ptr<Checker> restore_choice(WorldView& world) { return std::make_unique<RestoreChoice>(world); }

}  // namespace dtrain::sim
