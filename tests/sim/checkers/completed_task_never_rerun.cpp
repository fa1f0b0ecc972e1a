// A task that exited 0 by itself is complete: it never runs again, in no later generation and after no crash, unless
// its role restarts always, a user asked for it, or it is a rank whose gang begins again.
#include <algorithm>

#include "tests/sim/attempt_ledger.h"
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class CompletedTaskNeverRerun final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "completed_task_never_rerun"; }

  // A stop that was sent before the agent was told of the end (it was paused meanwhile), or before it looked at what it was told while its
  // ledger was not current (a stop had begun in an earlier life, seed 8821): to the agent that end may be an obedient one, and the task
  // runs again when its job is resumed (seed 10965).
  void on_effect(const node::Effect& effect) override {
    attempts_.effect(effect);
    const auto* stop = std::get_if<node::SignalTask>(&effect);
    Completion* done = stop == nullptr ? nullptr : completion_of(stop->id);
    if (done != nullptr) done->uncertain = true;
  }
  void on_event(const node::Event& event) override {
    const auto* exited = std::get_if<node::AttemptExited>(&event);
    Completion* done = exited == nullptr ? nullptr : completion_of(exited->id);
    if (done != nullptr) done->agent_lives = true;
  }

  void process_started(const SimShim& shim) override {
    const AssignmentId& id = shim.spec.id;
    attempts_.started(shim);
    const auto done = completed_.find({id.job, id.task});
    if (done == completed_.end()) return;
    const KnownJob* job = world_.book().find(id.job);
    const bool lost = done->second.uncertain && job != nullptr && (job->steered != 0 || job->reboots != 0 || preempted(id.job));
    const bool asked = job != nullptr && asked_again(*job, id.task, done->second.at);
    const cluster::JobRecord* record = world_.ledger().find(id.job);  // its size is the one that a user has scaled it to
    const bool with_gang = record != nullptr && id.generation > done->second.generation && job::is_collective(record->spec) &&
                           job::is_rank_role(record->spec, id.task.role);
    if (lost || asked || with_gang || unheard_of(done->second, shim) || lost_unheard(done->second, id)) {
      completed_.erase(done);
      return;
    }
    violation(id.text() + " attempt " + std::to_string(shim.attempt) + " started although the task had completed in generation " +
              std::to_string(done->second.generation));
  }

  // If the agent died before it committed an end, only the shim's record tells of that end. A host that went down may
  // have lost the record; and if a stop was under way, the record does not tell an own end from an obedient one.
  void agent_dies() override {
    for (auto& [task, done] : completed_) done.agent_lives = false;
    for (auto& [task, done] : completed_)
      if (world_.now() - done.at < world_.takes_effect()) done.uncertain = true;
  }

  void process_ended(const SimShim& shim) override {
    if (!shim.exit || !shim.exit->success() || !attempts_.own_end(shim)) return;
    const AssignmentId& id = shim.spec.id;
    const job::JobSpec* spec = world_.book().spec_of(id.job);
    if (spec == nullptr || superseded(shim)) return;
    const auto role = spec->roles.find(id.task.role);
    if (role == spec->roles.end() || role->second.restart_policy == job::RestartPolicy::always) return;
    completed_.try_emplace({id.job, id.task}, Completion{id.generation, shim.attempt, world_.now(), false, false, world_.host_of(shim)});
  }

 private:
  static constexpr Duration kLost = 6s;
  bool preempted(JobId id) const {
    return std::ranges::any_of(world_.ledger().events(), [&](const auto& e) { return e.job == id && e.type == "job.preempted"; });
  }
  struct Completion {
    Generation generation = 0;
    AttemptNumber attempt = 0;
    Instant at{};
    bool uncertain = false;
    bool agent_lives = false;  // the agent that was told of the end still lives
    std::size_t host = 0;
  };
  // The task ran on on a host that was lost, and was begun elsewhere meanwhile: the ledger takes no notice of its end (seed 292).
  bool superseded(const SimShim& shim) const {
    const AssignmentId& id = shim.spec.id;
    for (std::size_t i = 0; i < world_.hosts() && !world_.alone(); ++i) {
      const auto& shims = world_.host_view(i).runner().shims();
      for (auto it = shims.lower_bound(AssignmentId{id.job, id.generation, {}}); it != shims.end() && it->first.job == id.job; ++it)
        if (it->first.task == id.task && it->second.attempt > shim.attempt) return true;
    }
    return false;
  }
  // The task's host was away before it could report the end, and the task was begun elsewhere, or on that host again once
  // the host was lost (seeds 353 and 704): no agent died since, or it was away for longer than a killed agent is.
  bool unheard_of(const Completion& done, const SimShim& shim) const {
    if (world_.alone() || (world_.host_of(shim) == done.host && !done.agent_lives && world_.now() - done.at < kLost)) return false;
    const HostView& host = world_.host_view(done.host);
    return host.node() == nullptr || host.undisturbed_since() > done.at - world_.takes_effect();
  }
  // According to the ledger the task's host was lost before it reported that end, even if some other agent died
  // meanwhile (seed 138 of three hosts).
  bool lost_unheard(const Completion& done, const AssignmentId& id) const {
    const cluster::Ledger& ledger = world_.ledger();
    const cluster::JobRecord* job = ledger.find(id.job);
    if (job == nullptr) return false;
    const auto task = job->tasks.find(id.task);
    if (task == job->tasks.end() || task->second.exit_attempt >= done.attempt) return false;
    bool lost = false;  // its host was lost since the task was last seen running
    for (const cluster::LedgerEvent& event : ledger.events()) {
      if (event.job != id.job || event.object != job->spec.name + "/" + id.task.text()) continue;
      if (event.type == "task.lost" || event.type == "task.running") lost = event.type == "task.lost";
    }
    return lost;
  }
  Completion* completion_of(const AssignmentId& id) {
    const auto done = completed_.find({id.job, id.task});
    return done != completed_.end() && done->second.generation == id.generation ? &done->second : nullptr;
  }

  // Since then a user asked for a new run, or gave the task up and asked for another of its number.
  bool asked_again(const KnownJob& job, const TaskId& task, Instant when) const {
    const Instant completed = when - world_.takes_effect();
    const auto shrunk = job.shrunk.find(task.role);
    if (shrunk != job.shrunk.end() && shrunk->second.first <= task.index && shrunk->second.second >= completed) return true;
    const auto restarted = job.tasks_restarted.find(task.text());
    return job.restarted >= completed || (restarted != job.tasks_restarted.end() && restarted->second >= completed);
  }

  AttemptLedger attempts_;
  std::map<std::pair<JobId, TaskId>, Completion> completed_;
};

}  // namespace

std::unique_ptr<Checker> completed_task_never_rerun(WorldView& world) { return std::make_unique<CompletedTaskNeverRerun>(world); }

}  // namespace dtrain::sim
