// No member has a member of another cluster in its table, although clusters meet at addresses that change hands, and
// none has a member that never existed.
#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {
namespace {

class ClustersStayApart final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "clusters_stay_apart"; }

  void changed(std::uint32_t slot, const gossip::Change& change) override {
    if (change.kind == gossip::ChangeKind::fact || change.id.none() || change.kind == gossip::ChangeKind::conflict) return;
    const auto subjects = world_.slots_of(change.id);
    if (subjects.empty()) {
      violation(world_.name(slot) + " speaks of " + change.name + ", which never existed");
    } else if (world_.truth(subjects.front()).cluster != world_.truth(slot).cluster) {
      violation(world_.name(slot) + " counts " + change.name + " of another cluster among its members");
    }
  }
};

}  // namespace

std::unique_ptr<Checker> clusters_stay_apart(WorldView& world) { return std::make_unique<ClustersStayApart>(world); }

}  // namespace dtrain::sim::membership
