// After a disk error nobody knows what is on the disk: until its machine was booted again a member does not
// vote, acknowledge or lead, nor does the next life of its agent.
#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class FailedDiskStaysMute final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "failed_disk_stays_mute"; }

  void sent(Slot slot, const raft::Send& send) override {
    if (world_.truth(slot).disk_failed && counts(send.message.body))
      violation(world_.name(slot) + " had a disk error, and votes, acknowledges or leads");
  }

 private:
  static bool counts(const wire::RaftBody& body) {
    if (const auto* reply = std::get_if<wire::VoteReply>(&body)) return reply->granted;
    if (const auto* appended = std::get_if<wire::AppendReply>(&body)) return appended->accepted;
    if (const auto* request = std::get_if<wire::VoteRequest>(&body)) return !request->pre;
    return std::holds_alternative<wire::AppendRequest>(body) || std::holds_alternative<wire::TimeoutNow>(body);
  }
};

}  // namespace

std::unique_ptr<Checker> failed_disk_stays_mute(WorldView& world) { return std::make_unique<FailedDiskStaysMute>(world); }

}  // namespace dtrain::sim::council
