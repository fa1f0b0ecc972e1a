// A generation restores the newest checkpoint that verifies. Never one that does not, never one of a branch that a
// later generation left behind, never "from scratch" while a good one lies there, unless the job file or a user says
// so. An older one is right only after two failures in a row without progress from the newer, or when the newer is on hosts that
// have been away for timing.restoreWait. On every host where a task of the generation begins, the checkpoint is there and good.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class RestoreChoice final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "restore_choice"; }

  void on_effect(const node::Effect& effect) override {
    if (const auto* verify = std::get_if<node::VerifyCheckpoint>(&effect); verify != nullptr && verify->token != 0) decides(verify->job);
    if (const auto* scan = std::get_if<node::ScanCheckpoints>(&effect); scan != nullptr && scan->token != 0) decides(scan->job);
  }

  // All tasks of a generation restore the same checkpoint; the first that starts shows the choice, and the first on
  // each host that the checkpoint is there.
  void process_started(const SimShim& shim) override {
    const AssignmentId& id = shim.spec.id;
    History& job = jobs_[id.job];
    const job::JobSpec* spec = world_.book().spec_of(id.job);
    const KnownJob* known = world_.book().find(id.job);
    if (id.generation < job.generation) return;
    const bool first = id.generation > job.generation;
    if (first) {
      job.hosts_before = std::exchange(job.hosts, {});
      job.began = world_.now();
    }
    job.generation = id.generation;
    job.last_start = world_.now();
    const std::size_t host = world_.host_of(shim);
    if (!job.hosts.insert(host).second) return;
    const auto from = shim.spec.env.find("DTRAIN_RESTORE_FROM");
    const std::string path = from == shim.spec.env.end() ? "" : from->second;
    // Choices are noted even before the user has heard of the job, because its later choices are judged by them
    // (three hosts, seed 2951).
    const bool heard_of = spec != nullptr && known != nullptr;
    if (heard_of && !spec->checkpoint) return;
    if (heard_of && spec->checkpoint->restore == "never") {
      if (!path.empty()) violation(id.text() + " restores " + path + " although the job says never");
      return;
    }
    if (heard_of && !path.empty()) is_here(id, host, path, *spec, job);
    if (!first) return;
    if (heard_of) judge(id, path, *spec, *known, job);
    job.fruitless = path == job.path && !path.empty() ? job.fruitless + 1 : 1;
    job.path = path;
    job.restored[id.generation] = step_of(path);
    job.decided[id.generation] = decided_[id.job].at;
  }

 private:
  struct History {
    Generation generation = 0;
    std::string path;                             // restored last
    std::uint32_t fruitless = 0;                  // generations in a row that restored it
    std::map<Generation, std::int64_t> restored;  // the step restored; -1: from scratch
    std::map<Generation, Instant> decided;        // when that was decided
    std::set<std::size_t> hosts, hosts_before;    // where one of the generation began; of the one before
    Instant began{};                              // the newest generation
    Instant last_start{};                         // of any process
  };

  void is_here(const AssignmentId& id, std::size_t host, const std::string& path, const job::JobSpec& spec, const History& job) {
    const SimCheckpoint* chosen = nullptr;
    for (const SimCheckpoint& c : world_.checkpoints(host).in(spec.checkpoint->dir))
      if (c.info.path == path) chosen = &c;
    if (chosen == nullptr) return violation(id.text() + " restores " + path + ", which does not exist on its host");
    // A checkpoint that decays after others restored it says nothing about the choice; a task that begins late sees for itself.
    if (!chosen->good && chosen->decayed <= job.began) return violation(id.text() + " restores " + path + ", which does not verify");
    if (id.generation > newest_restored(job) && stale(*chosen, id.job, job) && !nobody_knows_whose(*chosen, id.job, job))
      return violation(id.text() + " restores " + path + " of a branch that was left behind");
  }

  static Generation newest_restored(const History& job) { return job.restored.empty() ? 0 : job.restored.rbegin()->first; }

  void judge(const AssignmentId& id, const std::string& path, const job::JobSpec& spec, const KnownJob& known, const History& job) {
    if (known.scratch_asked) return;
    const std::int64_t step = step_of(path);
    const auto& [decided, last_start, known_then] = decided_[id.job];
    const bool waited = decided - last_start >= world_.restore_wait() && !path.empty();
    for (std::size_t host = 0; host < world_.hosts(); ++host)
      for (const SimCheckpoint& c : world_.checkpoints(host).in(spec.checkpoint->dir)) {  // newest first
        if (c.info.step <= step) break;
        if (!c.good || stale(c, id.job, job) || passed_over(c, id.job, job)) continue;
        if (c.info.path == job.path && job.fruitless >= 2) continue;
        if (job.fruitless >= 2 && !job.path.empty() && c.info.step >= step_of(job.path)) continue;
        const std::string what = id.text() + " restores " + (path.empty() ? "nothing" : path) + " although " + c.info.path;
        if (world_.alone() || world_.host_view(host).undisturbed_since() + kAnswers <= decided)
          return violation(what + " is good on " + world_.host_view(host).name());
        // The host cannot have reported the checkpoint since the choice was made.
        if (waited || world_.host_view(host).undisturbed_since() <= world_.now()) continue;
        if (is_known(known_then, c)) return violation(what + " is known, and was not waited for");
      }
  }

  // The choice cannot know what a host reports later (seed 80 of three hosts).
  void decides(JobId id) {
    const cluster::Ledger& ledger = world_.ledger();
    const cluster::JobRecord* job = ledger.find(id);
    if (job != nullptr) note_begun(*job);
    // The job is placed, with its choice, and has not begun: an agent that is back looks for the checkpoints that
    // exist (five hosts, seed 864).
    if (job != nullptr && !job->needs_generation && job->generation > jobs_[id].generation) return;
    Decision& decision = decided_[id];
    decision = {world_.now(), jobs_[id].last_start, {}};
    bool disturbed = false;
    for (std::size_t i = 0; i < world_.hosts(); ++i) disturbed = disturbed || world_.host_view(i).undisturbed_since() > world_.now();
    if (world_.alone() || !disturbed) return;
    if (job != nullptr) decision.known = job->checkpoints;
  }

  // All of the job's tasks may have been started although no process came into being.
  void note_begun(const cluster::JobRecord& job) {
    const bool began = std::ranges::any_of(job.tasks, [](const auto& t) { return t.second.granted_attempt >= t.second.first_attempt; });
    if (!began || job.generation == 0) return;
    History& known = jobs_[job.id];
    known.restored.try_emplace(job.generation, job.restored ? job.restored->step : -1);
    known.decided.try_emplace(job.generation, decided_[job.id].at);
  }

  static bool is_known(const std::vector<cluster::CheckpointRecord>& known, const SimCheckpoint& c) {
    return std::ranges::any_of(known, [&](const cluster::CheckpointRecord& r) {
      return r.info.path == c.info.path && r.info.digest == c.info.digest && cluster::is_good(r.state) &&
             std::ranges::any_of(r.places, [&](const auto& p) { return p.place == c.info.place; });
    });
  }

  // Written by a generation beyond the point where a later one restored. In a directory that hosts share nobody can tell who wrote
  // what appears after that was decided: a stateless task on a host that is cut off may (three hosts, seeds 725, 16860).
  bool stale(const SimCheckpoint& c, JobId id, const History& job) const {
    if (c.job != id) return false;  // another job's, from before
    for (auto it = job.restored.upper_bound(c.generation); it != job.restored.end(); ++it)
      if (it->second < c.info.step) return !shared(c.info.path) || c.written < job.decided.at(it->first);
    return false;
  }
  // The generation before may have written the checkpoint, as far as anyone could know: no host reported it, and none
  // of that generation's hosts could be asked (three hosts, seed 19786).
  bool nobody_knows_whose(const SimCheckpoint& c, JobId id, const History& job) {
    const Decision& decision = decided_[id];
    const auto away = [&](std::size_t host) { return world_.host_view(host).undisturbed_since() > decision.at; };
    return !job.restored.empty() && !job.hosts_before.empty() && std::ranges::all_of(job.hosts_before, away) &&
           std::ranges::none_of(decision.known, [&](const cluster::CheckpointRecord& r) {
             return r.generation >= job.restored.rbegin()->first || (r.info.path == c.info.path && r.info.digest == c.info.digest);
           });
  }
  // An older checkpoint of another job, without which a generation of this job began: whether a later one takes it is
  // open (three hosts, seed 1269).
  static bool passed_over(const SimCheckpoint& c, JobId id, const History& job) {
    return c.job != id && std::ranges::any_of(job.restored, [&](const auto& restored) { return restored.second < c.info.step; });
  }
  bool shared(const std::string& path) const {
    return world_.hosts() > 1 && &world_.checkpoints(0).in(dir_of(path)) == &world_.checkpoints(1).in(dir_of(path));
  }
  static std::string dir_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

  std::int64_t step_of(const std::string& path) const {
    for (std::size_t host = 0; host < world_.hosts(); ++host)
      for (const SimCheckpoint& c : world_.checkpoints(host).in(dir_of(path)))
        if (c.info.path == path) return c.info.step;
    return -1;
  }

  // Within this time an undisturbed host is seen by all and answers.
  static constexpr Duration kAnswers = 20s;

  struct Decision {
    Instant at{};
    Instant last_start{};  // until then: a host that is cut off may start one of the generation before later (three hosts, seed 359)
    std::vector<cluster::CheckpointRecord> known;  // the checkpoints known while a host was disturbed
  };
  std::map<JobId, Decision> decided_;  // the newest, or what a host with its tasks looked for since
  std::map<JobId, History> jobs_;
};

}  // namespace

std::unique_ptr<Checker> restore_choice(WorldView& world) { return std::make_unique<RestoreChoice>(world); }

}  // namespace dtrain::sim
