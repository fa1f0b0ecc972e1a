// When a leader says that an entry is committed, a majority of the voters has that very entry on its disk,
// and it is of the leader's own term or before such a one.
#include <map>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class MajorityHoldsCommitted final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "majority_holds_committed"; }

  void stepping(Slot slot, const raft::Input&) override { before_ = world_.core(slot)->commit(); }
  void stepped(Slot slot) override {
    const raft::Raft& core = *world_.core(slot);
    if (core.role() != raft::Role::leader || core.commit() == before_ || world_.any_disk_lost()) return;
    const std::uint64_t index = core.commit(), term = core.term_at(index);
    if (term != 0 && term != core.term())
      return violation(world_.name(slot) + " leads term " + std::to_string(core.term()) + " and commits entry " + std::to_string(index) +
                       " of term " + std::to_string(term) + " by itself");
    std::size_t holders = 0;
    for (const MemberId& id : core.configuration().voters)
      if (const auto voter = world_.slot_of(id); voter && holds(world_.disk(*voter), index, term)) ++holders;
    if (holders < core.configuration().voters.size() / 2 + 1)
      violation(world_.name(slot) + " commits entry " + std::to_string(index) + " of term " + std::to_string(term) + ", which " +
                std::to_string(holders) + " of " + std::to_string(core.configuration().voters.size()) + " voters have");
  }

 private:
  static bool holds(const raft::Stored& disk, std::uint64_t index, std::uint64_t term) {
    if (disk.snapshot && disk.snapshot->index >= index) return true;
    if (disk.log.empty() || index < disk.log.front().index || index > disk.log.back().index) return false;
    return disk.log[index - disk.log.front().index].term == term;
  }

  std::uint64_t before_ = 0;
};

}  // namespace

std::unique_ptr<Checker> majority_holds_committed(WorldView& world) { return std::make_unique<MajorityHoldsCommitted>(world); }

}  // namespace dtrain::sim::council
