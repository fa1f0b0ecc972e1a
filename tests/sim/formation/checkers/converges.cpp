// When everything is healed, all machines come to belong to one cluster, and its log works.

#include "tests/sim/formation/checkers/checkers.h"

namespace dtrain::sim::formation {
namespace {

class Converges final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "converges"; }

  void works(const core::Founding& founding) override { works_ = founding.cluster; }
  void at_rest() override {
    for (Slot slot = 0; slot < world_.slots(); ++slot) {
      const Disk& disk = world_.disk(slot);
      const MemberId cluster = disk.log ? disk.log->cluster : disk.member;
      if (!works_.none() && cluster == works_) continue;
      violation(sim::formation::name(slot) + (cluster.none() ? " belongs to no cluster" : " belongs to a cluster that never worked") +
                ": " + world_.status(slot));
    }
  }

 private:
  MemberId works_;
};

}  // namespace

std::unique_ptr<Checker> converges(WorldView& world) { return std::make_unique<Converges>(world); }

}  // namespace dtrain::sim::formation
