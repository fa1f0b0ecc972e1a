// A member that has declared another down or dead does not call it alive again while no process of that one has run
// for so long that no message of its own can still be under way.
#include <set>

#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {
namespace {

constexpr Duration kUnderWay = 15s;

class NobodyResurrected final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "nobody_resurrected"; }

  void started(std::uint32_t slot) override {
    declared_.resize(std::max<std::size_t>(declared_.size(), world_.slots()));
    declared_[slot].clear();
  }
  void changed(std::uint32_t slot, const gossip::Change& change) override {
    using enum gossip::ChangeKind;
    if (slot >= declared_.size()) return;
    if (change.kind == down || change.kind == dead) declared_[slot].insert(change.id);
    if (change.kind != alive && change.kind != restarted && change.kind != rebooted) return;
    if (!declared_[slot].contains(change.id)) return;
    const auto row = world_.seen(slot, change.id);  // news of an earlier restart of a member that is down may still arrive
    if (!row || (row->state != wire::MemberState::alive && row->state != wire::MemberState::suspect)) return;
    Instant last{};
    for (const std::uint32_t subject : world_.slots_of(change.id)) {
      if (world_.truth(subject).runs) return;
      last = std::max(last, world_.truth(subject).ended);
    }
    // Messages that came while the observer was stopped have waited in its kernel.
    const Truth& observer = world_.truth(slot);
    const Instant came = observer.resumed == world_.now() ? observer.stopped : world_.now();
    if (came - last > kUnderWay)
      violation(world_.name(slot) + " calls " + change.name + " alive, which it had declared and which ended " +
                std::to_string((world_.now() - last).count() / 1'000'000) + " ms ago: " + change.detail);
  }

 private:
  std::vector<std::set<MemberId>> declared_;  // by observer
};

}  // namespace

std::unique_ptr<Checker> nobody_resurrected(WorldView& world) { return std::make_unique<NobodyResurrected>(world); }

}  // namespace dtrain::sim::membership
