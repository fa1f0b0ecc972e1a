// No task gets a place on a host between its loss and its own report of being back, in the order of the ledger's entries.
#include "tests/sim/checkers/checkers.h"
#include "tests/sim/ledger_checker.h"

namespace dtrain::sim {
namespace {

class LostHostRests final : public LedgerChecker {
 public:
  using LedgerChecker::LedgerChecker;
  std::string_view name() const override { return "lost_host_rests"; }

 private:
  void look(const cluster::Ledger& ledger, std::uint64_t before) override {
    const cluster::LedgerState& state = ledger.state();
    for (const auto& [node, lost] : state.lost)
      for (const auto& [id, job] : state.jobs)
        for (const auto& [task, t] : job.tasks)
          if (t.place.node == node && t.placed > std::max(lost.index, before))
            return violation("job " + std::to_string(id) + " got a place for " + task.text() + " on " + lost.name + " by entry " +
                             std::to_string(t.placed) + ", which is lost since entry " + std::to_string(lost.index));
  }
};

}  // namespace

std::unique_ptr<Checker> lost_host_rests(WorldView& world) { return std::make_unique<LostHostRests>(world); }

}  // namespace dtrain::sim
