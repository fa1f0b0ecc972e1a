// No job has failed, and none has spent more of its backoffLimit, than faults of its own and losses of hosts account for: what ended with
// a host that was stopped in order costs nothing, nor do tasks that gave up since the one that they watch was gone with its host, in order
// or lost, from 60 s before to 60 s after the ledger heard of that. Until then what was counted may yet be given back, but the job is not
// failed for it.
//
// A loss of a host may cost a restart of each task that it had, but for one whose agent was stopped or had ended. A host that came back,
// and vanished again before it could tell what had ended with it, is not yet suspected for some seconds: whoever fails a job then did not
// know better (five hosts, seed 126). Only jobs are judged whose tasks watch another one.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "common/job/restart.h"
#include "tests/sim/attempt_ledger.h"
#include "tests/sim/checkers/checkers.h"
#include "tests/sim/ledger_checker.h"

namespace dtrain::sim {
namespace {

class ConsequencesCostNothing final : public LedgerChecker {
 public:
  using LedgerChecker::LedgerChecker;
  std::string_view name() const override { return "consequences_cost_nothing"; }

  void on_effect(const node::Effect& effect) override { attempts_.effect(effect); }
  void on_event(const node::Event& event) override {
    if (const auto* up = std::get_if<node::Started>(&event)) started_[up->facts.name] = world_.now();
    const auto* refused = std::get_if<node::AttemptRefused>(&event);
    const auto job = refused == nullptr ? jobs_.end() : jobs_.find(refused->id.job);
    if (job != jobs_.end()) job->second.ends.push_back({refused->id, refused->attempt, world_.now(), 0});
  }
  void process_started(const SimShim& shim) override {
    attempts_.started(shim);
    if (!shim.script.watches.empty()) jobs_.try_emplace(shim.spec.id.job);
  }

  void process_ended(const SimShim& shim) override {
    const AssignmentId& id = shim.spec.id;
    const auto known = jobs_.find(id.job);
    if (known == jobs_.end()) return;
    Job& job = known->second;
    const job::JobSpec* spec = world_.book().spec_of(id.job);
    const auto role = spec == nullptr ? decltype(spec->roles.begin()){} : spec->roles.find(id.task.role);
    const bool given = spec != nullptr && role != spec->roles.end();
    job::RoleSpec always;
    always.restart_policy = job::RestartPolicy::always;
    const job::RestartPolicy policy = given ? role->second.restart_policy : job::RestartPolicy::always;
    if (shim.exit->success() && policy != job::RestartPolicy::always) return;
    End end{id, shim.attempt, world_.now()};
    end.host = world_.host_of(shim);
    const bool again = job::may_restart(given ? role->second : always, *shim.exit);
    if (shim.exit->with_host) end.why = again ? Why::with_host : Why::own;
    else if (shim.exit->unknown && shim.exit->cause == "host went down") end.why = Why::crash;
    else if (!attempts_.own_end(shim) && shim.script.hang == 0) return;  // asked for; or by its watchdog
    else if (shim.left && again) end.why = Why::gave_up;
    if (end.why == Why::gave_up) end.cause = job.newest_of(id.generation, shim.script.watches);
    job.ends.push_back(std::move(end));
  }

 private:
  static constexpr Duration kSurely = 50s;  // of the 60: reports take their time
  static constexpr Duration kSoonAgain = 8s;
  static constexpr std::size_t kNone = ~std::size_t{0};
  enum class Why : unsigned char { own, with_host, crash, gave_up };
  struct End {
    AssignmentId id;
    AttemptNumber attempt = 0;
    Instant at{};
    std::size_t host = 0;
    Why why = Why::own;
    std::size_t cause = kNone;  // of one that gave up: the end of the task that it watches
    Instant heard = kNever;     // by the ledger: that it ended with its host, or that this was lost
    bool lost = false;
  };
  struct Job {
    std::vector<End> ends;
    std::set<std::tuple<AssignmentId, NodeId, AttemptNumber>> losses;
    bool failed = false, unknown = false;

    std::size_t newest_of(Generation generation, const std::string& task) const {
      for (std::size_t i = ends.size(); i-- != 0;)
        if (ends[i].id.generation == generation && ends[i].id.task.text() == task) return i;
      return kNone;
    }
  };

