// A stop signal is sent only to a task that is not frozen, because a frozen one cannot act on it.

#include "tests/sim/lease/checkers/checkers.h"

namespace dtrain::sim::lease {
namespace {

class ThawedBeforeSignalled final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "thawed_before_signalled"; }

  void signalled(const Instance& instance, bool frozen) override {
    if (frozen) violation(sim::lease::name(instance) + " is signalled while it is frozen");
  }
};

}  // namespace

std::unique_ptr<Checker> thawed_before_signalled(WorldView& world) {
  return std::make_unique<ThawedBeforeSignalled>(world);
}

}  // namespace dtrain::sim::lease
