// An exit counts in no budget where its host knew that the job stood still: another task of its generation there was frozen for want of a
// lease for a while, and the agent that saw both lived until the ledger heard of the exit.
#include <map>
#include <utility>

#include "tests/sim/attempt_ledger.h"
#include "tests/sim/checkers/checkers.h"
#include "tests/sim/ledger_checker.h"

namespace dtrain::sim {
namespace {

class FrozenCostsNothing final : public LedgerChecker {
 public:
  using LedgerChecker::LedgerChecker;
  std::string_view name() const override { return "frozen_costs_nothing"; }

  void on_effect(const node::Effect& effect) override { attempts_.effect(effect); }
  void on_event(const node::Event& event) override {
    const auto* froze = std::get_if<node::LeaseFroze>(&event);
    if (froze == nullptr) return;
    if (froze->frozen) frozen_.try_emplace(froze->id, world_.now());
    else frozen_.erase(froze->id);
  }
  void process_started(const SimShim& shim) override { attempts_.started(shim); }

  void process_ended(const SimShim& shim) override {
    const AssignmentId& id = shim.spec.id;
    frozen_.erase(id);
    if (!shim.exit || shim.exit->success() || shim.exit->unknown || !attempts_.own_end(shim)) return;
    const std::size_t number = world_.host_of(shim);
    const HostView& host = world_.host_view(number);
    if (host.node() == nullptr) return;
    for (const auto& [other, since] : frozen_) {
      const auto there = host.runner().shims().find(other);
      const bool stands = there != host.runner().shims().end() && there->second.running && there->second.frozen && !there->second.held;
      if (other.job == id.job && other.generation == id.generation && other.task != id.task && stands && world_.now() - since > kKnown)
        free_[{id, shim.attempt}] = {number, host.lives(), other};
    }
  }

 private:
  static constexpr Duration kKnown = 1s;
  struct Free {
    std::size_t host = 0;
    std::uint64_t life = 0;
    AssignmentId frozen;
  };

  void look(const cluster::Ledger& ledger, std::uint64_t) override {
    for (auto it = free_.begin(); it != free_.end();) {
      const auto& [exit, free] = *it;
      const auto& [id, attempt] = exit;
      const cluster::JobRecord* job = ledger.find(id.job);
      const auto task = job == nullptr ? decltype(job->tasks.begin()){} : job->tasks.find(id.task);
      const HostView& host = world_.host_view(free.host);
      const bool over = job == nullptr || task == job->tasks.end() || job->generation != id.generation || host.lives() != free.life ||
                        host.node() == nullptr || task->second.exit_attempt > attempt || task->second.lost;
      if (!over && task->second.exit_attempt < attempt) {
        ++it;  // the agent was not told yet
        continue;
      }
      if (!over && task->second.exit_attempt == attempt && task->second.spared_attempt != attempt)
        return violation("the exit of attempt " + std::to_string(attempt) + " of " + id.text() + " counts, though " + free.frozen.text() +
                         " was frozen beside it");
      it = free_.erase(it);
    }
  }

  AttemptLedger attempts_;
  std::map<AssignmentId, Instant> frozen_;
  std::map<std::pair<AssignmentId, AttemptNumber>, Free> free_;
};

}  // namespace

std::unique_ptr<Checker> frozen_costs_nothing(WorldView& world) { return std::make_unique<FrozenCostsNothing>(world); }

}  // namespace dtrain::sim
