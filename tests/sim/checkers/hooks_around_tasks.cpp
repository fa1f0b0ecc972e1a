// Where hosts have a prolog and an epilog: no task of a job starts on a host before the job's prolog ended there with 0, since the host's
// boot and since its last epilog there; no epilog begins while anything of its job runs there; of a job never two run at a time.
#include <map>
#include <set>

#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class HooksAroundTasks final : public HostChecker {
 public:
  using HostChecker::HostChecker;
  std::string_view name() const override { return "hooks_around_tasks"; }

  void on_event(const node::Event& event) override {
    if (const auto* started = std::get_if<node::Started>(&event)) {
      if (started->facts.boot_id != boot_) prepared_.clear();
      boot_ = started->facts.boot_id;
    } else if (const auto* ended = std::get_if<node::HookEnded>(&event)) {
      const auto it = running_.find(ended->token);
      if (it == running_.end()) return;
      if (it->second.prolog && ended->exit.success()) prepared_.insert(it->second.job);
      running_.erase(it);
    }
  }
  void on_effect(const node::Effect& effect) override {
    const auto* hook = std::get_if<node::RunHook>(&effect);
    if (hook == nullptr || hook->user || !hook->env.contains("DTRAIN_HOOK")) return;  // another program of a job, or of a step of staging
    const Hook begun{std::stoull(hook->env.at("DTRAIN_JOB_ID")), hook->env.at("DTRAIN_HOOK") == "prolog"};
    const std::string what = (begun.prolog ? "the prolog of job " : "the epilog of job ") + std::to_string(begun.job);
    for (const auto& [token, other] : running_)
      if (other.job == begun.job) return violation(what + " began beside another hook of it");
    running_[hook->token] = begun;
    if (begun.prolog) return;
    prepared_.erase(begun.job);
    for (const auto& [id, shim] : host().runner().shims())
      if (id.job == begun.job && shim.running) return violation(what + " began while " + id.text() + " ran");
  }
  void process_started(const SimShim& shim) override {
    if (world_.host_hooks() && !prepared_.contains(shim.spec.id.job))
      violation(shim.spec.id.text() + " started, and its prolog had not ended with 0");
  }
  void agent_dies() override { running_.clear(); }

 private:
  struct Hook {
    JobId job = 0;
    bool prolog = false;
  };
  std::map<std::uint64_t, Hook> running_;  // by token, in this life of the agent
  std::set<JobId> prepared_;
  std::string boot_;
};

}  // namespace

std::unique_ptr<Checker> hooks_around_tasks(WorldView& world, std::size_t host) { return std::make_unique<HooksAroundTasks>(world, host); }

}  // namespace dtrain::sim
