// Whose disk was put back to an older copy has forgotten what it promised: it never votes, acknowledges or
// leads again under its id.
#include <algorithm>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class RolledBackStaysMute final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "rolled_back_stays_mute"; }

  void sent(Slot slot, const raft::Send& send) override {
    if (world_.truth(slot).rolled_back && counts(send.message.body) && !knows_better(send))
      violation(world_.name(slot) + " was put back to an older copy of its disk, and votes, acknowledges or leads");
  }

 private:
  // Who remembers a later life takes nothing from this one.
  bool knows_better(const raft::Send& send) const {
    const auto to = world_.slot_of(send.to);
    const raft::Raft* core = to ? world_.core(*to) : nullptr;
    const MemberId& id = send.message.header.sender;
    return core && std::ranges::any_of(world_.disk(*to).hard.lives, [&](const raft::SeenLife& seen) {
             return seen.id() == id && seen.life.number > send.message.header.life.number;
           });
  }
  static bool counts(const wire::RaftBody& body) {
    if (const auto* reply = std::get_if<wire::VoteReply>(&body)) return reply->granted && !reply->pre;
    if (const auto* appended = std::get_if<wire::AppendReply>(&body)) return appended->accepted && appended->match > 0;
    if (const auto* request = std::get_if<wire::VoteRequest>(&body)) return !request->pre;
    return std::holds_alternative<wire::AppendRequest>(body) || std::holds_alternative<wire::TimeoutNow>(body);
  }
};

}  // namespace

std::unique_ptr<Checker> rolled_back_stays_mute(WorldView& world) { return std::make_unique<RolledBackStaysMute>(world); }

}  // namespace dtrain::sim::council
