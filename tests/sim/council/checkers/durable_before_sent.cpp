// What a member promises is on its disk when it is said: its term, its vote, the entries and snapshots that
// it acknowledges, the lives of others that it knows.
#include <algorithm>
#include <map>
#include <utility>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class DurableBeforeSent final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "durable_before_sent"; }

  void stepping(Slot slot, const raft::Input& input) override {
    const auto* received = std::get_if<raft::Received>(&input);
    if (!received || !std::holds_alternative<wire::Hello>(received->message.body)) return;
    const MemberId& from = received->message.header.sender;
    greeted_by_voter_[{slot, from}] = world_.core(slot)->configuration().votes(from);
  }
  void sent(Slot slot, const raft::Send& send) override {
    const raft::Stored& disk = world_.disk(slot);
    const std::uint64_t term = send.message.header.term;
    if (disk.hard.term < term && promises(send.message.body))
      return broken(slot, "speaks in term " + std::to_string(term) + ", term " + std::to_string(disk.hard.term) + " is on its disk");
    if (const auto* reply = std::get_if<wire::VoteReply>(&send.message.body)) {
      const bool later = disk.hard.term > reply->term;
      if (!reply->pre && reply->granted && !later && (disk.hard.term != reply->term || disk.hard.voted_for() != send.to))
        broken(slot, "grants a vote that is not on its disk");
    } else if (const auto* request = std::get_if<wire::VoteRequest>(&send.message.body)) {
      if (!request->pre && disk.hard.term == request->term && disk.hard.voted_for() != send.message.header.sender)
        broken(slot, "is a candidate, and its own vote is not on its disk");
    } else if (const auto* appended = std::get_if<wire::AppendReply>(&send.message.body)) {
      if (appended->accepted && appended->match > last_index(disk))
        broken(slot, "acknowledges entry " + std::to_string(appended->match) + ", entry " + std::to_string(last_index(disk)) +
                         " is the last on its disk");
    } else if (const auto* chunk = std::get_if<wire::SnapshotReply>(&send.message.body)) {
      if (chunk->done && last_index(disk) < chunk->index)
        broken(slot, "acknowledges a snapshot of entry " + std::to_string(chunk->index) + " that is not on its disk");
    } else if (const auto* welcome = std::get_if<wire::Welcome>(&send.message.body); welcome && greeted_by_voter_[{slot, send.to}]) {
      const auto known =
          std::find_if(disk.hard.lives.begin(), disk.hard.lives.end(), [&](const raft::SeenLife& seen) { return seen.id() == send.to; });
      if (known == disk.hard.lives.end() || known->life < welcome->yours) broken(slot, "welcomes a life that is not on its disk");
    }
  }

 private:
  static bool promises(const wire::RaftBody& body) {
    const auto* reply = std::get_if<wire::VoteReply>(&body);
    const auto* request = std::get_if<wire::VoteRequest>(&body);
    return !std::holds_alternative<wire::Hello>(body) && !std::holds_alternative<wire::Welcome>(body) &&
           !std::holds_alternative<wire::Fenced>(body) && !(reply && (reply->pre || !reply->granted)) && !(request && request->pre);
  }
  static std::uint64_t last_index(const raft::Stored& disk) {
    return !disk.log.empty() ? disk.log.back().index : disk.snapshot ? disk.snapshot->index : 0;
  }
  std::map<std::pair<Slot, MemberId>, bool> greeted_by_voter_;  // strangers are welcomed and forgotten

  void broken(Slot slot, const std::string& what) { violation(world_.name(slot) + " " + what); }
};

}  // namespace

std::unique_ptr<Checker> durable_before_sent(WorldView& world) { return std::make_unique<DurableBeforeSent>(world); }

}  // namespace dtrain::sim::council
