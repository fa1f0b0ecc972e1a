// Within 5 s after everything was healed there is a leader that serves, and then never none for so long.
#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class LeaderAfterHealing final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "leader_after_healing"; }

  void healed() override { healed_ = led_ = world_.now(); }
  void sampled() override {
    if (healed_ == kNever) return;
    for (Slot slot = 0; slot < world_.slots(); ++slot) {
      const raft::Raft* core = world_.core(slot);
      if (core && core->ready() && world_.truth(slot).cut_off_since == kNever) {
        led_ = world_.now();
        return;
      }
    }
    if (world_.now() - led_ > kWithin)
      violation("nobody leads " + std::to_string((world_.now() - healed_).count() / 1'000'000) +
                " ms after everything was healed, for 5 s");
  }

 private:
  static constexpr Duration kWithin = 5s;
  Instant healed_ = kNever, led_{};
};

}  // namespace

std::unique_ptr<Checker> leader_after_healing(WorldView& world) { return std::make_unique<LeaderAfterHealing>(world); }

}  // namespace dtrain::sim::council
