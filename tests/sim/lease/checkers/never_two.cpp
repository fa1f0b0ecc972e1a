// No two instances of one task execute at the same virtual instant. An instance is excused for kExposure if its host
// was stopped when its lease ended and has just resumed: no clock can prevent that (docs/leases.md).

#include <algorithm>

#include "tests/sim/lease/checkers/checkers.h"

namespace dtrain::sim::lease {
namespace {

class NeverTwo final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "never_two"; }

  void executing(const Instance& instance, bool on, bool excused) override {
    std::erase_if(running_, [&](const Running& other) { return other.instance.number == instance.number; });
    if (!on) return;
    running_.push_back({instance, excused});
    judge(instance);
  }
  void excuse_over(const Instance& instance) override {
    for (Running& each : running_)
      if (each.instance.number == instance.number) {
        each.excused = false;
        judge(instance);
      }
  }

 private:
  struct Running {
    Instance instance;
    bool excused = false;
  };
  void judge(const Instance& instance) {
    const Instance* other = nullptr;
    std::uint32_t count = 0;
    for (const Running& each : running_) {
      if (each.instance.task != instance.task || each.excused) continue;
      ++count;
      if (each.instance.number != instance.number) other = &each.instance;
    }
    if (count > 1 && other != nullptr) violation(sim::lease::name(instance) + " runs while " + sim::lease::name(*other) + " does");
  }
  std::vector<Running> running_;
};

}  // namespace

std::unique_ptr<Checker> never_two(WorldView& world) { return std::make_unique<NeverTwo>(world); }

}  // namespace dtrain::sim::lease
