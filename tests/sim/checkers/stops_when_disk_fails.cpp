// After a failed commit the agent decides nothing more in this life: it starts, stops and writes nothing. The tasks
// run on.
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class StopsWhenDiskFails final : public HostChecker {
 public:
  using HostChecker::HostChecker;
  std::string_view name() const override { return "stops_when_disk_fails"; }

  void on_event(const node::Event& event) override {
    if (std::holds_alternative<node::PersistFailed>(event)) failed_ = true;
    if (std::holds_alternative<node::Started>(event)) failed_ = false;
  }
  void on_effect(const node::Effect& effect) override {
    if (!failed_) return;
    const bool decides = std::holds_alternative<node::Persist>(effect) || std::holds_alternative<node::LaunchShim>(effect) ||
                         std::holds_alternative<node::StartAttempt>(effect) || std::holds_alternative<node::Stage>(effect) ||
                         std::holds_alternative<node::KillTask>(effect) || std::holds_alternative<node::SignalTask>(effect) ||
                         std::holds_alternative<node::EndShim>(effect) || std::holds_alternative<node::RemoveJobFiles>(effect);
    if (decides) violation("the agent acts on although a commit failed");
  }

 private:
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<Checker> stops_when_disk_fails(WorldView& world, std::size_t host) {
  return std::make_unique<StopsWhenDiskFails>(world, host);
}

}  // namespace dtrain::sim
