// Once faults are over and every task that can end does so soon and well, every job comes to its end, or has a reason
// to go on or to wait that the world knows to be true. That a job can never run here is said of none that could on empty hosts.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "common/cluster/shrink.h"
#include "tests/sim/checkers/checkers.h"
#include "tests/sim/job_factory.h"

namespace dtrain::sim {
namespace {

class EveryJobProgresses final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "every_job_progresses"; }

  void on_jobs(const wire::JobsReply& jobs) override {
    last_ = jobs;
    for (const auto& view : jobs.jobs)
      if (is_final(view.state) && lives(view.id)) left_running_ = world_.now();
    if (world_.calm()) what_never_fits();
  }

  void at_rest() override {
    for (std::size_t i = 0; i < world_.hosts(); ++i)
      if (world_.host_view(i).node() == nullptr) return violation("the agent is down although faults are over");
    const bool room_taken = std::any_of(last_.jobs.begin(), last_.jobs.end(),
                                        [&](const auto& v) { return runs_for_ever(v) || (is_final(v.state) && lives(v.id)); });
    what_never_fits();
    for (const auto& view : last_.jobs) {
      if (is_final(view.state) || view.state == "Suspended" || runs_for_ever(view)) continue;
      if (room_freed_lately() && changed_lately(view.id)) continue;
      if (!lives(view.id) && (room_taken || nothing_to_restore(view.id) || never_fits(view)) && !view.reason.empty()) continue;
      if (!lives(view.id) && refused(view.id)) continue;
      return violation("job " + std::to_string(view.id) + " (" + view.name + ") is stuck in " + view.state +
                       (view.reason.empty() ? "" : ": " + view.reason));
    }
  }

 private:
  // Tasks that cleanPodPolicy None left running hold their room for good.
  bool lives(JobId id) const {
    for (std::size_t i = 0; i < world_.hosts(); ++i)
      for (const auto& [assignment, shim] : world_.host_view(i).runner().shims())
        if (assignment.job == id && shim.running) return true;
    return false;
  }

  // A role that restarts always keeps its job running for good, where its success would have decided.
  bool runs_for_ever(const wire::JobView& view) const {
    const job::JobSpec* spec = world_.book().spec_of(view.id);
    if (spec == nullptr || view.state == "Pending") return false;
    return std::any_of(spec->roles.begin(), spec->roles.end(),
                       [](const auto& role) { return role.second.restart_policy == job::RestartPolicy::always; });
  }

  // A job that would run for ever reached its activeDeadlineSeconds, or one that was left running was deleted; and who waited for its
  // room has only just begun (seeds 2295, 9495).
  bool room_freed_lately() const {
    if (world_.now() - left_running_ < kLately) return true;
    return std::ranges::any_of(last_.jobs, [&](const auto& v) { return is_final(v.state) && runs_for_ever(v) && changed_lately(v.id); });
  }
  bool changed_lately(JobId id) const {
    const KnownJob* known = world_.book().find(id);
    return known != nullptr && world_.now() - known->state_since < kLately;
  }

  // True if a host whose prolog failed refuses the job, which it does for longer than a calm lasts.
  bool refused(JobId id) const {
    const cluster::JobRecord* job = world_.ledger().find(id);
    return job != nullptr && !world_.ledger().refusals(*job, world_.ledger().state().elapsed).empty();
  }

  // The job ran, and before it could begin again a user asked for more than the cluster has.
  bool never_fits(const wire::JobView& view) const {
    const KnownJob* known = world_.book().find(view.id);
    if (known == nullptr || known->steered == 0) return false;
    return view.reason.find(kNeverFits) != std::string::npos || view.reason.find(kNotNow) != std::string::npos;
  }

  // The claim is judged only once the coordinator has heard all hosts for a while.
  void what_never_fits() {
    const cluster::LedgerState& state = world_.ledger().state();
    if (!state.drained.empty() || !state.lost.empty()) return;
    for (std::size_t i = 0; i < world_.hosts(); ++i)
      if (world_.host_view(i).node() == nullptr || world_.now() - world_.host_view(i).undisturbed_since() < kHeard) return;
    for (const auto& [id, job] : state.jobs) {
      const bool whole = job.goal == cluster::Goal::run && job.needs_generation && job.nothing_runs();
      if (!whole || job.reason.find(kNeverFits) == std::string::npos) continue;
      // A job that is resumed or run again begins with all tasks that are wanted; a job that made room goes on as it
      // was (one host, seed 1407).
      const bool goes_on = job.run_started || job.preempted.by != 0;
      if (fits_empty_hosts(goes_on ? job.spec : cluster::whole_spec(job)))
        return violation("job " + std::to_string(id) + " (" + job.spec.name + ") is said never to fit, and would: " + job.reason);
    }
  }

  // Places the largest tasks first, each on the first host with room. If that succeeds, the job fits; if not, it may fit nevertheless.
  bool fits_empty_hosts(const job::JobSpec& spec) const {
    struct Host {
      std::uint64_t cpu_millis = kHostCpuMillis, memory_bytes = kHostMemoryBytes;
      std::uint32_t gpus = kHostGpus;
    };
    std::vector<Host> hosts(world_.hosts());
    std::vector<job::Resources> tasks;
    for (const auto& [name, role] : spec.roles) {
      if (!role.node_selector.empty() || role.anti_affinity != "none") return false;
      tasks.insert(tasks.end(), role.replicas, role.resources);
    }
    const auto size = [](const job::Resources& r) { return std::pair(r.gpus, r.cpu_millis); };
    std::ranges::sort(tasks, std::ranges::greater(), size);
    for (const job::Resources& task : tasks) {
      const auto host = std::ranges::find_if(hosts, [&](const Host& h) {
        return h.cpu_millis >= task.cpu_millis && h.memory_bytes >= task.memory_bytes && h.gpus >= task.gpus;
      });
      if (host == hosts.end()) return false;
      host->cpu_millis -= task.cpu_millis;
      host->memory_bytes -= task.memory_bytes;
      host->gpus -= task.gpus;
    }
    return true;
  }

  // Every checkpoint the job once had is lost, or of a branch that it left behind (three hosts, seed 3171), where what others had written
  // into its directory counts as older than its first generation (474): it waits for a user to say "from scratch".
  bool nothing_to_restore(JobId id) const {
    const job::JobSpec* spec = world_.book().spec_of(id);
    if (spec == nullptr || !spec->checkpoint || spec->checkpoint->restore != "auto") return false;
    const cluster::JobRecord* job = world_.ledger().find(id);
    const auto stale = [&](const SimCheckpoint& c) { return job != nullptr && job->is_stale(c.job == id ? c.generation : 0, c.info.step); };
    for (std::size_t i = 0; i < world_.hosts(); ++i)
      for (const SimCheckpoint& c : world_.checkpoints(i).in(spec->checkpoint->dir))
        if (c.good && !stale(c)) return false;
    return true;
  }

  static constexpr const char* kNeverFits = "can never run here: ";
  static constexpr const char* kNotNow = "cannot run now: ";  // a host is drained
  static constexpr Duration kLately = 30s, kHeard = 45s;

  wire::JobsReply last_;
  Instant left_running_{};  // when a task of an ended job was last left running
};

}  // namespace

std::unique_ptr<Checker> every_job_progresses(WorldView& world) { return std::make_unique<EveryJobProgresses>(world); }

}  // namespace dtrain::sim
