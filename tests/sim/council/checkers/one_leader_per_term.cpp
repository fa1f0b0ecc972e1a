// An epoch, history and term, has at most one leader.
#include <map>
#include <utility>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class OneLeaderPerTerm final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "one_leader_per_term"; }

  void stepped(Slot slot) override {
    const raft::Raft& core = *world_.core(slot);
    if (core.role() != raft::Role::leader) return;
    const auto [at, fresh] = leaders_.try_emplace(std::pair(core.history(), core.term()), core.id());
    if (!fresh && at->second != core.id())
      violation(world_.name(slot) + " leads term " + std::to_string(core.term()) + " of history " + std::to_string(core.history().number) +
                ", and another has led it");
  }

 private:
  std::map<std::pair<raft::History, std::uint64_t>, MemberId> leaders_;
};

}  // namespace

std::unique_ptr<Checker> one_leader_per_term(WorldView& world) { return std::make_unique<OneLeaderPerTerm>(world); }

}  // namespace dtrain::sim::council
