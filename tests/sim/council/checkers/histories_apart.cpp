// Members of different histories have nothing to do with each other: no vote, entry or snapshot of another history has an
// effect. One way leads out: who hears the leader of a newer one, and for long none of its own, follows that.
#include <map>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class HistoriesApart final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "histories_apart"; }

  void started(Slot slot) override {
    last_.erase(slot);
    led_.erase(slot);
    foreign_ = recovers_ = false;
    remember(slot);
  }
  void stepping(Slot slot, const raft::Input& input) override {
    const raft::Raft& core = *world_.core(slot);
    wakes_ = world_.truth(slot).resumed == world_.now();
    before_ = core.term();
    last_before_ = core.last_index();
    recovers_ = std::holds_alternative<raft::Recover>(input);
    const auto* received = std::get_if<raft::Received>(&input);
    if (core.role() == raft::Role::leader) led_[slot] = world_.now();
    foreign_ = newer_ = of_leader_ = false;
    if (!received) return;
    const wire::RaftMessage& message = received->message;
    sender_ = message.header.sender;
    life_ = message.header.life;
    term_ = message.header.term;
    of_leader_ = std::holds_alternative<wire::AppendRequest>(message.body) || std::holds_alternative<wire::SnapshotChunk>(message.body);
    if (message.header.history.none() || core.history().none()) return;
    foreign_ = message.header.history != core.history();
    newer_ = core.history() < message.header.history;
  }
  void stepped(Slot slot) override {
    const raft::Raft& core = *world_.core(slot);
    const auto known = last_.find(slot);
    const bool follows = foreign_ && newer_ && of_leader_ && known != last_.end() && core.history() != known->second;
    if (follows) {
      const auto led = led_.find(slot);
      if (led != led_.end() && world_.now() - led->second < world_.options().abandon_history * 9 / 10)
        violation(world_.name(slot) + " gives up its history " + std::to_string(known->second.number) + " for history " +
                  std::to_string(core.history().number) + ", led in its own " +
                  std::to_string((world_.now() - led->second).count() / 1'000'000) + " ms ago");
      last_[slot] = core.history();
      foreign_ = false;
    }
    // Who wakes up stands for election by its own clock in the step that brings it the message.
    if (foreign_ && !wakes_ && (core.term() != before_ || core.last_index() != last_before_))
      violation(world_.name(slot) + " does what a member of another history told it");
    if (!foreign_ && of_leader_ && core.leader() == sender_ && core.term() == term_ && speaks()) led_[slot] = world_.now();
    if (recovers_) last_.erase(slot);
    remember(slot);
    foreign_ = recovers_ = of_leader_ = false;  // what is sent before the next step was held up by the disk
  }
  void sent(Slot slot, const raft::Send& send) override {
    const wire::RaftBody& body = send.message.body;
    const bool answers = std::holds_alternative<wire::VoteReply>(body) || std::holds_alternative<wire::AppendReply>(body) ||
                         std::holds_alternative<wire::SnapshotReply>(body) || std::holds_alternative<wire::Welcome>(body);
    if (foreign_ && send.to == sender_ && answers && send.message.header.history == last_[slot])
      violation(world_.name(slot) + " answers a member of another history");
  }

 private:
  // The sender of the last message is still in that life: a late word of an earlier one is refused.
  bool speaks() const {
    const auto slot = world_.slot_of(sender_);
    return slot && world_.core(*slot) && world_.core(*slot)->life() == life_;
  }
  void remember(Slot slot) {
    const raft::Raft& core = *world_.core(slot);
    if (core.history().none()) return;
    const auto [at, fresh] = last_.emplace(slot, core.history());
    if (!fresh && at->second != core.history())
      violation(world_.name(slot) + " was taken over from history " + std::to_string(at->second.number) + " into history " +
                std::to_string(core.history().number));
  }

  std::map<Slot, raft::History> last_;
  std::map<Slot, Instant> led_;  // a leader of its own history was heard, or it was one
  std::uint64_t before_ = 0, last_before_ = 0, term_ = 0;
  raft::Life life_;
  MemberId sender_;
  bool foreign_ = false, newer_ = false, of_leader_ = false, recovers_ = false, wakes_ = false;
};

}  // namespace

std::unique_ptr<Checker> histories_apart(WorldView& world) { return std::make_unique<HistoriesApart>(world); }

}  // namespace dtrain::sim::council
