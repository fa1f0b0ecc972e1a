// A job runs with as many tasks as its user wants, or, after its first generation, with fewer: at least minReplicas of each role. One
// without a gang has at least one of each.
#include <algorithm>

#include "common/cluster/job_transition.h"
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class EnoughTasks final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "enough_tasks"; }

  void on_jobs(const wire::JobsReply&) override {
    const cluster::Ledger ledger = world_.ledger();
    for (const auto& [id, job] : ledger.state().jobs) {
      const KnownJob* known = world_.book().find(id);
      const job::JobSpec* spec = world_.book().spec_of(id);
      if (!cluster::can_leave(job) || job.generation == 0 || known == nullptr || spec == nullptr) continue;
      for (const auto& [name, role] : spec->roles) look(job, name, role, *known);
    }
  }

 private:
  void look(const cluster::JobRecord& job, const std::string& name, const job::RoleSpec& role, const KnownJob& known) {
    const auto has = static_cast<std::uint32_t>(std::ranges::count_if(job.tasks, [&](const auto& t) { return t.first.role == name; }));
    const auto scaled = known.shrunk.find(name);
    const std::uint32_t asked = scaled == known.shrunk.end() ? role.replicas : scaled->second.first;
    const std::uint32_t least = job.spec.policy.gang ? std::min(role.min_replicas, asked) : 1;
    if (has < least) return wrong(job, name, has, "at least", least);
    if (scaled != known.shrunk.end()) return;  // the number wanted depends on when the request took effect
    if (has > role.replicas) return wrong(job, name, has, "at most", role.replicas);
    if (job.generation == 1 && job.spec.policy.gang && has != role.replicas) wrong(job, name, has, "at first", role.replicas);
  }

  void wrong(const cluster::JobRecord& job, const std::string& role, std::uint32_t has, const char* how, std::uint32_t bound) {
    violation("job " + std::to_string(job.id) + " (" + job.spec.name + ") runs with " + std::to_string(has) + " tasks of " + role +
              ", not " + how + " " + std::to_string(bound));
  }
};

}  // namespace

std::unique_ptr<Checker> enough_tasks(WorldView& world) { return std::make_unique<EnoughTasks>(world); }

}  // namespace dtrain::sim
