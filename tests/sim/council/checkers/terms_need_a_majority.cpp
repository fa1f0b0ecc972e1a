// Who cannot win begins no term (pre-vote): a member begins one only when it has heard lately from a majority
// of the voters it knows, or was told to by its leader, who hands over. Otherwise each return of one that was
// cut off would unseat a good leader.
#include <map>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class TermsNeedAMajority final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "terms_need_a_majority"; }

  void started(Slot slot) override { heard_.erase(slot); }
  void stepping(Slot slot, const raft::Input& input) override {
    before_ = world_.core(slot)->term();
    told_to_ = false;
    const auto* received = std::get_if<raft::Received>(&input);
    if (!received) return;
    told_to_ = std::holds_alternative<wire::TimeoutNow>(received->message.body);
    if (told_to_) handed_over_[slot] = world_.now();
    heard_[slot][received->message.header.sender] = world_.now();
  }
  void stepped(Slot slot) override {
    const raft::Raft& core = *world_.core(slot);
    if (core.role() != raft::Role::candidate || core.term() == before_) return;
    const Instant now = world_.now();
    const Truth& truth = world_.truth(slot);
    Duration lately = world_.options().election_max * 2;
    if (now - truth.resumed <= lately) lately += truth.resumed - truth.stopped;  // what came meanwhile is read now
    if (const auto told = handed_over_.find(slot); told != handed_over_.end() && now - told->second <= lately) return;
    std::size_t count = 0;
    for (const MemberId& id : core.configuration().voters) {
      const auto at = heard_[slot].find(id);
      if (id == core.id() || (at != heard_[slot].end() && now - at->second <= lately)) ++count;
    }
    if (count < core.configuration().voters.size() / 2 + 1)
      violation(world_.name(slot) + " begins term " + std::to_string(core.term()) + ", having heard lately from " + std::to_string(count) +
                " of " + std::to_string(core.configuration().voters.size()) + " voters");
  }

 private:
  std::map<Slot, std::map<MemberId, Instant>> heard_;
  std::map<Slot, Instant> handed_over_;
  std::uint64_t before_ = 0;
  bool told_to_ = false;
};

}  // namespace

std::unique_ptr<Checker> terms_need_a_majority(WorldView& world) { return std::make_unique<TermsNeedAMajority>(world); }

}  // namespace dtrain::sim::council
