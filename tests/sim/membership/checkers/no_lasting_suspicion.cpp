// No suspicion stays: within a minute it is refuted or decided, unless failure decisions are frozen.
#include <map>
#include <set>

#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {
namespace {

constexpr Duration kMostSuspected = 60s;

class NoLastingSuspicion final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "no_lasting_suspicion"; }

  void ended(std::uint32_t slot, End) override {
    since_.erase(since_.lower_bound({slot, MemberId{}}), since_.lower_bound({slot + 1, MemberId{}}));
    frozen_.erase(slot);
  }
  void disturbed(std::uint32_t slot) override { begin_anew(slot); }
  void changed(std::uint32_t slot, const gossip::Change& change) override {
    using enum gossip::ChangeKind;
    switch (change.kind) {
      case suspect: since_.try_emplace({slot, change.id}, world_.now()); return;
      case alive:
      case down:
      case dead:
      case left: since_.erase({slot, change.id}); return;
      case frozen: frozen_.insert(slot); return;
      case thawed:
        frozen_.erase(slot);
        begin_anew(slot);
        return;
      default: return;
    }
  }
  void sampled() override {
    for (const auto& [key, since] : since_) {
      if (world_.now() - since <= kMostSuspected || frozen_.contains(key.first) || !world_.fit(key.first)) continue;
      const auto row = world_.seen(key.first, key.second);
      if (row && row->state == wire::MemberState::suspect)
        violation(world_.name(key.first) + " has suspected " + row->identity->name + " for a minute");
    }
  }

 private:
  void begin_anew(std::uint32_t slot) {
    for (auto at = since_.lower_bound({slot, MemberId{}}); at != since_.end() && at->first.first == slot; ++at) at->second = world_.now();
  }
  std::map<std::pair<std::uint32_t, MemberId>, Instant> since_;  // observer, subject
  std::set<std::uint32_t> frozen_;
};

}  // namespace

std::unique_ptr<Checker> no_lasting_suspicion(WorldView& world) { return std::make_unique<NoLastingSuspicion>(world); }

}  // namespace dtrain::sim::membership
