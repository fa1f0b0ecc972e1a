// Two members of a history that have applied up to the same entry have the same state, however they came by
// it: by entries or by a snapshot, before or after a restart.
#include <algorithm>
#include <map>
#include <vector>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class StatesEqual final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "states_equal"; }

  void started(Slot slot) override { judge(slot); }
  void installed(Slot slot, const raft::StoredSnapshot& snapshot) override {
    if (world_.machine(slot).applied() != snapshot.index)
      violation(world_.name(slot) + " is given a snapshot of entry " + std::to_string(snapshot.index) + ", its state is of entry " +
                std::to_string(world_.machine(slot).applied()));
    judge(slot);
  }
  void applied(Slot slot, const raft::LogEntry&, const RegisterMachine::Outcome&) override { judge(slot); }
  // The new history begins with what the survivor has.
  void recovered(Slot slot, const raft::History& old) override {
    std::vector<std::uint64_t> trails = trails_[old];
    trails.resize(std::min<std::size_t>(trails.size(), kept(slot) + 1));
    trails_[world_.disk(slot).hard.history] = std::move(trails);
  }

 private:
  void judge(Slot slot) {
    const RegisterMachine& machine = world_.machine(slot);
    const std::uint64_t index = machine.applied();
    if (index == 0) return;
    std::vector<std::uint64_t>& trails = trails_[world_.core(slot)->history()];
    if (trails.size() <= index) trails.resize(index + 1);
    if (trails[index] == 0) trails[index] = machine.trail();
    if (trails[index] != machine.trail())
      violation("the state of " + world_.name(slot) + " after entry " + std::to_string(index) + " is not what another has there");
  }

  std::map<raft::History, std::vector<std::uint64_t>> trails_;  // by index
};

}  // namespace

std::unique_ptr<Checker> states_equal(WorldView& world) { return std::make_unique<StatesEqual>(world); }

}  // namespace dtrain::sim::council