  void look(const cluster::Ledger& ledger, std::uint64_t) override {
    for (auto& [id, job] : jobs_) {
      const cluster::JobRecord* record = !job.unknown ? ledger.find(id) : nullptr;
      if (record == nullptr) continue;
      hear(job, *record, ledger.state().lost);
      const bool failed = record->state == cluster::JobState::failed;
      const auto& limit = record->spec.policy.backoff_limit;
      if (failed && !std::exchange(job.failed, true)) judge_end(job, *record);
      job.failed = failed;
      if (limit && !is_final(record->state) && record->budget_spent > faults(job, true) + job.losses.size())
        return violation("job " + std::to_string(id) + " has spent " + std::to_string(record->budget_spent) + " restarts of its budget, " +
                         std::to_string(faults(job, true)) + " faults and " + std::to_string(job.losses.size()) + " losses were seen");
    }
  }
  void forget() override {
    for (auto& [id, job] : jobs_) job.unknown = true;
  }

  void hear(Job& job, const cluster::JobRecord& record, const std::map<NodeId, cluster::LostHost>& lost_hosts) {
    for (const auto& [task, t] : record.tasks)
      if (const auto host = lost_hosts.find(t.place.node); t.lost && !(host != lost_hosts.end() && host->second.ordered))
        job.losses.insert({{record.id, record.generation, task}, t.place.node, t.first_attempt});
    for (End& end : job.ends) {
      if (end.heard != kNever || (end.why != Why::with_host && end.why != Why::crash)) continue;
      const auto task = record.tasks.find(end.id.task);
      const bool known = record.generation == end.id.generation && task != record.tasks.end();
      const bool lost = known && (task->second.lost || (task->second.ended && task->second.exit_attempt < end.attempt));
      const bool told = known && task->second.exit_attempt >= end.attempt && task->second.exit && task->second.exit->with_host;
      if (!lost && !told) continue;
      end.heard = world_.now();
      end.lost = lost;
    }
  }

  bool costs_nothing(const Job& job, const End& end, bool once_heard) const {
    if (end.why == Why::with_host) return true;
    if (end.why == Why::crash) return end.lost;  // the loss costs
    if (end.why == Why::own || end.cause == kNone) return false;
    const End& cause = job.ends[end.cause];
    if (cause.why == Why::own || cause.why == Why::gave_up || (cause.why == Why::crash && !cause.lost)) return false;
    const Instant heard = cause.heard == kNever ? world_.now() : cause.heard;
    if (once_heard && cause.heard == kNever) return false;
    return heard - end.at <= kSurely && end.at - heard <= kSurely;
  }
  std::size_t faults(const Job& job, bool once_heard) const {
    return static_cast<std::size_t>(std::ranges::count_if(job.ends, [&](const End& end) { return !costs_nothing(job, end, once_heard); }));
  }

  bool vanished_again(const End& end) const {
    const HostView& host = world_.host_view(end.host);
    const auto started = started_.find(host.name());
    const bool was_back = started != started_.end() && started->second > end.at && world_.now() - started->second <= kSoonAgain;
    return end.why == Why::with_host && end.heard == kNever && host.node() == nullptr && was_back;
  }

  void judge_end(const Job& job, const cluster::JobRecord& record) {
    const auto& policy = record.spec.policy;
    const std::size_t own = faults(job, false), losses = job.losses.size();
    const bool used_up = policy.backoff_limit && own + losses > *policy.backoff_limit;
    if (policy.active_deadline || used_up || (own != 0 && record.reason.find("is used up") == std::string::npos)) return;
    if (std::ranges::any_of(job.ends, [&](const End& end) { return vanished_again(end); })) return;
    violation("job " + std::to_string(record.id) + " has failed (" + record.reason + "), though nothing but " + std::to_string(own) +
              " faults and " + std::to_string(losses) + " losses of hosts count");
  }

  AttemptLedger attempts_;
  std::map<JobId, Job> jobs_;
  std::map<std::string, Instant> started_;  // by host: its agent, last
};

}  // namespace

std::unique_ptr<Checker> consequences_cost_nothing(WorldView& world) { return std::make_unique<ConsequencesCostNothing>(world); }

}  // namespace dtrain::sim
