// A log begins where all its founders, a majority of those named, have promised it durably, the machine
// itself by its own id.
#include <map>
#include <set>

#include "tests/sim/formation/checkers/checkers.h"

namespace dtrain::sim::formation {
namespace {

class BeginsWithAll final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "begins_with_all"; }

  void stored(Slot slot, const core::Record&, const core::Persist& persist) override {
    const core::Founding& promise = persist.record.promise;
    if (!promise.none()) promised_[promise.cluster].insert(world_.disk(slot).id);
    if (!persist.begin) return;
    const core::Founding& founding = *persist.begin;
    if (!founding.has(world_.disk(slot).id)) violation(sim::formation::name(slot) + " begins a log that another has in its place");
    if (founding.members.size() * 2 <= world_.slots())
      violation(sim::formation::name(slot) + " begins a log of less than a majority of the founders");
    for (const core::Founder& founder : founding.members)
      if (!promised_[founding.cluster].contains(founder.id))
        violation(sim::formation::name(slot) + " begins a log that " + sim::formation::name(founder.seat) + " has not promised");
  }

 private:
  std::map<MemberId, std::set<MemberId>> promised_;  // by cluster: who ever did
};

}  // namespace

std::unique_ptr<Checker> begins_with_all(WorldView& world) { return std::make_unique<BeginsWithAll>(world); }

}  // namespace dtrain::sim::formation
