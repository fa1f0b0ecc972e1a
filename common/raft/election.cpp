// Roles, pre-votes, votes and hand-over (rules 1, 8; thesis 3.4, 3.6, 3.10, 9.6).
#include <algorithm>
#include <tuple>
#include <utility>

#include "common/raft/core.h"
#include "common/raft/quorum.h"

namespace dtrain::raft {

// ---------------------------------------------------------------- timers

// A member that an entry, perhaps uncommitted, made a non-voter may still stand: perhaps nobody else has that entry,
// and members with less cannot win (thesis 4.2.2). Its own vote does not count then, and it steps down once the entry
// is committed.
//
// A configuration of an older history does not count: what the one survivor decided since needs no majority of that
// configuration, so the majority may lack it (rule 14).
bool Raft::Core::stands() const {
  if (!may_lead_) return false;
  if (with(Rule::own_history_elects) && configuration().history != hard_.history.number) return false;
  if (voter()) return true;
  const Configuration* previous = configurations_.previous();
  return change_under_way() && previous != nullptr && previous->votes(id_);
}

void Raft::Core::time_election() { election_ = stands() ? now_ + between(options_.election_min, options_.election_max) : kNever; }

void Raft::Core::election_is_due() {
  if (!stands()) {
    election_ = kNever;
  } else if (!settled()) {
    election_ = settled_at_;
  } else {
    ask_for_votes(with(Rule::pre_vote));
  }
}

// A leader was heard lately, so no other is needed. If its process is known to be gone, its silence need not be awaited.
bool Raft::Core::leader_is_heard() const {
  if (role_ == Role::leader || last_leader_.none() || leader_gone_) return false;
  return now_ < heard_ + options_.election_min || just_resumed();
}

void Raft::Core::heard_leader(const MemberId& leader) {
  if (role_ != Role::follower) become_follower(hard_.term, leader);
  if (last_leader_ != leader) clock_.new_leader();
  leader_ = last_leader_ = leader;
  leader_gone_ = false;
  quick_tries_ = 0;
  heard_ = newer_.since = now_;
  time_election();
}

void Raft::Core::act(const LeaderGone& gone) {
  if (mute_ != Mute::none || role_ == Role::leader || last_leader_.none() || gone.member != last_leader_) return;
  if (!leader_gone_) quick_tries_ = kQuickTries;
  leader_gone_ = true;
  leader_ = {};
  if (stands()) election_ = std::min(election_, now_ + between(options_.gone_min, options_.gone_max));
}

// ---------------------------------------------------------------- roles

void Raft::Core::become_follower(std::uint64_t term, const MemberId& leader) {
  const bool led = role_ == Role::leader;
  if (term > hard_.term) {
    hard_.term = term;
    hard_.vote_for({});
    hard_changed();
    last_leader_ = {};
    leader_gone_ = false;
  }
  role_ = Role::follower;
  leader_ = leader;
  granted_.clear();
  denied_.clear();
  if (led) {
    lose_leadership();
    time_election();
  }
}

void Raft::Core::lose_leadership() {
  ++counters_.stepped_down;
  ready_ = false;
  newer_.since = now_;  // this member led its history until now
  followers_.clear();
  transfer_.reset();
  next_broadcast_ = kNever;
  for (const Pending& pending : std::exchange(pending_, {}))
    out_->answers.push_back({pending.number, Refusal::unknown, pending.index, pending.term, {}, false});
  for (const Read& read : std::exchange(reads_, {})) answer(read.number, Refusal::not_leader, true);
  log(LogLevel::info, "raft-stepped-down", {{"term", std::to_string(hard_.term)}});
}

void Raft::Core::become_leader() {
  role_ = Role::leader;
  leader_ = last_leader_ = id_;
  leader_gone_ = false;
  election_ = next_hello_ = kNever;
  granted_.clear();
  denied_.clear();
  incoming_.reset();
  round_ = 0;
  next_broadcast_ = now_;
  followers_.clear();
  adopt_configuration();
  own_first_ = log_.last_index() + 1;
  log(LogLevel::info, "raft-leads", {{"term", std::to_string(hard_.term)}, {"from", std::to_string(own_first_)}});
  if (with(Rule::own_term_entry)) {
    LogEntry first;
    first.kind = EntryKind::leader;
    append_own(std::move(first));
  } else {
    ready_ = true;
  }
}

void Raft::Core::go_mute(Mute why) {
  if (role_ != Role::follower) become_follower(hard_.term, {});
  mute_ = why;
  if (why == Mute::stale_life && !std::exchange(hard_.stale, true)) hard_changed();
  leader_ = last_leader_ = {};
  waiting_.clear();
  held_.clear();
  incoming_.reset();
  log(LogLevel::error, "raft-mute", {{"why", to_string(why)}});
}

// ---------------------------------------------------------------- asking for votes

void Raft::Core::ask_for_votes(bool pre) {
  if (hard_.term >= wire::kMostTerm) {  // terms have reached their limit: this member can only follow another leader
    election_ = kNever;
    return;
  }
  if (role_ == Role::leader) return;
  granted_.clear();
  denied_.clear();
  leader_ = {};
  role_ = pre ? Role::pre_candidate : Role::candidate;
  if (pre) {
    ++counters_.pre_elections;
  } else {
    ++counters_.elections;
    ++hard_.term;
    hard_.vote_for(id_);
    hard_changed();
    last_leader_ = {};
  }
  granted_.insert(id_);
  time_retry(pre);
  const wire::VoteRequest request{pre, pre ? hard_.term + 1 : hard_.term, log_.last_index(), log_.last_term()};
  for (const MemberId& voter : configuration().voters)
    if (voter != id_) send(voter, request);
  count_votes();
}

// A pre-vote disturbs nobody, so it is retried sooner than it first began; after LeaderGone at once, a few times.
void Raft::Core::time_retry(bool pre) {
  if (quick_tries_ == 0) {
    election_ = now_ + between(options_.election_min / 2, options_.election_max / 2);
    return;
  }
  if (pre) --quick_tries_;
  election_ = now_ + options_.gone_retry + between(options_.gone_min, options_.gone_max);
}

void Raft::Core::count_votes() {
  const auto& voters = configuration().voters;
  const bool pre = role_ == Role::pre_candidate;
  std::size_t granted = 0, denied = 0;
  for (const MemberId& voter : voters) {
    // This member's own vote counts only when it is durable, like any other.
    if (granted_.contains(voter) && (pre || voter != id_ || hard_durable())) ++granted;
    if (denied_.contains(voter)) ++denied;
  }
  if (granted >= majority(voters.size())) return pre ? ask_for_votes(false) : become_leader();
  if (denied > voters.size() - majority(voters.size())) become_follower(hard_.term, {});
}

void Raft::Core::receive(const wire::RaftHeader& from, const wire::VoteReply& reply) {
  const bool pre = role_ == Role::pre_candidate;
  if (!pre && role_ != Role::candidate) return;
  if (reply.pre != pre || reply.term != hard_.term + (pre ? 1 : 0)) return;
  if (!configuration().votes(from.sender)) return;
  (reply.granted ? granted_ : denied_).insert(from.sender);
  count_votes();
}

// ---------------------------------------------------------------- giving votes

bool Raft::Core::as_new(std::uint64_t last_index, std::uint64_t last_term) const {
  return std::tie(last_term, last_index) >= std::make_tuple(log_.last_term(), log_.last_index());
}

// Decided by log and term alone, whatever this member believes about who votes: its configuration may be older than
// the candidate's. Only a pre-vote is refused while a leader is heard.
bool Raft::Core::would_vote(const wire::RaftHeader& from, const wire::VoteRequest& request) const {
  if (!as_new(request.last_index, request.last_term)) return false;
  if (request.pre) return request.term > hard_.term && role_ != Role::leader && !leader_is_heard();
  if (request.term != hard_.term) return false;
  const MemberId voted = hard_.voted_for();
  return voted.none() || voted == from.sender || !with(Rule::one_vote_per_term);
}

void Raft::Core::receive(const wire::RaftHeader& from, const wire::VoteRequest& request) {
  if (!settled()) return;
  const bool granted = would_vote(from, request);
  if (granted && request.pre) {
    // If two ask at the same time, the one with more of the log, or the larger id, goes first.
    const auto theirs = std::tie(request.last_term, request.last_index, from.sender);
    if (role_ == Role::pre_candidate && theirs > std::make_tuple(log_.last_term(), log_.last_index(), id_)) become_follower(hard_.term, {});
  } else if (granted) {
    if (hard_.voted_for() != from.sender) {
      hard_.vote_for(from.sender);
      hard_changed();
    }
    time_election();
  }
  wire::RaftMessage reply{header(), wire::VoteReply{request.pre, request.term, granted}};
  if (!granted && !with(Rule::refusal_carries_own_term)) reply.header.term = from.term;
  send(Send{from.sender, std::move(reply)}, 0);
}

// ---------------------------------------------------------------- hand-over

void Raft::Core::act(const MayLead& owner) {
  may_lead_ = owner.may;
  if (mute_ != Mute::none) return;
  if (!may_lead_ && role_ != Role::follower) become_follower(hard_.term, {});
  if (role_ == Role::follower) time_election();
}

void Raft::Core::act(const TransferAsked& asked) {
  if (role_ == Role::leader && !begin_transfer(asked.to)) log(LogLevel::warn, "raft-transfer-refused", {{"to", asked.to.text()}});
}

bool Raft::Core::begin_transfer(MemberId to) {
  if (to.none()) {
    std::uint64_t most = 0;
    for (const auto& [id, follower] : followers_) {
      if (!configuration().votes(id) || now_ - follower.heard > options_.election_min) continue;
      if (to.none() || follower.match > most) to = id, most = follower.match;
    }
  }
  if (to == id_ || !configuration().votes(to)) return false;
  if (!transfer_ || transfer_->to != to) transfer_ = Transfer{to, now_ + options_.transfer};
  hand_over();
  return true;
}

// The successor must have the whole log. It begins a term of its own, in which each member has one vote as in any other.
void Raft::Core::hand_over() {
  if (!transfer_) return;
  const auto follower = followers_.find(transfer_->to);
  if (follower == followers_.end()) return transfer_.reset();
  if (follower->second.match == log_.last_index()) send(transfer_->to, wire::TimeoutNow{log_.last_index()});
}

void Raft::Core::receive(const wire::RaftHeader& from, const wire::TimeoutNow& now) {
  if (role_ != Role::follower || from.sender != leader_ || !voter() || !stands() || !settled()) return;
  if (now.last_index > log_.last_index()) return;
  quick_tries_ = kQuickTries;
  ask_for_votes(false);
}

}  // namespace dtrain::raft
