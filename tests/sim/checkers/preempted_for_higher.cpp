// A job makes room only for one of higher priority, ends then, and pays nothing for it: neither restarts nor budget.
#include <algorithm>

#include "common/cluster/ledger.h"
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

using cluster::JobRecord;

class PreemptedForHigher final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "preempted_for_higher"; }

  void on_jobs(const wire::JobsReply&) override {
    const cluster::Ledger& ledger = world_.ledger();
    if (ledger.state().applied < applied_) return;
    applied_ = ledger.state().applied;
    for (const auto& [id, job] : ledger.state().jobs) {
      const KnownJob* known = world_.book().find(id);
      if (job.preempted.by != 0) look(job, ledger.find(job.preempted.by), known);
      if (known != nullptr) before_.insert_or_assign(id, Before{job, world_.now()});
    }
  }

 private:
  struct Before {
    JobRecord job;
    Instant at{};
  };

  void look(const JobRecord& job, const JobRecord* by, const KnownJob* known) {
    const std::string& name = job.spec.name;
    if (by != nullptr && by->spec.policy.priority <= job.spec.policy.priority)
      return violation("job " + name + " makes room for " + by->spec.name + ", whose priority is not higher");
    const bool ends = job.halt != cluster::Halt::none || job.goal != cluster::Goal::run || is_final(job.state) || job.needs_generation;
    if (!ends) return violation("job " + name + " runs on, though it makes room");
    const auto before = before_.find(job.id);
    if (before == before_.end() || known == nullptr) return;
    // A user's request may take effect only after the last look (seed 770).
    if (known->steered != 0 && known->steered_at >= before->second.at - world_.takes_effect()) return;
    const JobRecord& was = before->second.job;
    if (was.generation != job.generation || was.halt == cluster::Halt::recovery || !same_attempts(was, job)) return;
    // Lower counts are right: what was counted for the end of another task with its host was given back.
    if (job.restarts > was.restarts || job.budget_spent > was.budget_spent)
      violation("job " + name + " made room, and paid for it: " + std::to_string(was.restarts) + " restarts before, " +
                std::to_string(job.restarts) + " now");
  }

  // Meanwhile no attempt that counts was begun, and none was lost with its host.
  static bool same_attempts(const JobRecord& a, const JobRecord& b) {
    return std::equal(a.tasks.begin(), a.tasks.end(), b.tasks.begin(), b.tasks.end(), [](const auto& x, const auto& y) {
      return x.first == y.first && x.second.attempt == y.second.attempt && x.second.granted_attempt == y.second.granted_attempt &&
             x.second.place.node == y.second.place.node && x.second.lost == y.second.lost;
    });
  }

  std::uint64_t applied_ = 0;
  std::map<JobId, Before> before_;
};

}  // namespace

std::unique_ptr<Checker> preempted_for_higher(WorldView& world) { return std::make_unique<PreemptedForHigher>(world); }

}  // namespace dtrain::sim
