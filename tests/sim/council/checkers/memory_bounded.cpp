// A log does not grow without end: what is behind the snapshot, and what a member holds in memory, is
// bounded.
#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class MemoryBounded final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "memory_bounded"; }

  void sampled() override {
    const raft::RaftOptions& options = world_.options();
    const std::uint64_t most = options.log_entries + options.proposals + kEntries;
    for (Slot slot = 0; slot < world_.slots(); ++slot) {
      const raft::Raft* core = world_.core(slot);
      if (!core) continue;
      if (core->last_index() - core->snapshot_index() > most)
        violation(world_.name(slot) + " has " + std::to_string(core->last_index() - core->snapshot_index()) +
                  " entries behind its snapshot; " + std::to_string(most) + " are granted");
      if (core->memory_bytes() > kBase + kEntry * most)
        violation(world_.name(slot) + " holds " + std::to_string(core->memory_bytes()) + " bytes");
    }
  }

 private:
  static constexpr std::uint64_t kEntries = 64;  // of leaders and configurations, which are never refused
  static constexpr std::size_t kBase = 1 << 20, kEntry = 256;
};

}  // namespace

std::unique_ptr<Checker> memory_bounded(WorldView& world) { return std::make_unique<MemoryBounded>(world); }

}  // namespace dtrain::sim::council
