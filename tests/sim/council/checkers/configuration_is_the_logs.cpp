// The configuration in force is the newest in a member's log, or else its snapshot's: what was truncated is
// rolled back, and restarts and snapshots change nothing.
#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class ConfigurationIsTheLogs final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "configuration_is_the_logs"; }

  void started(Slot slot) override { judge(slot); }
  // The disk has all of the log when something became durable and nothing more is under way.
  void stepping(Slot, const raft::Input& input) override { persisted_ = std::holds_alternative<raft::Persisted>(input); }
  void stepped(Slot slot) override {
    if (persisted_ && !world_.persists(slot)) judge(slot);
  }

 private:
  void judge(Slot slot) {
    const raft::Configuration in_log = world_.durable_configuration(slot);
    if (!(in_log == world_.core(slot)->configuration()))
      violation(world_.name(slot) + " goes by another configuration than its log's newest");
  }

  bool persisted_ = false;
};

}  // namespace

std::unique_ptr<Checker> configuration_is_the_logs(WorldView& world) { return std::make_unique<ConfigurationIsTheLogs>(world); }

}  // namespace dtrain::sim::council
