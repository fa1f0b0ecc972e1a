// An order of a coordinator of an older epoch has no effect on a host or shim that obeyed a newer epoch; within an epoch
// the same holds for older orders. A host whose store was wiped forgets every order that no living shim of it remembers.

#include <algorithm>
#include <map>

#include "tests/sim/lease/checkers/checkers.h"

namespace dtrain::sim::lease {
namespace {

class OldOrderNeverActs final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "old_order_never_acts"; }

  void host_obeyed(Slot host, const Fence& fence) override {
    Fence& highest = hosts_[host];
    if (fence < highest)
      violation("m" + std::to_string(host) + " obeys " + text(fence) + " after " + text(highest));
    highest = std::max(highest, fence);
  }
  void shim_obeyed(const Instance& instance, std::uint64_t epoch) override {
    std::uint64_t& highest = shims_[instance.number];
    if (epoch < highest)
      violation(sim::lease::name(instance) + " obeys epoch " + std::to_string(epoch) + " after " +
                std::to_string(highest));
    highest = std::max(highest, epoch);
  }
  void store_wiped(Slot host, const Fence& remembered) override { hosts_[host] = remembered; }

 private:
  static std::string text(const Fence& fence) {
    return "epoch " + std::to_string(fence.epoch) + " revision " + std::to_string(fence.revision);
  }
  std::map<Slot, Fence> hosts_;
  std::map<std::uint32_t, std::uint64_t> shims_;
};

}  // namespace

std::unique_ptr<Checker> old_order_never_acts(WorldView& world) {
  return std::make_unique<OldOrderNeverActs>(world);
}

}  // namespace dtrain::sim::lease
