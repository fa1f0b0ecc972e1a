// A fact that a member publishes about itself reaches all members that are well within ten seconds. Measures how long that takes.
#include <deque>

#include "tests/sim/membership/checkers/checkers.h"
#include "tests/sim/membership/spread.h"

namespace dtrain::sim::membership {
namespace {

constexpr Duration kMostSpread = 10s;

class FactsReachAll final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "facts_reach_all"; }

  void fact_told(std::uint32_t slot, const wire::Fact& fact) override {
    std::erase_if(told_, [&](const Told& told) { return told.slot == slot && told.key == fact.key; });
    const Truth& truth = world_.truth(slot);
    if (!truth.fit(world_.now()) || !world_.network_whole()) return;
    told_.push_back({slot, truth.identity.id, fact.key, fact.value, Spread(world_, truth.cluster, slot)});
  }
  void changed(std::uint32_t slot, const gossip::Change& change) override {
    if (change.kind != gossip::ChangeKind::fact) return;
    for (Told& told : told_) {
      if (told.id != change.id || !told.known.waits_for(slot)) continue;
      const auto row = world_.seen(slot, told.id);
      const wire::Fact* fact = row ? row->facts[static_cast<std::size_t>(told.key)] : nullptr;
      if (fact == nullptr || fact->value != told.value || !told.known.hear(slot, world_.now())) continue;
      if (told.known.done()) world_.figures().fact_spread.add(world_.now() - told.known.begin());
    }
  }
  void ended(std::uint32_t slot, End) override { disturbed(slot); }
  void disturbed(std::uint32_t slot) override {
    std::erase_if(told_, [&](const Told& told) { return told.slot == slot; });
    for (Told& told : told_) told.known.excuse(slot);
  }
  void network_cut() override { told_.clear(); }
  void sampled() override {
    std::erase_if(told_, [](const Told& told) { return told.known.done(); });
    for (const Told& told : told_)
      if (world_.now() - told.known.begin() > kMostSpread)
        violation("a fact of " + world_.name(told.slot) + " is unknown to " + std::to_string(told.known.left()) + " members after " +
                  std::to_string(kMostSpread.count() / 1'000'000'000) + " s, such as " + world_.name(told.known.someone_left()));
  }

 private:
  struct Told {
    std::uint32_t slot;
    MemberId id;
    wire::FactKey key;
    std::string value;
    Spread known;
  };
  std::deque<Told> told_;
};

}  // namespace

std::unique_ptr<Checker> facts_reach_all(WorldView& world) { return std::make_unique<FactsReachAll>(world); }

}  // namespace dtrain::sim::membership
