// A leader sends, counts and commits (rules 1, 2, 4; thesis 3.5, 3.6.2, 6.2, 10.2).
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/raft/core.h"
#include "common/raft/quorum.h"

namespace dtrain::raft {

using State = Progress::State;

// ---------------------------------------------------------------- sending

void Raft::Core::broadcast() {
  ++round_;
  next_broadcast_ = now_ + options_.heartbeat;
  for (auto& [id, follower] : followers_) {
    if (needs_no_heartbeat(id, follower)) continue;
    const bool overdue = now_ - follower.moved >= options_.retry;
    if (follower.state == State::replicate && !follower.window.empty() && overdue) follower.probe_from(follower.match + 1);
    if (follower.state == State::probe) follower.paused = false;
    if (follower.state == State::snapshot) {
      if (overdue) follower.paused = false;
      // Every log agrees at index 0, so this message only says who leads.
      send(id, wire::AppendRequest{round_, 0, 0, commit_, clock_.now(now_), {}});
    } else if (follower.state == State::replicate && follower.next >= log_.first_index()) {
      send_entries(id, follower, 0);
    }
    feed(id, follower);
    // The follower waits for its turn to get the snapshot: this message only says who leads.
    if (snapshot_waits(id, follower)) send(id, wire::AppendRequest{round_, 0, 0, commit_, clock_.now(now_), {}});
  }
  hand_over();
}

void Raft::Core::feed_all() {
  for (auto& [id, follower] : followers_) feed(id, follower);
}

// A follower learns of a commit with the next message. With none in flight that would be the next heartbeat, for
// which a client there would have to wait.
void Raft::Core::announce_commit() {
  if (role_ != Role::leader) return;
  for (auto& [id, follower] : followers_)
    if (follower.state == State::replicate && follower.window.empty() && follower.told < commit_ && follower.next >= log_.first_index())
      send_entries(id, follower, 0);
}

// Sends all that may be sent now.
void Raft::Core::feed(const MemberId& id, Progress& follower) {
  if (snapshot_waits(id, follower)) return;
  if (follower.state != State::snapshot && follower.next < log_.first_index()) begin_snapshot(follower);
  switch (follower.state) {
    case State::probe:
      if (std::exchange(follower.paused, true)) return;
      return send_entries(id, follower, 0);
    case State::replicate:
      while (follower.window.size() < options_.window && follower.next <= log_.last_index())
        send_entries(id, follower, std::clamp<std::size_t>(options_.message_entries, 1, wire::kEntriesPerMessage));
      return;
    case State::snapshot:
      if (std::exchange(follower.paused, true)) return;
      return send_chunk(id, follower);
  }
}

// A learner that has everything elects nobody and counts for nothing: it only needs to know that there is a leader.
bool Raft::Core::needs_no_heartbeat(const MemberId& id, const Progress& follower) const {
  return !configuration().votes(id) && follower.state == State::replicate && follower.window.empty() && follower.next > log_.last_index() &&
         now_ - follower.spoken < options_.learner_heartbeat;
}

void Raft::Core::send_entries(const MemberId& id, Progress& follower, std::size_t most) {
  const std::uint64_t prev = follower.next - 1;
  wire::AppendRequest request{round_, prev, log_.term_at(prev), commit_, clock_.now(now_), {}};
  std::size_t bytes = 0;
  for (std::uint64_t index = follower.next; index <= log_.last_index() && request.entries.size() < most; ++index) {
    const LogEntry& entry = log_.at(index);
    bytes += entry.payload.size();
    if (!request.entries.empty() && bytes > options_.message_bytes) break;
    request.entries.push_back(entry);
  }
  if (!request.entries.empty()) follower.sent(request.entries.back().index, now_);
  follower.told = commit_;
  follower.spoken = now_;
  // The leader sends entries before its own disk has them: they are no promise of its own, and it counts itself only
  // when they are durable (thesis 10.2.1).
  send(id, std::move(request));
}

void Raft::Core::append_own(LogEntry entry) {
  entry.index = log_.last_index() + 1;
  entry.term = hard_.term;
  const Duration own = with(Rule::elapsed_from_leader) ? clock_.now(now_) : now_.time_since_epoch();
  Duration before{};
  if (log_.last_index() >= log_.first_index()) before = log_.at(log_.last_index()).elapsed;
  else if (snapshot_) before = snapshot_->elapsed;
  entry.elapsed = with(Rule::elapsed_from_leader) ? std::max(before, own) : own;
  if (entry.kind == EntryKind::configuration) {
    auto configuration = wire::decode_configuration(entry.payload);
    CHECK(configuration);
    configurations_.push(entry.index, *std::move(configuration));
  }
  const bool reconfigures = entry.kind == EntryKind::configuration;
  log_.append(std::move(entry));
  if (reconfigures) adopt_configuration();
  feed_all();
  count_matches();
}

void Raft::Core::adopt_configuration() {
  if (role_ != Role::leader) {
    if (!stands()) election_ = kNever;
    else if (election_ == kNever) time_election();
    return;
  }
  std::erase_if(followers_, [this](const auto& follower) { return !configuration().has(follower.first); });
  for (const auto* ids : {&configuration().voters, &configuration().learners})
    for (const MemberId& id : *ids)
      if (id != id_) followers_.try_emplace(id, log_.last_index(), now_);
}

// ---------------------------------------------------------------- counting

void Raft::Core::receive(const wire::RaftHeader& from, const wire::AppendReply& reply) {
  if (role_ != Role::leader || from.term != hard_.term) return;
  const auto found = followers_.find(from.sender);
  if (found == followers_.end()) return;
  if (reply.round > round_ || reply.match > log_.last_index()) {
    ++counters_.dropped;
    return;
  }
  Progress& follower = found->second;
  follower.heard = now_;
  follower.round = std::max(follower.round, reply.round);
  if (!reply.accepted) {
    refused(from.sender, follower, reply);
  } else {
    const bool more = follower.acknowledged(reply.match, now_);
    const bool caught_up = follower.state == State::snapshot && !follower.needs_state && follower.match + 1 >= log_.first_index();
    if (follower.state == State::probe || caught_up) follower.replicate();
    if (more) count_matches();
    if (role_ != Role::leader) return;
    feed(from.sender, follower);
    if (more && transfer_ && transfer_->to == from.sender) hand_over();
  }
  confirm_reads();
}

void Raft::Core::refused(const MemberId& id, Progress& follower, const wire::AppendReply& reply) {
  if (follower.state == State::snapshot || reply.prev_index <= follower.match) return;  // the answer came too late
  if (follower.state == State::probe && reply.prev_index != follower.next - 1) return;  // the answer belongs to an older request
  const std::uint64_t hint = std::min(reply.hint_index, reply.prev_index - 1);
  follower.probe_from(log_.last_with_term_at_most(hint, reply.hint_term) + 1);
  feed(id, follower);
}

std::uint64_t Raft::Core::own_durable() const { return with(Rule::durable_before_send) ? log_.durable() : log_.last_index(); }

void Raft::Core::count_matches() {
  if (role_ != Role::leader) return;
  std::vector<std::uint64_t> matches;
  for (const MemberId& voter : configuration().voters) matches.push_back(voter == id_ ? own_durable() : followers_.at(voter).match);
  const std::uint64_t index = agreed(matches);
  if (index <= commit_) return;
  // An entry of an older term may be replaced even if a majority has it (thesis, figure 3.7): it is committed only
  // together with a later one.
  if (log_.term_at(index) != hard_.term && with(Rule::own_term_entry)) return;
  commit_to(index);
}

void Raft::Core::commit_to(std::uint64_t index) {
  commit_ = index;
  while (applied_ < commit_) {
    out_->committed.push_back(log_.at(++applied_));
    applied_bytes_ += out_->committed.back().payload.size();
  }
  if (applied_ - snapshot_index() >= options_.snapshot_every || applied_bytes_ >= options_.snapshot_every_bytes)
    out_->snapshot_wanted = true;
  for (; !pending_.empty() && pending_.front().index <= commit_; pending_.pop_front()) {
    const Pending& done = pending_.front();
    out_->answers.push_back({done.number, Refusal::none, done.index, done.term, {}, false});
  }
  if (role_ != Role::leader) return;
  ready_ = ready_ || commit_ >= own_first_;
  if (!voter() && !change_under_way()) become_follower(hard_.term, {});  // this leader was removed, and the entry that says so is committed
}

// A leader that is cut off from the majority could neither commit nor know whether another one leads.
void Raft::Core::check_quorum() {
  if (!with(Rule::check_quorum) || just_resumed()) return;
  std::vector<Instant> heard;
  for (const MemberId& voter : configuration().voters) heard.push_back(voter == id_ ? now_ : followers_.at(voter).heard);
  if (now_ - agreed(heard) < options_.check_quorum) return;
  log(LogLevel::warn, "raft-without-quorum", {{"term", std::to_string(hard_.term)}});
  become_follower(hard_.term, {});
}

}  // namespace dtrain::raft
