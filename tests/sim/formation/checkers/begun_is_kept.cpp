// A log that ever worked is not given up by those who have it.
#include <set>

#include "tests/sim/formation/checkers/checkers.h"

namespace dtrain::sim::formation {
namespace {

class BegunIsKept final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "begun_is_kept"; }

  void works(const core::Founding& founding) override { worked_.insert(founding.cluster); }
  void stored(Slot slot, const core::Record& before, const core::Persist& persist) override {
    if (persist.abandon && worked_.contains(before.promise.cluster))
      violation(sim::formation::name(slot) + " gives up the log of cluster " + before.promise.cluster.text().substr(0, 8) +
                ", which has worked");
  }

 private:
  std::set<MemberId> worked_;
};

}  // namespace

std::unique_ptr<Checker> begun_is_kept(WorldView& world) { return std::make_unique<BegunIsKept>(world); }

}  // namespace dtrain::sim::formation
