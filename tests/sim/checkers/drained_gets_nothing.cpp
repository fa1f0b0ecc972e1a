// No task is placed on a host while it is drained, in the order of the ledger's entries.
#include <set>
#include <tuple>

#include "tests/sim/checkers/checkers.h"
#include "tests/sim/ledger_checker.h"

namespace dtrain::sim {
namespace {

class DrainedGetsNothing final : public LedgerChecker {
 public:
  using LedgerChecker::LedgerChecker;
  std::string_view name() const override { return "drained_gets_nothing"; }

  void on_reply(const SentRequest& sent, const wire::Message&) override { any_ = any_ || sent.type == wire::MessageType::drain; }

 private:
  // A placement of a task: begins when the task gets the place, ends with its end there.
  using Place = std::tuple<JobId, Generation, TaskId, AttemptNumber>;
  struct Drained {
    std::uint64_t drain = 0;  // index of the entry by which it began
    std::set<Place> there;    // at the last look
  };

  void forget() override { before_.clear(); }

  void look(const cluster::Ledger& ledger, std::uint64_t) override {
    if (any_) look(ledger.state());
  }

  void look(const cluster::LedgerState& state) {
    std::map<NodeId, Drained> now;
    for (const auto& [id, drain] : state.drained) now[id].drain = drain.index;
    for (const auto& [id, job] : state.jobs)
      for (const auto& [task, t] : job.tasks) {
        const auto drained = now.find(t.place.node);
        if (!t.ended && drained != now.end()) drained->second.there.insert({id, job.generation, task, t.first_attempt});
      }
    for (const auto& [id, drained] : now) {
      const auto before = before_.find(id);
      if (before == before_.end() || before->second.drain != drained.drain) continue;  // drained since the last look
      for (const Place& place : drained.there)
        if (!before->second.there.contains(place))
          return violation("job " + std::to_string(std::get<0>(place)) + " got a place for " + std::get<2>(place).text() +
                           " on a host that is drained since entry " + std::to_string(drained.drain));
    }
    before_ = std::move(now);
  }

  bool any_ = false;
  std::map<NodeId, Drained> before_;
};

}  // namespace

std::unique_ptr<Checker> drained_gets_nothing(WorldView& world) { return std::make_unique<DrainedGetsNothing>(world); }

}  // namespace dtrain::sim
