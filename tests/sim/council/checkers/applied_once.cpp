// A command is carried out once, however often its request was repeated.
#include <map>
#include <utility>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class AppliedOnce final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "applied_once"; }

  void applied(Slot slot, const raft::LogEntry& entry, const RegisterMachine::Outcome& outcome) override {
    if (outcome.done != RegisterMachine::Done::executed) return;
    const auto [at, fresh] = index_of_.emplace(std::pair(world_.core(slot)->history(), outcome.request), entry.index);
    if (!fresh && at->second != entry.index)
      violation("request " + std::to_string(outcome.request) + " is carried out by entry " + std::to_string(entry.index) +
                " and was by entry " + std::to_string(at->second));
  }

 private:
  std::map<std::pair<raft::History, std::uint64_t>, std::uint64_t> index_of_;
};

}  // namespace

std::unique_ptr<Checker> applied_once(WorldView& world) { return std::make_unique<AppliedOnce>(world); }

}  // namespace dtrain::sim::council
