// What a founder says of its promise and its cluster is on its disk.

#include "tests/sim/formation/checkers/checkers.h"

namespace dtrain::sim::formation {
namespace {

class SaidIsDurable final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "said_is_durable"; }

  void said(Slot slot, const core::FormationReport& report) override {
    const Disk& disk = world_.disk(slot);
    if (report.promise != disk.record.promise) violation(sim::formation::name(slot) + " speaks of a promise that is not on its disk");
    const bool has_it = (disk.log && disk.log->cluster == report.cluster) || disk.member == report.cluster;
    if (!report.cluster.none() && !has_it)
      violation(sim::formation::name(slot) + " says that it belongs to a cluster of which it has nothing");
  }
};

}  // namespace

std::unique_ptr<Checker> said_is_durable(WorldView& world) { return std::make_unique<SaidIsDurable>(world); }

}  // namespace dtrain::sim::formation
