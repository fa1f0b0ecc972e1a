// A leader that no majority hears or answers steps down soon (check-quorum): its clients must not wait for
// it, nor its hosts obey it.
#include <algorithm>
#include <map>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class CutOffLeaderStepsDown final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "cut_off_leader_steps_down"; }

  void stepped(Slot slot) override {
    const bool leads = world_.core(slot)->role() == raft::Role::leader;
    if (!leads) led_since_.erase(slot);
    else led_since_.try_emplace(slot, world_.now());
  }
  void sampled() override {
    for (Slot slot = 0; slot < world_.slots(); ++slot) {
      const raft::Raft* core = world_.core(slot);
      const Truth& truth = world_.truth(slot);
      if (!core || truth.paused || core->role() != raft::Role::leader || truth.cut_off_since == kNever) continue;
      const auto led = led_since_.find(slot);
      Instant since = std::max({truth.cut_off_since, truth.started, truth.resumed});
      if (led != led_since_.end()) since = std::max(since, led->second);  // a majority elected it: reach is looked at now and then
      if (world_.now() - since > world_.options().check_quorum * 2 + kGrace)
        violation(world_.name(slot) + " still leads term " + std::to_string(core->term()) + ", cut off from every majority for " +
                  std::to_string((world_.now() - since).count() / 1'000'000) + " ms");
    }
  }

 private:
  static constexpr Duration kGrace = 7s;  // a message may come 3.5 s late, and so may its answer
  std::map<Slot, Instant> led_since_;
};

}  // namespace

std::unique_ptr<Checker> cut_off_leader_steps_down(WorldView& world) { return std::make_unique<CutOffLeaderStepsDown>(world); }

}  // namespace dtrain::sim::council
