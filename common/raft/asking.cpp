// Requests of the owner: proposals, reads, changes of the configuration (rules 2, 5, 12; thesis 4, 6.4).
#include <algorithm>
#include <utility>

#include "common/raft/core.h"
#include "common/raft/quorum.h"

namespace dtrain::raft {

void Raft::Core::answer(std::uint64_t number, Refusal refusal, bool read) {
  if (refusal == Refusal::overloaded) ++counters_.overloaded;
  out_->answers.push_back({number, refusal, 0, 0, refusal == Refusal::not_leader ? leader_ : MemberId{}, read});
}

Refusal Raft::Core::may_propose() const {
  if (role_ != Role::leader) return Refusal::not_leader;
  if (!ready_) return Refusal::not_ready;
  if (transfer_) return Refusal::transferring;
  const bool full = pending_.size() >= options_.proposals || log_.last_index() - snapshot_index() >= options_.log_entries ||
                    log_.bytes() >= options_.log_bytes + options_.kept_bytes;
  return full ? Refusal::overloaded : Refusal::none;
}

void Raft::Core::act(const Propose& asked) {
  Refusal refusal = may_propose();
  if (refusal == Refusal::none && asked.payload.size() > wire::kEntryBytes) refusal = Refusal::too_large;
  if (refusal != Refusal::none) return answer(asked.number, refusal);
  LogEntry entry;
  entry.payload = asked.payload;
  pending_.push_back({asked.number, log_.last_index() + 1, hard_.term});
  append_own(std::move(entry));
}

// ---------------------------------------------------------------- reads

// A leader that is known to have led at some moment after the read was asked for has seen every write that was
// answered before. This relies on no clock.
void Raft::Core::act(const ReadAsked& asked) {
  Refusal refusal = Refusal::none;
  if (role_ != Role::leader) refusal = Refusal::not_leader;
  else if (!ready_) refusal = Refusal::not_ready;
  else if (reads_.size() >= options_.proposals) refusal = Refusal::overloaded;
  if (refusal != Refusal::none) return answer(asked.number, refusal, true);
  reads_.push_back({asked.number, round_ + 1, commit_});
  if (!with(Rule::read_index_confirmed)) {
    out_->answers.push_back({asked.number, Refusal::none, commit_, 0, {}, true});
    return reads_.pop_back();
  }
  confirm_reads();
}

// One round at a time; reads that arrive meanwhile share the next round.
void Raft::Core::confirm_reads() {
  if (role_ != Role::leader || reads_.empty()) return;
  std::vector<std::uint64_t> rounds;
  const auto& voters = configuration().voters;
  for (const MemberId& voter : voters) rounds.push_back(voter == id_ ? wire::kMostIndex : followers_.at(voter).round);
  const std::uint64_t confirmed = agreed(rounds);
  for (; !reads_.empty() && reads_.front().round <= confirmed; reads_.pop_front())
    out_->answers.push_back({reads_.front().number, Refusal::none, reads_.front().index, 0, {}, true});
  if (!reads_.empty() && reads_.front().round > round_) broadcast();
}

// ---------------------------------------------------------------- changes

Refusal Raft::Core::may_change(const ChangeAsked& asked, Configuration& after) {
  if (const Refusal refusal = may_propose(); refusal != Refusal::none) return refusal;
  if (change_under_way() && with(Rule::one_change_at_a_time)) return Refusal::change_under_way;
  if (const Refusal refusal = changed(configuration(), asked.kind, asked.member, after); refusal != Refusal::none) return refusal;
  if (asked.kind == ChangeKind::promote) {
    // A learner has caught up if it is near the end, was heard lately, and holds the entry that added it: even an
    // empty disk is near the end of a short log.
    const Progress& learner = followers_.at(asked.member);
    const bool lags = learner.match + options_.promote_lag < log_.last_index() || learner.match < configurations_.current_index();
    if (lags || now_ - learner.heard > options_.election_min) return Refusal::not_caught_up;
  }
  if (!after.votes(id_)) return begin_transfer({}) ? Refusal::transferring : Refusal::not_ready;
  return Refusal::none;
}

void Raft::Core::act(const ChangeAsked& asked) {
  Configuration after;
  if (const Refusal refusal = may_change(asked, after); refusal != Refusal::none) return answer(asked.number, refusal);
  LogEntry entry;
  entry.kind = EntryKind::configuration;
  entry.payload = wire::encode_configuration(after);
  pending_.push_back({asked.number, log_.last_index() + 1, hard_.term});
  append_own(std::move(entry));
}

}  // namespace dtrain::raft
