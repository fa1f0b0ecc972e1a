// The ledger is its log: a Node that starts from what the disk holds has the same ledger, byte for byte, as the one
// that wrote it.
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class ReplayEqual final : public HostChecker {
 public:
  using HostChecker::HostChecker;
  std::string_view name() const override { return "replay_equal"; }

  void on_event(const node::Event& event) override {
    // Only the next start finds out what a failed commit left on the disk.
    if (std::holds_alternative<node::PersistFailed>(event)) failed_ = true;
    if (std::holds_alternative<node::Started>(event)) {
      failed_ = false;
      committing_ = 0;
    }
    if (std::holds_alternative<node::Persisted>(event)) --committing_;
  }
  void on_effect(const node::Effect& effect) override {
    if (std::holds_alternative<node::Persist>(effect)) ++committing_;
  }
  void agent_dies() override { compare(); }
  void at_rest() override { compare(); }
  void at_end() override { compare(); }

 private:
  void compare() {
    // One voter of several does not know by itself how much of its log is committed: see copies_equal.
    if (!world_.alone() || host().node() == nullptr || failed_ || committing_ != 0) return;
    if (host().replayed()->ledger_bytes() != host().node()->ledger_bytes())
      violation("replaying " + std::to_string(host().disk().stored().replica.log.size()) + " entries gives another ledger");
  }
  bool failed_ = false;
  int committing_ = 0;  // commits that the disk has and Node was not told of yet
};

}  // namespace

std::unique_ptr<Checker> replay_equal(WorldView& world, std::size_t host) { return std::make_unique<ReplayEqual>(world, host); }

}  // namespace dtrain::sim
