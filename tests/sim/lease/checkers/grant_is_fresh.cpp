// A task that starts or is thawed has a grant that its shim asked for after the start was ordered, or after its freezing began.

#include "tests/sim/lease/checkers/checkers.h"

namespace dtrain::sim::lease {
namespace {

class GrantIsFresh final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "grant_is_fresh"; }

  void let_run(const Instance& instance, Instant asked, Instant since) override {
    if (asked < since) violation(sim::lease::name(instance) + " is let run by what was asked for before it stood");
  }
};

}  // namespace

std::unique_ptr<Checker> grant_is_fresh(WorldView& world) { return std::make_unique<GrantIsFresh>(world); }

}  // namespace dtrain::sim::lease
