// The memory of a member grows with the number of members that ever were and with nothing else.
#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {
namespace {

constexpr std::size_t kBase = 512 << 10, kEach = 2 << 10;

class MemoryBounded final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "memory_bounded"; }

  void sampled() override {
    const std::size_t most = kBase + kEach * world_.slots();
    for (std::uint32_t slot = 0; slot < world_.slots(); ++slot)
      if (world_.truth(slot).runs && world_.memory_bytes(slot) > most)
        violation(world_.name(slot) + " holds " + std::to_string(world_.memory_bytes(slot)) + " bytes; " + std::to_string(most) +
                  " are granted for " + std::to_string(world_.slots()) + " members");
  }
};

}  // namespace

std::unique_ptr<Checker> memory_bounded(WorldView& world) { return std::make_unique<MemoryBounded>(world); }

}  // namespace dtrain::sim::membership
