// A member that was stopped and runs again accuses no member of what it missed itself: right after it resumes, it
// suspects no fit member that no other member has suspected.
#include <map>

#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {
namespace {

constexpr Duration kRightAfter = 300ms;
constexpr Duration kHearsay = 60s;  // messages of others wait in its sockets meanwhile

class ResumedAccusesNobody final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "resumed_accuses_nobody"; }

  void disturbed(std::uint32_t slot) override {
    if (world_.truth(slot).paused) paused_[slot] = world_.now();
  }
  void changed(std::uint32_t slot, const gossip::Change& change) override {
    using enum gossip::ChangeKind;
    // A member that reads "down" or "dead" in a table accuses, too.
    if (change.kind == down || change.kind == dead) suspected_[change.id] = world_.now();
    if (change.kind != suspect) return;
    const Truth& truth = world_.truth(slot);
    const auto paused = paused_.find(slot);
    const auto said = suspected_.find(change.id);
    const bool news = said == suspected_.end() || world_.now() - said->second > kHearsay;
    suspected_[change.id] = world_.now();
    // To the stopped member a short stop looks like a slow network, and so does a cut that has ended since.
    if (!news || paused == paused_.end() || truth.calm_since != truth.resumed || truth.calm_since - paused->second < 5s ||
        world_.now() - truth.calm_since > kRightAfter || truth.started > paused->second)
      return;
    for (const std::uint32_t subject : world_.slots_of(change.id))
      if (world_.fit(subject) && world_.together(slot, subject))
        violation(world_.name(slot) + " was stopped until just now and suspects " + change.name + ": " + change.detail);
  }

 private:
  std::map<std::uint32_t, Instant> paused_;  // when the last stop began
  std::map<MemberId, Instant> suspected_;    // when some member last suspected it or declared it gone
};

}  // namespace

std::unique_ptr<Checker> resumed_accuses_nobody(WorldView& world) { return std::make_unique<ResumedAccusesNobody>(world); }

}  // namespace dtrain::sim::membership
