// Whose disk was put back to an older copy has forgotten what it promised: it never votes or leads again
// under its id, and acknowledges nothing but to those who know of its newer life, and so do not count it.
#include <algorithm>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class RolledBackStaysMute final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "rolled_back_stays_mute"; }

  void sent(Slot slot, const raft::Send& send) override {
    if (world_.truth(slot).rolled_back && counts(send))
      violation(world_.name(slot) +
                " was put back to an older copy of its disk, and votes, acknowledges or leads");
  }

 private:
  bool counts(const raft::Send& send) const {
    const wire::RaftBody& body = send.message.body;
    if (const auto* reply = std::get_if<wire::VoteReply>(&body)) return reply->granted && !reply->pre;
    if (const auto* appended = std::get_if<wire::AppendReply>(&body))
      return appended->accepted && !knows_better(send.to, send.message.header);
    if (const auto* request = std::get_if<wire::VoteRequest>(&body)) return !request->pre;
    return std::holds_alternative<wire::AppendRequest>(body) ||
           std::holds_alternative<wire::TimeoutNow>(body);
  }
  bool knows_better(const MemberId& id, const wire::RaftHeader& header) const {
    const auto slot = world_.slot_of(id);
    if (!slot) return true;  // is there no more
    const auto& lives = world_.disk(*slot).hard.lives;
    return std::any_of(lives.begin(), lives.end(), [&](const raft::SeenLife& seen) {
      return seen.id() == header.sender && seen.life.number >= header.life.number && seen.life != header.life;
    });
  }
};

}  // namespace

std::unique_ptr<Checker> rolled_back_stays_mute(WorldView& world) {
  return std::make_unique<RolledBackStaysMute>(world);
}

}  // namespace dtrain::sim::council
