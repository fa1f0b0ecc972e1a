// The ledger's time never goes back, and never runs ahead of the time that really passed since its history
// began (1 % for clocks that are fast).
#include <map>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class ElapsedIsTrue final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "elapsed_is_true"; }

  void applied(Slot slot, const raft::LogEntry& entry, const RegisterMachine::Outcome&) override {
    Ledger& ledger = ledgers_[world_.core(slot)->history()];
    if (entry.index == ledger.index + 1 || ledger.index == 0) {
      if (entry.elapsed < ledger.elapsed)
        return violation("the ledger's time goes back by " + ms(ledger.elapsed - entry.elapsed) + " with entry " +
                         std::to_string(entry.index));
      ledger.index = entry.index;
      ledger.elapsed = entry.elapsed;
    }
    const Duration real = world_.now() - Instant{};
    if (entry.elapsed > real + real / kDriftPart + kGrace)
      violation("by entry " + std::to_string(entry.index) + " " + ms(entry.elapsed) + " passed; in truth " + ms(real) + " did");
  }
  void recovered(Slot slot, const raft::History& old) override {
    Ledger ledger = ledgers_[old];
    if (ledger.index > kept(slot)) ledger = {kept(slot), Duration(0)};
    ledgers_[world_.disk(slot).hard.history] = ledger;
  }

 private:
  static constexpr Duration::rep kDriftPart = 90;  // a little more than 1 %: of two clocks, each fast
  static constexpr Duration kGrace = 10ms;
  struct Ledger {
    std::uint64_t index = 0;
    Duration elapsed{0};
  };
  static std::string ms(Duration length) { return std::to_string(length.count() / 1'000'000) + " ms"; }

  std::map<raft::History, Ledger> ledgers_;
};

}  // namespace

std::unique_ptr<Checker> elapsed_is_true(WorldView& world) { return std::make_unique<ElapsedIsTrue>(world); }

}  // namespace dtrain::sim::council
