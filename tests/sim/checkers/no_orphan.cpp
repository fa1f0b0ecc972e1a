// No process runs that no job wants. After a job ended (cleanPodPolicy Running or All) or was cancelled, suspended or
// deleted, its processes are gone within the grace time, and after a delete its files, too. A removed job has no living shim.
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

constexpr Duration kSlack = 6s;  // on top of the grace period: commits, orders, removal of files

class NoOrphan final : public HostChecker {
 public:
  using HostChecker::HostChecker;
  std::string_view name() const override { return "no_orphan"; }

  void on_jobs(const wire::JobsReply&) override { look(kSlack); }
  void at_end() override { look(kSlack); }

  void on_effect(const node::Effect& effect) override {
    const auto* removal = std::get_if<node::RemoveJobFiles>(&effect);
    if (removal == nullptr) return;
    for (const auto& [id, shim] : host().runner().shims())
      if (id.job == removal->job && shim.alive) return violation("the files of " + id.text() + " are removed under its living shim");
  }

 private:
  void look(Duration slack) {
    for (const auto& [id, shim] : host().runner().shims()) {
      if (!shim.running && !shim.alive) continue;
      const KnownJob* job = world_.book().find(id.job);
      if (world_.ledger().find(id.job) == nullptr && (job == nullptr || job->gone)) {
        if (overdue(shim.started_at, slack + 10s)) return violation(id.text() + " lives although its job is not known to the agent");
        continue;
      }
      if (!shim.running || !must_end(*job)) continue;
      if (overdue(std::max(job->state_since, shim.started_at), slack + grace(id.job)))
        return violation(id.text() + " runs although its job is " + job->state);
    }
    for (const auto& [id, job] : world_.book().jobs()) {
      if (job.gone && host().runner().has_files(id)) {
        if (overdue(since(gone_since_, id), slack + 10s))
          return violation("files of job " + std::to_string(id) + " are left although it was removed");
      }
    }
  }

  Instant since(std::map<JobId, Instant>& when, JobId id) { return when.try_emplace(id, world_.now()).first->second; }

  bool overdue(Instant from, Duration within) const {
    return host().node() != nullptr && world_.now() - std::max(from, host().undisturbed_since()) > within;
  }

  Duration grace(JobId id) const {
    const job::JobSpec* spec = world_.book().spec_of(id);
    return spec == nullptr ? 30s : spec->policy.stop_grace_period;
  }

  bool must_end(const KnownJob& job) const {
    if (job.state == "Cancelled" || job.state == "Suspended") return true;
    const job::JobSpec* spec = world_.book().spec_of(job.id);
    return is_final(job.state) && spec != nullptr && spec->policy.clean_pod_policy != job::CleanPodPolicy::none;
  }

  std::map<JobId, Instant> gone_since_;
};

}  // namespace

std::unique_ptr<Checker> no_orphan(WorldView& world, std::size_t host) { return std::make_unique<NoOrphan>(world, host); }

}  // namespace dtrain::sim
