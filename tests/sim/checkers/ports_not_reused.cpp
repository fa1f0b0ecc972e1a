// A port belongs to one assignment at a time, and another generation or job gets it only two minutes after the last
// process that had it ended: a leftover must never reach a stranger at a known address.
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

constexpr Duration kRest = 2min;

class PortsNotReused final : public HostChecker {
 public:
  using HostChecker::HostChecker;
  std::string_view name() const override { return "ports_not_reused"; }

  void process_started(const SimShim& shim) override {
    if (shim.spec.port == 0) return;
    Use& use = uses_[shim.spec.port];
    // After a reboot no process is left that could remember an address.
    if (use.used && use.id != shim.spec.id && use.boots == boots_ && world_.now() - use.until < kRest)
      violation(shim.spec.id.text() + " got port " + std::to_string(shim.spec.port) + " of " + use.id.text());
    use = Use{shim.spec.id, kNever, boots_, true};
  }
  void process_ended(const SimShim& shim) override {
    const auto it = uses_.find(shim.spec.port);
    if (it != uses_.end() && it->second.id == shim.spec.id) it->second.until = world_.now();
  }
  void on_event(const node::Event& event) override {
    const auto* started = std::get_if<node::Started>(&event);
    if (started == nullptr || started->facts.boot_id == boot_id_) return;
    boot_id_ = started->facts.boot_id;
    ++boots_;
  }

 private:
  struct Use {
    AssignmentId id;
    Instant until{};
    std::uint64_t boots = 0;
    bool used = false;
  };
  std::map<std::uint16_t, Use> uses_;
  std::string boot_id_;
  std::uint64_t boots_ = 0;
};

}  // namespace

std::unique_ptr<Checker> ports_not_reused(WorldView& world, std::size_t host) { return std::make_unique<PortsNotReused>(world, host); }

}  // namespace dtrain::sim
