// The configurations of a history follow each other one voter at a time, so that majorities of neighbours
// overlap: a leader adds to its log only a configuration that differs by at most one voter from the one
// before it, which must be committed, and only once an entry of its own term is. (Ongaro's correction of
// single-server changes, 2015.)
#include <algorithm>
#include <iterator>
#include <map>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class OneChangeAtATime final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "one_change_at_a_time"; }

  void started(Slot slot) override { last_.erase(slot); }
  void stepping(Slot slot, const raft::Input&) override { was_ready_ = world_.core(slot)->ready(); }
  void stepped(Slot slot) override {
    const raft::Raft& core = *world_.core(slot);
    if (core.role() != raft::Role::leader) {
      last_.erase(slot);
      return;
    }
    const auto [at, fresh] = last_.try_emplace(slot, Last{core.term(), core.configuration(), 0});
    Last& last = at->second;
    if (fresh || last.term != core.term()) {
      last = {core.term(), core.configuration(), 0};
      return;
    }
    if (last.configuration == core.configuration()) return;
    if (!was_ready_) violation(world_.name(slot) + " changes the configuration before an entry of its own term is committed");
    if (last.index > core.commit())
      violation(world_.name(slot) + " changes the configuration while the one before, entry " + std::to_string(last.index) +
                " at most, is not committed");
    std::vector<MemberId> differ;
    std::set_symmetric_difference(last.configuration.voters.begin(), last.configuration.voters.end(), core.configuration().voters.begin(),
                                  core.configuration().voters.end(), std::back_inserter(differ));
    if (differ.size() > 1) violation(world_.name(slot) + " changes " + std::to_string(differ.size()) + " voters at once");
    last = {core.term(), core.configuration(), core.last_index()};
  }

 private:
  struct Last {
    std::uint64_t term = 0;
    raft::Configuration configuration;
    std::uint64_t index = 0;  // of its entry; 0: from before this leadership
  };
  std::map<Slot, Last> last_;
  bool was_ready_ = false;
};

}  // namespace

std::unique_ptr<Checker> one_change_at_a_time(WorldView& world) { return std::make_unique<OneChangeAtATime>(world); }

}  // namespace dtrain::sim::council
