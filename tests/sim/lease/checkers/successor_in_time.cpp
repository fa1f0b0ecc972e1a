// If a task's host or agent is lost for good while all else is well, a successor of the task starts as soon as it
// may, and not before.

#include "tests/sim/lease/checkers/checkers.h"

namespace dtrain::sim::lease {
namespace {

class SuccessorInTime final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "successor_in_time"; }

  void lost_for_good(std::uint32_t task, Instant earliest, Instant latest) override {
    task_ = task;
    earliest_ = earliest;
    latest_ = latest;
    waits_ = true;
  }
  void executing(const Instance& instance, bool on, bool) override {
    if (!on || !waits_ || instance.task != task_) return;
    waits_ = false;
    if (world_.now() < earliest_) violation(sim::lease::name(instance) + " runs too soon after " + text());
    if (world_.now() > latest_) violation(sim::lease::name(instance) + " runs too late after " + text());
  }
  void over() override {
    if (waits_) violation("task " + std::to_string(task_) + " has no successor after " + text());
  }

 private:
  static std::string text() { return "its host or agent was lost for good"; }
  std::uint32_t task_ = 0;
  Instant earliest_{}, latest_{};
  bool waits_ = false;
};

}  // namespace

std::unique_ptr<Checker> successor_in_time(WorldView& world) { return std::make_unique<SuccessorInTime>(world); }

}  // namespace dtrain::sim::lease
