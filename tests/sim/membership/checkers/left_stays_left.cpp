// A member that has heard that another left for good never gives that one any other state again, unless a copy of it
// runs elsewhere and speaks for a later life.
#include <set>

#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {
namespace {

class LeftStaysLeft final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "left_stays_left"; }

  void started(std::uint32_t slot) override {
    left_.resize(std::max<std::size_t>(left_.size(), world_.slots()));
    left_[slot].clear();
  }
  void ended(std::uint32_t slot, End how) override {
    if (how == End::left) gone_for_good_.insert(world_.truth(slot).identity.id);
  }
  void changed(std::uint32_t slot, const gossip::Change& change) override {
    using enum gossip::ChangeKind;
    if (slot >= left_.size()) return;
    if (change.kind == left) left_[slot].insert(change.id);
    const bool other = change.kind == alive || change.kind == suspect || change.kind == down || change.kind == dead;
    if (other && gone_for_good_.contains(change.id) && left_[slot].contains(change.id) && world_.slots_of(change.id).size() == 1)
      violation(world_.name(slot) + " knew that " + change.name + " had left, and changes its mind: " + change.detail);
  }

 private:
  std::set<MemberId> gone_for_good_;
  std::vector<std::set<MemberId>> left_;  // by observer
};

}  // namespace

std::unique_ptr<Checker> left_stays_left(WorldView& world) { return std::make_unique<LeftStaysLeft>(world); }

}  // namespace dtrain::sim::membership
