// A member that runs, is awake and has been well for ten seconds is declared down or dead by no member that
// is as well as itself and on its side of every cut. Nor do such members pass on what unwell ones say.
#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {
namespace {

class NoFalsePositives final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "no_false_positives"; }

  void changed(std::uint32_t slot, const gossip::Change& change) override {
    const bool verdict = change.kind == gossip::ChangeKind::down || change.kind == gossip::ChangeKind::dead;
    if (!verdict && change.kind != gossip::ChangeKind::suspect) return;
    for (const std::uint32_t subject : world_.slots_of(change.id)) {
      const Truth& truth = world_.truth(subject);
      if (!truth.runs || truth.impostor) continue;
      const bool well = world_.fit(subject) && world_.together(slot, subject);
      if (well && world_.fit(slot)) {
        if (!verdict) {
          ++world_.figures().false_suspicions;
          continue;
        }
        ++world_.figures().false_positives;
        violation(world_.name(slot) + " declares " + change.name + " " + (change.kind == gossip::ChangeKind::down ? "down" : "dead") +
                  ", which has been well since " + std::to_string((world_.now() - truth.calm_since).count() / 1'000'000) +
                  " ms: " + change.detail);
      } else if (verdict) {
        ++world_.figures().unfit_verdicts;
      }
    }
  }
};

}  // namespace

std::unique_ptr<Checker> no_false_positives(WorldView& world) { return std::make_unique<NoFalsePositives>(world); }

}  // namespace dtrain::sim::membership
