// The boundary between two histories: recover-quorum on the survivor, and the members that follow it (rule 14).
#include <utility>

#include "common/raft/core.h"

namespace dtrain::raft {

// ---------------------------------------------------------------- the survivor

// Hard state and configuration go in one Persist, so that a crash leaves either history whole. Then this member elects itself.
void Raft::Core::act(const Recover& asked) {
  if (mute_ != Mute::none || role_ == Role::leader || leader_is_heard() || !configuration().has(id_) || asked.mark.none())
    return log(LogLevel::warn, "raft-recover-refused", {{"term", std::to_string(hard_.term)}});
  become_follower(hard_.term + 1, {});
  hard_.history = {hard_.history.number + 1, asked.mark};
  begin_history();
  persist_whole_ = true;
  LogEntry alone;
  alone.kind = EntryKind::configuration;
  alone.payload = wire::encode_configuration({{id_}, {}, hard_.history.number});
  append_own(std::move(alone));
  election_ = now_;
  log(LogLevel::warn, "raft-recovered", {{"history", std::to_string(hard_.history.number)}, {"last", std::to_string(log_.last_index())}});
}

// Promises and messages of the older history no longer count.
void Raft::Core::begin_history() {
  hard_.lives.clear();
  hard_changed();
  waiting_.clear();
  held_.clear();
  incoming_.reset();
  last_leader_ = {};
  leader_gone_ = false;
  quick_tries_ = 0;
  strangers_to_life_.clear();
  settled_at_ = now_;
  next_hello_ = kNever;
  newer_ = {};
}

// ---------------------------------------------------------------- the others

// Only a leader of the newer history is followed, because it has this member in its configuration; and only by a
// member that for RaftOptions::abandon_history heard no leader of its own: a majority that is alive has one by then and
// stays together. The time counts from the first such message, and anew after a pause, because the time of a stopped
// process proves nothing.
bool Raft::Core::may_follow(const History& newer) {
  if (newer_.history != newer || now_ > newer_.heard + options_.check_quorum) newer_ = {newer, now_, now_};
  newer_.heard = now_;
  if (!with(Rule::forget_only_without_leader)) return true;
  if (role_ == Role::leader) newer_.since = now_;
  return now_ >= newer_.since + options_.abandon_history;
}

// Drops all of the older log in one Persist that also holds the newer history, so that this member can never again
// vote or acknowledge in the older one. It becomes a follower with an empty log, which the leader fills.
void Raft::Core::adopt_history(const History& newer) {
  log(LogLevel::warn, "raft-history-given-up",
      {{"history", std::to_string(hard_.history.number)},
       {"for", std::to_string(newer.number)},
       {"last", std::to_string(log_.last_index())}});
  become_follower(hard_.term, {});
  hard_ = HardState{newer, 0, 0, 0, {}, false};
  begin_history();
  election_ = kNever;
  forget_waits_ = true;
  snapshot_.reset();
  snapshot_waits_ = snapshot_resets_ = false;
  log_.reset(0, 0);
  configurations_.reset(0, {});
  commit_ = applied_ = 0;
  applied_bytes_ = 0;
  clock_ = LedgerClock(Duration{});
  clock_.start(now_);
  out_->installed.reset();
  out_->committed.clear();
  out_->forgotten = true;
  ++counters_.histories_given_up;
}

}  // namespace dtrain::raft
