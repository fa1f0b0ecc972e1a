// No job restarts more often than its backoffLimit allows, no task after its failure threshold is reached, and the
// `restarts` that the agent shows is what the world saw: in-place restarts plus recoveries of the run.
//
// A crash of the agent can lose the count of a restart that had begun (its start is not flushed: a shim tells of it
// later, a host that went down cannot), so each such crash widens the bound by the job's tasks. Runs that a user
// restarted, suspended or scaled begin new budgets and are left out. So are jobs on hosts that were away: what was begun there
// unseen, and begun elsewhere by then, is counted once, and a failure there that was never told not at all (seed 931 of three hosts);
// and jobs that were there when a host was drained: to move costs nothing. So does making room for others: each time widens the bound.
// A host where a task cannot begin costs its job a new placement and no restart, though others of its generation run: each widens it, too
// (one host, seed 2044).
// The loss of a host that was stopped, or whose agent had ended, costs nothing: it widens the bound of the jobs that it had tasks of. So
// does each failure from 60 s before to 60 s after the loss of a host, or after an end with a host, which the ledger may hear of much
// later: it is taken to be a consequence. What ends with a host that is stopped, or gives up since another task is away, may count in
// nothing: consequences_cost_nothing judges it. And those with a task that was frozen for want of a lease, or whose host was away, so that
// it may have been taken for frozen: nothing is counted meanwhile.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/sim/attempt_ledger.h"
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class BudgetsRespected final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "budgets_respected"; }

  void on_effect(const node::Effect& effect) override { attempts_.effect(effect); }
  void on_event(const node::Event& event) override {
    if (const auto* froze = std::get_if<node::LeaseFroze>(&event)) jobs_[froze->id.job].stood_still = true;
    if (const auto* staged = std::get_if<node::Staged>(&event); staged != nullptr && !staged->work_dir) could_not_begin(staged->id);
    if (const auto* up = std::get_if<node::ShimUp>(&event); up != nullptr && !up->result) could_not_begin(up->id);
  }

  void stepped(std::size_t number) override {
    const node::Node* node = world_.host_view(number).node();
    if (node == nullptr) return;
    for (const auto& [host, lost] : node->ledger().state().lost)
      if (losses_.emplace(host, lost.index).second)
        for (const auto& [id, job] : node->ledger().state().jobs)
          for (const auto& known : job.tasks)
            if (known.second.lost && known.second.place.node == host) lost_task(jobs_[id], lost.ordered);
  }

  void process_started(const SimShim& shim) override {
    const AssignmentId& id = shim.spec.id;
    Counts& job = jobs_[id.job];
    job.last_start = world_.now();
    if (shim.lease) job.leased_on.insert(world_.host_of(shim));
    if (attempts_.ran_in_generation(id)) ++job.restarts;
    // A generation that replaces one in which nothing had started is a new placement, not a recovery.
    if (id.generation > job.generation) {
      if (job.generation != 0) ++job.recoveries;
      job.generation = id.generation;
    }
    attempts_.started(shim);
    const KnownJob* known = world_.book().find(id.job);
    const job::JobSpec* spec = world_.book().spec_of(id.job);
    if (known == nullptr || spec == nullptr || known->steered != 0 || known->may_move || runs_elsewhere(shim)) return;
    if (stood_still(id.job, known->known_since) || untold_failure(shim)) return;
    const std::uint32_t slack = known->crashes * job::total_replicas(*spec) + job.could_not_begin + job.may_be_free;
    const auto& policy = spec->policy;
    if (policy.backoff_limit && job.restarts + job.recoveries > *policy.backoff_limit + slack &&
        job.restarts + job.recoveries > *policy.backoff_limit + slack + preemptions(id.job))
      return violation("restart " + std::to_string(job.restarts + job.recoveries) + " of job " + std::to_string(id.job) + " begins with " +
                       id.text() + ", backoffLimit is " + std::to_string(*policy.backoff_limit));
    const std::uint32_t failures = job.failures[id.task];
    // Failures between the decision that a job makes room and its stop signal count nowhere (seed 2175).
    if (policy.failure_threshold.count != 0 && failures >= policy.failure_threshold.count + slack &&
        failures >= policy.failure_threshold.count + slack + preemptions(id.job))
      return violation(id.text() + " starts after " + std::to_string(failures) + " failures, the threshold is " +
                       std::to_string(policy.failure_threshold.count));
  }

  void process_ended(const SimShim& shim) override {
    if (!shim.exit || !attempts_.own_end(shim)) return;
    const AssignmentId& id = shim.spec.id;
    Counts& job = jobs_[id.job];
    ++job.ends;
    // Several ends at nearly the same time: the first may begin a halt, after which the others count nowhere. So may an exit 0 of a role
    // that restarts always (one host, seed 1135).
    const bool alone = world_.now() - job.last_end > kTogether;
    job.last_end = world_.now();
    if (shim.exit->success()) return;
    if (shim.exit->with_host) disturb(job, kNever);
    if (shim.left || shim.exit->with_host || world_.now() <= job.disturbed_until) {
      ++job.may_be_free;
      return;
    }
    job.failed_at.push_back(world_.now());
    if (alone) ++job.failures[id.task];
    job.last_failure[id.task] = {world_.host_of(shim), world_.now(), id.generation};
  }

  void on_jobs(const wire::JobsReply& jobs) override {
    for (const auto& view : jobs.jobs) {
      const KnownJob* known = world_.book().find(view.id);
      const auto it = jobs_.find(view.id);
      if (known == nullptr || known->steered != 0 || known->may_move || it == jobs_.end()) continue;
      const Counts& job = it->second;
      // The job was deleted meanwhile, so the ledger no longer shows how often it made room (one host, seed 2234).
      if (world_.ledger().find(view.id) == nullptr) continue;
      if (job.begun_elsewhere || !heard_all(known->known_since)) continue;
      const std::uint32_t observed = job.restarts + job.recoveries;
      const std::uint32_t shown = view.restarts + known->crashes + job.could_not_begin;
      if (shown < observed && world_.now() - job.last_start > kTogether && world_.all_reported() && shown + preemptions(view.id) < observed)
        return violation("job " + std::to_string(view.id) + " says " + std::to_string(view.restarts) + " restarts, " +
                         std::to_string(observed) + " were seen");
      if (is_final(view.state) && known->crashes == 0 && view.restarts > observed + job.ends)
        return violation("job " + std::to_string(view.id) + " says " + std::to_string(view.restarts) + " restarts, only " +
                         std::to_string(observed) + " were seen");
    }
  }

 private:
  static constexpr Duration kTogether = 2s;
  struct Counts;
  void lost_task(Counts& job, bool ordered) {
    job.may_be_free += ordered ? 1 : 0;
    disturb(job, world_.now() + cluster::kConsequence);
  }
  void disturb(Counts& job, Instant until) {
    const Instant since = world_.now() - cluster::kConsequence;
    job.may_be_free += static_cast<std::uint32_t>(std::erase_if(job.failed_at, [&](Instant at) { return at >= since; }));
    job.disturbed_until = std::max(job.disturbed_until, until);
  }
  // Counts only in a generation of which a task has started; otherwise the next generation is a placement like the first.
  void could_not_begin(const AssignmentId& id) {
    Counts& job = jobs_[id.job];
    if (job.generation == id.generation && !attempts_.ran_in_generation(id)) ++job.could_not_begin;
  }
  // True if a task of the job runs on another host under a number that this start shows to be superseded.
  bool runs_elsewhere(const SimShim& started) {
    const AssignmentId& id = started.spec.id;
    for (std::size_t i = 0; i < world_.hosts() && !world_.alone(); ++i) {
      const auto& shims = world_.host_view(i).runner().shims();
      for (auto it = shims.lower_bound(AssignmentId{id.job, 0, {}}); it != shims.end() && it->first.job == id.job; ++it)
        if (&it->second != &started && it->second.running && (it->first == id || it->first.generation < id.generation))
          jobs_[id.job].begun_elsewhere = true;
    }
    return jobs_[id.job].begun_elsewhere;
  }
  std::uint32_t preemptions(JobId id) const {
    const cluster::Ledger& ledger = world_.ledger();
    const cluster::JobRecord* job = ledger.find(id);
    return job == nullptr ? 0 : job->preemptions;
  }
  bool stood_still(JobId id, Instant since) {
    Counts& job = jobs_[id];
    for (std::size_t i = 0; i < world_.hosts() && !world_.alone() && !job.stood_still; ++i) {
      const HostView& host = world_.host_view(i);
      const bool away = host.node() == nullptr || host.undisturbed_since() > since;
      job.stood_still = away && job.leased_on.contains(i);
    }
    return job.stood_still;
  }
  // The task failed on a host that was away before it could report that, and was lost with it: the task was begun
  // elsewhere, or there in a later generation (seed 9403 of three hosts).
  bool untold_failure(const SimShim& started) {
    Counts& job = jobs_[started.spec.id.job];
    const auto last = job.last_failure.find(started.spec.id.task);
    if (world_.alone() || last == job.last_failure.end()) return false;
    if (last->second.host == world_.host_of(started) && last->second.generation == started.spec.id.generation) return false;
    const HostView& host = world_.host_view(last->second.host);
    if (host.node() == nullptr || host.undisturbed_since() > last->second.at - world_.takes_effect()) job.begun_elsewhere = true;
    return job.begun_elsewhere;
  }
  // True if no host was away since then: a host that is away may be taken for lost, and its unseen starts with it.
  bool heard_all(Instant since) const {
    for (std::size_t i = 0; i < world_.hosts() && !world_.alone(); ++i)
      if (world_.host_view(i).node() == nullptr || world_.host_view(i).undisturbed_since() > since) return false;
    return true;
  }
  struct Failure {
    std::size_t host = 0;
    Instant at{};
    Generation generation = 0;
  };
  struct Counts {
    std::uint32_t restarts = 0, recoveries = 0, ends = 0, could_not_begin = 0, may_be_free = 0;
    Generation generation = 0;
    std::map<TaskId, std::uint32_t> failures;
    std::map<TaskId, Failure> last_failure;
    std::vector<Instant> failed_at;   // of the failures that still count
    Instant disturbed_until{};        // failures until then may be consequences
    std::set<std::size_t> leased_on;  // hosts, of tasks that are over as well: a host that is cut off cannot tell that they are
    Instant last_end{}, last_start{};
    bool begun_elsewhere = false, stood_still = false;
  };
  AttemptLedger attempts_;
  std::map<JobId, Counts> jobs_;
  std::set<std::pair<NodeId, std::uint64_t>> losses_;  // the losses that are counted
};

}  // namespace

std::unique_ptr<Checker> budgets_respected(WorldView& world) { return std::make_unique<BudgetsRespected>(world); }

}  // namespace dtrain::sim
