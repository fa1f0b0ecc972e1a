// Once one member has declared a member that crashed, all who are well know it within five seconds, but for those that
// judge nobody since they may be cut off (rule 18): to them a verdict of others is an accusation. And when
// nothing else is wrong at all, a vanished host is known to all within 12 s. Measures how long it takes from
// the crash and from the first declaration, for killed processes and for vanished hosts.
#include <algorithm>
#include <deque>
#include <set>

#include "tests/sim/membership/checkers/checkers.h"
#include "tests/sim/membership/spread.h"

namespace dtrain::sim::membership {
namespace {

constexpr Duration kSpreadMost = 5s;
constexpr Duration kQuietMost = 12s;
constexpr std::uint32_t kQuietLeast = 8;  // members; fewer cannot confirm a suspicion
constexpr Duration kTogether = 10s;       // crashes within that time
constexpr std::uint32_t kMany = 8;        // this many crashes, if more than an eighth of all, are a mass crash
constexpr Duration kForgotten = 120s;     // no member declared it: checker convergence judges that

class CrashKnownToAll final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "crash_known_to_all"; }

  void ended(std::uint32_t slot, End how) override {
    disturb();
    for (Crash& crash : crashes_) excuse(crash, slot);
    sweep();
    ends_.push_back(world_.now());
    while (world_.now() - ends_.front() > kTogether) ends_.pop_front();
    if (ends_.size() > std::max<std::size_t>(3, world_.slots() / kMany)) crashes_.clear();  // after a mass crash too few witnesses are left
    if (how != End::killed && how != End::vanished) return;
    ++world_.figures().crashes;
    const Truth& truth = world_.truth(slot);
    if (!truth.fit(world_.now()) || !world_.network_whole()) return;
    crashes_.push_back(
        {slot, truth.identity.id, how, Spread(world_, truth.cluster, slot), Spread(world_, truth.cluster, slot), quiet(slot)});
    for (const std::uint32_t frozen : frozen_) judges_nobody(crashes_.back(), frozen);
  }
  void started(std::uint32_t slot) override {
    disturb();
    frozen_.erase(slot);
    std::erase_if(crashes_, [&](const Crash& crash) { return crash.slot == slot; });
  }
  void disturbed(std::uint32_t slot) override {
    disturb();
    for (Crash& crash : crashes_) excuse(crash, slot);
    sweep();
  }
  void network_cut() override { crashes_.clear(); }

  void changed(std::uint32_t slot, const gossip::Change& change) override {
    using enum gossip::ChangeKind;
    if (change.kind == frozen) {
      frozen_.insert(slot);
      for (Crash& crash : crashes_) judges_nobody(crash, slot);
      sweep();
    }
    if (change.kind == thawed) frozen_.erase(slot);
    if (change.kind != suspect && change.kind != down && change.kind != dead) return;
    bool news = false;
    for (Crash& crash : crashes_) {
      if (crash.id != change.id) continue;
      if (crash.suspected.hear(slot, world_.now()) && crash.suspected.done() && crash.how == End::vanished)
        world_.figures().silent_suspect.add(world_.now() - crash.suspected.begin());
      if (change.kind == suspect || !crash.declared.hear(slot, world_.now()) || !crash.declared.done()) continue;
      const bool killed = crash.how == End::killed;
      (killed ? world_.figures().gone_detect : world_.figures().silent_detect).add(world_.now() - crash.declared.begin());
      (killed ? world_.figures().gone_spread : world_.figures().silent_spread).add(world_.now() - crash.declared.first());
      news = true;
    }
    if (news) sweep();
  }

  void sampled() override {
    for (const Crash& crash : crashes_)
      if (crash.quiet && crash.how == End::vanished && world_.now() - crash.declared.begin() > kQuietMost)
        violation(world_.name(crash.slot) + " vanished at " + text(crash.declared.begin()) + ", nothing else was wrong, and " +
                  std::to_string(crash.declared.left()) + " do not know it, such as " + world_.name(crash.declared.someone_left()));
    for (const Crash& crash : crashes_)
      if (crash.declared.heard_of() && world_.now() - crash.declared.first() > kSpreadMost)
        violation(world_.name(crash.slot) + " crashed at " + text(crash.declared.begin()) + "; first declared at " +
                  text(crash.declared.first()) + "; " + std::to_string(crash.declared.left()) + " do not know, such as " +
                  world_.name(crash.declared.someone_left()));
    std::erase_if(crashes_, [&](const Crash& crash) { return world_.now() - crash.declared.begin() > kForgotten; });
  }

 private:
  struct Crash {
    std::uint32_t slot;
    MemberId id;
    End how;
    Spread suspected, declared;
    bool quiet;  // nothing else has been wrong since well before it
  };
  bool quiet(std::uint32_t crashed) const {
    if (!world_.lossless()) return false;
    std::uint32_t fit = 0;
    for (std::uint32_t slot = 0; slot < world_.slots(); ++slot) {
      const Truth& truth = world_.truth(slot);
      if (slot == crashed || truth.cluster != world_.truth(crashed).cluster) continue;
      if (truth.runs ? !world_.fit(slot) : world_.now() - truth.ended < kForgotten / 4) return false;
      fit += truth.runs ? 1 : 0;
    }
    return fit >= kQuietLeast;
  }
  void disturb() {
    for (Crash& crash : crashes_) crash.quiet = false;
  }
  static std::string text(Instant at) { return std::to_string(at.time_since_epoch().count() / 1'000'000) + " ms"; }
  static void excuse(Crash& crash, std::uint32_t slot) {
    crash.suspected.excuse(slot);
    crash.declared.excuse(slot);
  }
  static void judges_nobody(Crash& crash, std::uint32_t slot) {
    if (!crash.quiet) excuse(crash, slot);  // if nothing else is wrong there is no excuse
  }
  void sweep() {
    std::erase_if(crashes_, [](const Crash& crash) { return crash.declared.done(); });
  }
  std::deque<Crash> crashes_;
  std::deque<Instant> ends_;
  std::set<std::uint32_t> frozen_;
};

}  // namespace

std::unique_ptr<Checker> crash_known_to_all(WorldView& world) { return std::make_unique<CrashKnownToAll>(world); }

}  // namespace dtrain::sim::membership
