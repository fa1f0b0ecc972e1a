// Once all faults are healed, every task runs, and no instance of it stays frozen anywhere.

#include <array>

#include "tests/sim/lease/checkers/checkers.h"

namespace dtrain::sim::lease {
namespace {

class NotFrozenForEver final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "not_frozen_for_ever"; }

  void executing(const Instance& instance, bool on, bool) override { running_[instance.task] += on ? 1 : -1; }
  void at_rest(const std::vector<Instance>& standing) override {
    if (!standing.empty()) return violation(sim::lease::name(standing.front()) + " still stands frozen");
    for (std::uint32_t task = 0; task < kTasks; ++task)
      if (running_[task] != 1)
        return violation("task " + std::to_string(task) + " has " + std::to_string(running_[task]) + " running instances");
  }

 private:
  std::array<int, kTasks> running_{};
};

}  // namespace

std::unique_ptr<Checker> not_frozen_for_ever(WorldView& world) { return std::make_unique<NotFrozenForEver>(world); }

}  // namespace dtrain::sim::lease
