// Some time after everything was healed all members of the newest history have the same configuration, which
// has as many voters as it should, the same log and the same state.
#include <utility>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class Converges final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "converges"; }

  void at_rest() override {
    const raft::Raft* leader = nullptr;
    Slot leads = 0;
    for (Slot slot = 0; slot < world_.slots(); ++slot) {
      const raft::Raft* core = world_.core(slot);
      if (core && core->ready() && (!leader || std::pair(leader->history(), leader->term()) < std::pair(core->history(), core->term())))
        leader = core, leads = slot;
    }
    if (!leader) return violation("nobody leads at the end");
    if (leader->commit() != leader->last_index()) return violation(world_.name(leads) + " leads and has not committed its whole log");
    for (const auto* members : {&leader->configuration().voters, &leader->configuration().learners})
      for (const MemberId& id : *members) judge(leads, id);
  }

 private:
  void judge(Slot leads, const MemberId& id) {
    const raft::Raft& leader = *world_.core(leads);
    const auto slot = world_.slot_of(id);
    if (!slot || !world_.core(*slot)) return violation("a member of the configuration does not run at the end");
    const raft::Raft& core = *world_.core(*slot);
    if (core.leader() != leader.id()) violation(world_.name(*slot) + " does not follow " + world_.name(leads));
    if (core.mute() != raft::Mute::none) violation(world_.name(*slot) + " does not vote at the end: " + to_string(core.mute()));
    if (!(core.configuration() == leader.configuration()))
      violation(world_.name(*slot) + " has another configuration than " + world_.name(leads));
    if (core.commit() != leader.commit() || world_.machine(*slot).applied() != leader.commit() ||
        world_.machine(*slot).trail() != world_.machine(leads).trail())
      violation(world_.name(*slot) + " has applied " + std::to_string(world_.machine(*slot).applied()) + " entries, " + world_.name(leads) +
                " " + std::to_string(world_.machine(leads).applied()) + ", or others");
  }
};

}  // namespace

std::unique_ptr<Checker> converges(WorldView& world) { return std::make_unique<Converges>(world); }

}  // namespace dtrain::sim::council
