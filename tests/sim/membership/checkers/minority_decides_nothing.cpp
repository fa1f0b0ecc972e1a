// Who is on the smaller side of a partition, and well otherwise, declares nobody beyond it down or dead. What was suspected
// while its side was still the larger one is not judged.
#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {
namespace {

constexpr Duration kDecided = 12s;  // the longest suspicion and the probe before it

class MinorityDecidesNothing final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "minority_decides_nothing"; }

  void network_cut() override { since_ = world_.now(); }
  void changed(std::uint32_t slot, const gossip::Change& change) override {
    if (change.kind != gossip::ChangeKind::down && change.kind != gossip::ChangeKind::dead) return;
    const Truth& observer = world_.truth(slot);
    if (!world_.fit(slot) || world_.now() - since_ < kDecided) return;
    for (const std::uint32_t subject : world_.slots_of(change.id)) {
      if (!world_.fit(subject) || world_.together(slot, subject)) continue;
      std::uint32_t here = 0, all = 0;
      for (std::uint32_t other = 0; other < world_.slots(); ++other) {
        const Truth& truth = world_.truth(other);
        if (truth.cluster != observer.cluster || !truth.runs || truth.impostor) continue;
        ++all;
        here += world_.together(slot, other) ? 1 : 0;
      }
      if (here * 2 < all)
        violation(world_.name(slot) + ", cut off with " + std::to_string(here) + " of " + std::to_string(all) + " members, declares " +
                  change.name + ": " + change.detail);
    }
  }

 private:
  Instant since_{};  // the last cut began
};

}  // namespace

std::unique_ptr<Checker> minority_decides_nothing(WorldView& world) { return std::make_unique<MinorityDecidesNothing>(world); }

}  // namespace dtrain::sim::membership
