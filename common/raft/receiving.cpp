// A message arrives: who sent it, and does it still count (rules 1, 9, 14)?
#include <algorithm>
#include <utility>

#include "common/raft/core.h"

namespace dtrain::raft {

namespace {

using wire::RaftMessage;

template <class T>
bool is(const RaftMessage& message) {
  return std::holds_alternative<T>(message.body);
}
bool of_a_leader(const RaftMessage& message) { return is<wire::AppendRequest>(message) || is<wire::SnapshotChunk>(message); }
bool about_lives(const RaftMessage& message) { return is<wire::Fenced>(message) || is<wire::Hello>(message) || is<wire::Welcome>(message); }

}  // namespace

void Raft::Core::act(const Received& received) {
  const RaftMessage& message = received.message;
  const wire::RaftHeader& from = message.header;
  if (mute_ != Mute::none || from.sender == id_ || from.sender.none()) return;
  if (const auto* fenced = std::get_if<wire::Fenced>(&message.body)) return receive(from, *fenced);
  if (!admits(message)) return;
  adopt_term(message);
  if (from.term < hard_.term && (of_a_leader(message) || is<wire::TimeoutNow>(message))) return answer_old_leader(message);
  std::visit([&](const auto& body) { receive(from, body); }, message.body);
}

bool Raft::Core::admits(const RaftMessage& message) {
  const wire::RaftHeader& from = message.header;
  if (hard_.history.none()) {
    // This member waits to be added: the leader of any history may add it.
    if (!of_a_leader(message) || from.history.none()) {
      ++counters_.dropped;
      return false;
    }
    hard_.history = from.history;
    hard_changed();
  }
  if (from.history != hard_.history && with(Rule::history_fences)) {
    const bool newer = hard_.history < from.history;
    if (!newer || !of_a_leader(message) || !may_follow(from.history)) {
      ++counters_.fenced;
      if (!newer) send(from.sender, wire::Fenced{wire::FenceReason::other_history, {}, from.life});
      return false;
    }
    adopt_history(from.history);
  }
  return !with(Rule::fresh_life_only) || knows_life(from);
}

bool Raft::Core::knows_life(const wire::RaftHeader& from) {
  const auto known = std::ranges::find(hard_.lives, from.sender, &SeenLife::id);
  if (known != hard_.lives.end()) {
    const Life& seen = known->life;
    if (from.life.number < seen.number || (from.life.number == seen.number && from.life.mark != seen.mark)) {
      ++counters_.fenced;
      send(from.sender, wire::Fenced{wire::FenceReason::stale_life, seen, from.life});
      return false;
    }
  }
  if (configuration().has(from.sender)) remember(from.sender, from.life);
  return true;
}

void Raft::Core::remember(const MemberId& id, const Life& life) {
  const auto place = [&] { return std::ranges::lower_bound(hard_.lives, id, {}, &SeenLife::id); };
  if (const auto at = place(); at != hard_.lives.end() && at->id() == id) {
    if (at->life == life) return;
    at->life = life;
  } else {
    if (hard_.lives.size() >= kMostLives) forget_strangers();
    hard_.lives.insert(place(), {id.high, id.low, life});
  }
  hard_changed();
}

// Forgets lives of members that are gone when room is needed for present ones, and not before: one may be made a
// member again and return with an old copy of its disk, and then nobody else would know enough to object.
void Raft::Core::forget_strangers() {
  const auto stranger = [this](const SeenLife& seen) { return !configuration().has(seen.id()); };
  if (std::erase_if(hard_.lives, stranger) == 0) return;
  hard_changed();
  // A welcome that waits for the disk would claim what will not be there.
  std::erase_if(waiting_, [this](const Waiting& waiting) {
    return std::holds_alternative<wire::Welcome>(waiting.send.message.body) && !configuration().has(waiting.send.to);
  });
}

// A higher term ends the present leader's term. But a pre-vote request or a greeting changes no term: while a leader
// is heard, a member that came back (or was removed) with a higher term must not depose it by asking.
void Raft::Core::adopt_term(const RaftMessage& message) {
  const wire::RaftHeader& from = message.header;
  if (from.term <= hard_.term || about_lives(message)) return;
  const auto* request = std::get_if<wire::VoteRequest>(&message.body);
  if (request != nullptr && request->pre && (role_ == Role::leader || leader_is_heard())) return;
  become_follower(from.term, of_a_leader(message) ? from.sender : MemberId{});
}

// Otherwise a leader that missed the end of its term would never hear of it.
void Raft::Core::answer_old_leader(const RaftMessage& message) {
  RaftMessage refusal{header(), wire::AppendReply{}};
  if (const auto* request = std::get_if<wire::AppendRequest>(&message.body))
    refusal.body = wire::AppendReply{request->round, false, 0, request->prev_index, 0, 0};
  if (!with(Rule::refusal_carries_own_term)) refusal.header.term = message.header.term;
  send(Send{message.header.sender, std::move(refusal)}, 0);
}

void Raft::Core::receive(const wire::RaftHeader& from, const wire::Fenced& fenced) {
  if (fenced.yours != life_) return;  // meant for an earlier life
  switch (fenced.reason) {
    case wire::FenceReason::other_history: return;  // its leader will contact this member if it wants it
    case wire::FenceReason::stale_life: {
      // Any sender may say so: an old copy has an old configuration and may not know the present members.
      const bool newer = fenced.seen.number > life_.number || (fenced.seen.number == life_.number && fenced.seen.mark != life_.mark);
      if (from.history == hard_.history && newer && with(Rule::fresh_life_only)) go_mute(Mute::stale_life);
      return;
    }
  }
}

void Raft::Core::receive(const wire::RaftHeader& from, const wire::Hello&) {
  // Sent once the life is durable here. Lives of non-members are not kept, so they get no answer.
  if (std::ranges::count(hard_.lives, SeenLife{from.sender.high, from.sender.low, from.life}) != 0)
    send(from.sender, wire::Welcome{from.life});
}

void Raft::Core::receive(const wire::RaftHeader& from, const wire::Welcome& welcome) {
  if (welcome.yours != life_ || strangers_to_life_.erase(from.sender) == 0 || !strangers_to_life_.empty()) return;
  settled_at_ = std::min(settled_at_, now_);
  next_hello_ = kNever;
  if (voter() && configuration().voters.size() == 1) election_ = std::min(election_, now_);
}

// A member whose directory is an old copy has forgotten votes and entries that others count on. Before it votes or
// acknowledges, the others are told of its life and have RaftOptions::settle to object. A member that cannot be reached
// cannot object; without a majority of witnesses no more is possible (docs/consensus.md).
void Raft::Core::greet() {
  next_hello_ = kNever;
  if (now_ >= settled_at_) return strangers_to_life_.clear();
  for (const MemberId& id : strangers_to_life_) send(id, wire::Hello{});
  next_hello_ = std::min(now_ + options_.hello_retry, settled_at_);
}

}  // namespace dtrain::raft
