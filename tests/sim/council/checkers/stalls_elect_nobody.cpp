// While nothing is wrong but processes that are stopped for up to 800 ms, one at a time, nobody is elected:
// the first leader stays.
#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class StallsElectNobody final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "stalls_elect_nobody"; }

  void stepped(Slot slot) override {
    if (!world_.only_stalls()) return;
    const raft::Raft& core = *world_.core(slot);
    if (term_ == 0) {
      if (core.ready()) term_ = core.term();
      return;
    }
    if (core.term() > term_)
      violation(world_.name(slot) + " is in term " + std::to_string(core.term()) + "; the leader of term " + std::to_string(term_) +
                " was never away for long");
  }
  void at_rest() override {
    if (term_ == 0 && world_.only_stalls()) violation("nobody was ever elected");
  }

 private:
  std::uint64_t term_ = 0;  // of the first leader
};

}  // namespace

std::unique_ptr<Checker> stalls_elect_nobody(WorldView& world) { return std::make_unique<StallsElectNobody>(world); }

}  // namespace dtrain::sim::council
