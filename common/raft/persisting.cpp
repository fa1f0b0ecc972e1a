// What becomes durable, and the messages that wait for it (rules 4, 11).
#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/base/check.h"
#include "common/raft/core.h"

namespace dtrain::raft {

bool Raft::Core::hard_durable() const { return !with(Rule::durable_before_send) || (!hard_waits_ && !hard_in_flight_); }

void Raft::Core::send(const MemberId& to, wire::RaftBody body, std::uint64_t durable_to) {
  send(Send{to, {header(), std::move(body)}}, durable_to);
}

// Every message carries the term, and so claims that the term is durable here; an acknowledgement claims the same of entries.
void Raft::Core::send(Send send, std::uint64_t durable_to) {
  const bool entries = durable_to > log_.durable();
  const bool waits = hard_waits_ || (entries && (durable_to > log_.handed() || snapshot_waits_));
  const bool flies = hard_in_flight_ || entries;
  if ((!waits && !flies) || !with(Rule::durable_before_send)) return out_->sends.push_back(std::move(send));
  if (waiting_.size() + held_.size() >= kWaitingSends) {
    ++counters_.dropped;
  } else if (waits) {
    waiting_.push_back({std::move(send), durable_to});
  } else {
    held_.push_back(std::move(send));
  }
}

// Drops acknowledgements of entries that were cut off before they were handed to the disk, and will never be durable.
void Raft::Core::drop_waiting_from(std::uint64_t index) {
  std::erase_if(waiting_, [index](const Waiting& waiting) { return waiting.index != 0 && waiting.index >= index; });
}

void Raft::Core::persist() {
  if (in_flight_ || mute_ == Mute::disk_failed) return;
  if (!hard_waits_ && !snapshot_waits_ && !log_.waits()) return;
  Persist persist;
  persist.token = ++token_;
  persist.forget = std::exchange(forget_waits_, false);
  if (std::exchange(hard_waits_, false)) {
    persist.hard = hard_;
    hard_in_flight_ = true;
  }
  if (std::exchange(snapshot_waits_, false)) {
    persist.snapshot = *snapshot_;
    persist.reset_log = std::exchange(snapshot_resets_, false);
  }
  RaftLog::Batch batch = log_.hand_over(std::exchange(persist_whole_, false) ? SIZE_MAX : options_.persist_bytes);
  persist.truncate_from = batch.truncate_from;
  persist.entries = std::move(batch.entries);
  std::deque<Waiting> later;
  for (Waiting& waiting : waiting_) {
    if (waiting.index <= log_.handed()) persist.sends.push_back(std::move(waiting.send));
    else later.push_back(std::move(waiting));
  }
  waiting_ = std::move(later);
  in_flight_ = true;
  ++counters_.persists;
  out_->persist = std::move(persist);
}

void Raft::Core::act(const Persisted& done) {
  CHECK(in_flight_ && done.token == token_);
  in_flight_ = hard_in_flight_ = false;
  log_.landed();
  for (Send& send : std::exchange(held_, {})) out_->sends.push_back(std::move(send));
  if (mute_ != Mute::none) return;
  if (role_ == Role::candidate) count_votes();
  count_matches();
}

// After a failed write nobody can know whether the bytes are on the disk: the page cache may show what the disk does not have.
void Raft::Core::act(const PersistFailed& failed) {
  CHECK(in_flight_ && failed.token == token_);
  if (!with(Rule::disk_error_stops_voting)) return act(Persisted{failed.token});
  in_flight_ = false;
  go_mute(Mute::disk_failed);
}

}  // namespace dtrain::raft
