// A member on the smaller side of a partition that is well otherwise, and has found that no majority answers,
// declares no member beyond the cut down or dead. Not judged are suspicions from before its side became the smaller
// one, a member that was down already and is called dead, and several partitions in a row: a verdict of the first
// does not count in the second.
#include <map>

#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {
namespace {

constexpr Duration kDecided = 12s;  // the longest suspicion and the probe before it

class MinorityDecidesNothing final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "minority_decides_nothing"; }

  void started(std::uint32_t slot) override {
    down_.erase(down_.lower_bound({slot, MemberId{}}), down_.lower_bound({slot + 1, MemberId{}}));
  }
  void network_cut() override {
    if (cuts_++ == 0) whole_before_ = world_.now() - healed_ >= Truth::kFit;
    since_ = world_.now();
  }
  void network_healed() override {
    cuts_ = 0;
    healed_ = world_.now();
  }
  void changed(std::uint32_t slot, const gossip::Change& change) override {
    using enum gossip::ChangeKind;
    if (change.kind == alive) down_.erase({slot, change.id});
    if (change.kind != down && change.kind != dead) return;
    if (!down_.try_emplace({slot, change.id}, world_.now()).second) return;
    const Truth& observer = world_.truth(slot);
    if (!world_.fit(slot) || world_.now() - since_ < kDecided || cuts_ != 1 || !whole_before_) return;
    for (const std::uint32_t subject : world_.slots_of(change.id)) {
      // A member that was unwell when the cut began may have been accused for that.
      const bool well = world_.fit(subject) && since_ - world_.truth(subject).calm_since >= Truth::kFit;
      if (!well || world_.together(slot, subject)) continue;
      std::uint32_t here = 0, all = 0;
      for (std::uint32_t other = 0; other < world_.slots(); ++other) {
        const Truth& truth = world_.truth(other);
        if (truth.cluster != observer.cluster || !truth.runs || truth.impostor) continue;
        ++all;
        here += world_.together(slot, other) ? 1 : 0;
      }
      if (here * 2 < all && without_quorum(slot))
        violation(world_.name(slot) + ", cut off with " + std::to_string(here) + " of " + std::to_string(all) + " members, declares " +
                  change.name + ": " + change.detail);
    }
  }

 private:
  bool without_quorum(std::uint32_t slot) const {
    std::uint32_t answer = 0, silent = 0;
    world_.each_seen(slot, [&](const gossip::MemberView& row) {
      // The host of a member that is down answers, so it was on this side when its agent stopped.
      answer += row.state == wire::MemberState::alive || row.state == wire::MemberState::down ? 1 : 0;
      silent += row.state == wire::MemberState::suspect ? 1 : 0;
    });
    for (auto at = down_.lower_bound({slot, MemberId{}}); at != down_.end() && at->first.first == slot; ++at)
      silent += at->second >= since_ ? 1 : 0;
    return answer < silent;
  }
  Instant since_{}, healed_{};  // when the last cut began and ended
  std::uint32_t cuts_ = 0;
  bool whole_before_ = false;
  std::map<std::pair<std::uint32_t, MemberId>, Instant> down_;  // observer, subject: since when
};

}  // namespace

std::unique_ptr<Checker> minority_decides_nothing(WorldView& world) { return std::make_unique<MinorityDecidesNothing>(world); }

}  // namespace dtrain::sim::membership
