// A founder is bound to one founding at a time: it withdraws before it promises another, and never comes back
// to what it withdrew.
#include <algorithm>

#include "tests/sim/formation/checkers/checkers.h"

namespace dtrain::sim::formation {
namespace {

class OnePromise final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "one_promise"; }

  void stored(Slot slot, const core::Record& before, const core::Persist& persist) override {
    const core::Record& after = persist.record;
    const auto withdrew = [](const core::Record& record, const core::Founding& founding) {
      return std::find(record.withdrawn.begin(), record.withdrawn.end(), founding) != record.withdrawn.end();
    };
    if (!before.promise.none() && after.promise != before.promise && !withdrew(after, before.promise))
      violation(sim::formation::name(slot) + " forgets a promise without having withdrawn it");
    if (!after.promise.none() && withdrew(before, after.promise)) violation(sim::formation::name(slot) + " promises what it withdrew");
  }
};

}  // namespace

std::unique_ptr<Checker> one_promise(WorldView& world) { return std::make_unique<OnePromise>(world); }

}  // namespace dtrain::sim::formation
