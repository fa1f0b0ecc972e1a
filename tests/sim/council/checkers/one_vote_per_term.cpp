// A member votes for one candidate in a term, whatever becomes of its process and disk meanwhile: its id is
// another when the disk was lost. A candidate has voted for itself.
#include <map>
#include <tuple>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class OneVotePerTerm final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "one_vote_per_term"; }

  void sent(Slot slot, const raft::Send& send) override {
    const wire::RaftHeader& header = send.message.header;
    if (const auto* reply = std::get_if<wire::VoteReply>(&send.message.body); reply && !reply->pre && reply->granted)
      votes(slot, header, reply->term, send.to);
    if (const auto* request = std::get_if<wire::VoteRequest>(&send.message.body); request && !request->pre)
      votes(slot, header, request->term, header.sender);
  }

 private:
  void votes(Slot slot, const wire::RaftHeader& header, std::uint64_t term, const MemberId& candidate) {
    const auto [at, fresh] = votes_.emplace(std::tuple(header.history, header.sender, term), candidate);
    if (!fresh && at->second != candidate) violation(world_.name(slot) + " votes for a second candidate in term " + std::to_string(term));
  }

  std::map<std::tuple<raft::History, MemberId, std::uint64_t>, MemberId> votes_;
};

}  // namespace

std::unique_ptr<Checker> one_vote_per_term(WorldView& world) { return std::make_unique<OneVotePerTerm>(world); }

}  // namespace dtrain::sim::council
