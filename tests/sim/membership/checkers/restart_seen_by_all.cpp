// A member that starts, for the first time or again, is seen alive in its new life by all who are well; and
// whoever knew its older life says `restarted` (or `rebooted`), however short the gap was. Measures joins and
// restarts.
#include <deque>
#include <map>

#include "tests/sim/membership/checkers/checkers.h"
#include "tests/sim/membership/spread.h"

namespace dtrain::sim::membership {
namespace {

constexpr Duration kMostRestart = 30s;

class RestartSeenByAll final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "restart_seen_by_all"; }

  void started(std::uint32_t slot) override {
    drop(slot);
    const Truth& truth = world_.truth(slot);
    std::uint64_t& life = lives_[truth.identity.id];
    // An older data directory repeats lives: nobody can tell.
    const bool first = life == 0, repeated = truth.identity.life <= life;
    life = std::max(life, truth.identity.life);
    if (truth.impostor || repeated || !world_.network_whole()) return;
    Start start{slot, truth.identity.id, truth.identity.life, first, Spread(world_, truth.cluster, slot), {}, {}};
    start.heard.resize(world_.slots());
    start.said.resize(world_.slots());
    start.knew.resize(world_.slots());
    for (std::uint32_t other = 0; other < world_.slots(); ++other) {
      if (!start.seen.waits_for(other)) continue;
      const auto row = world_.seen(other, start.id);
      start.knew[other] = row && row->identity != nullptr && row->identity->life < start.life;
    }
    if (start.seen.asked() > 0) starts_.push_back(std::move(start));
  }
  void ended(std::uint32_t slot, End) override {
    drop(slot);
    excuse(slot);
  }
  void disturbed(std::uint32_t slot) override {
    drop(slot);
    excuse(slot);
  }
  void network_cut() override { starts_.clear(); }

  void changed(std::uint32_t slot, const gossip::Change& change) override {
    using enum gossip::ChangeKind;
    const bool said = change.kind == restarted || change.kind == rebooted;
    if (!said && change.kind != alive) return;
    for (Start& start : starts_) {
      if (start.id != change.id || slot >= start.said.size()) continue;
      if (said) start.said[slot] = true;
      const auto row = world_.seen(slot, start.id);
      if (!row || row->state != wire::MemberState::alive || row->identity == nullptr || row->identity->life != start.life) continue;
      if (!start.seen.hear(slot, world_.now())) continue;
      start.heard[slot] = true;
      if (!start.seen.done()) continue;
      const Duration took = world_.now() - start.seen.begin();
      (start.first ? world_.figures().join : world_.figures().restart).add(took);
      ++(start.first ? world_.figures().joins : world_.figures().restarts);
    }
  }

  void sampled() override {
    for (const Start& start : starts_) {
      for (std::uint32_t slot = 0; slot < start.heard.size(); ++slot)
        if (start.heard[slot] && start.knew[slot] && !start.said[slot])
          violation(world_.name(slot) + " sees life " + std::to_string(start.life) + " of " + world_.name(start.slot) +
                    " and never said that it had restarted");
      if (!start.seen.done() && world_.now() - start.seen.begin() > kMostRestart)
        violation(world_.name(start.slot) + " has been up for " + std::to_string(kMostRestart.count() / 1'000'000'000) + " s and " +
                  std::to_string(start.seen.left()) + " members do not see it, such as " + world_.name(start.seen.someone_left()));
    }
    std::erase_if(starts_, [](const Start& start) { return start.seen.done(); });
  }

 private:
  struct Start {
    std::uint32_t slot;
    MemberId id;
    std::uint64_t life;
    bool first;
    Spread seen;
    std::vector<bool> heard, said, knew = {};
  };
  void drop(std::uint32_t slot) {
    std::erase_if(starts_, [&](const Start& start) { return start.slot == slot; });
  }
  void excuse(std::uint32_t slot) {
    for (Start& start : starts_) {
      start.seen.excuse(slot);
      if (slot < start.heard.size()) start.heard[slot] = false;
    }
  }
  std::map<MemberId, std::uint64_t> lives_;
  std::deque<Start> starts_;
};

}  // namespace

std::unique_ptr<Checker> restart_seen_by_all(WorldView& world) { return std::make_unique<RestartSeenByAll>(world); }

}  // namespace dtrain::sim::membership
