// A follower appends what the leader sends and acknowledges what it verified (rules 3, 6; thesis 3.5).
#include <algorithm>
#include <utility>

#include "common/raft/core.h"

namespace dtrain::raft {

void Raft::Core::receive(const wire::RaftHeader& from, const wire::AppendRequest& request) {
  const bool another_leads = role_ == Role::leader || (!last_leader_.none() && last_leader_ != from.sender);
  if (another_leads || !sane(request, from.term)) {
    ++counters_.dropped;
    return;
  }
  heard_leader(from.sender);
  clock_.told(request.elapsed, now_);
  // What is committed here is the same on every leader, so the request may begin before it.
  if (request.prev_index >= commit_ && (request.prev_index > log_.last_index() || log_.term_at(request.prev_index) != request.prev_term))
    return refuse_append(from.sender, request);
  take_entries(request);
  const std::uint64_t verified = request.prev_index + request.entries.size();
  const std::uint64_t bound = with(Rule::commit_verified_only) ? verified : log_.last_index();
  if (std::min(request.commit, bound) > commit_) commit_to(std::min(request.commit, bound));
  // A member that is not settled only reports that it hears the leader. It may be an old copy that promised a later
  // term to another candidate, and its acknowledgement would let the leader of an older term commit, or read.
  if (!settled()) return send(from.sender, wire::AppendReply{0, true, 0, request.prev_index, 0, 0});
  // Acknowledges what the request verified, once it is durable; a request without entries is acknowledged at once, so
  // that a slow disk does not look like silence.
  const bool only_heard = request.entries.empty();
  std::uint64_t match = with(Rule::ack_verified_only) ? verified : log_.last_index();
  if (only_heard && with(Rule::durable_before_send)) match = std::min(match, log_.durable());
  send(from.sender, wire::AppendReply{request.round, true, match, request.prev_index, 0, 0}, only_heard ? 0 : match);
}

// False for requests that a correct leader never sends.
bool Raft::Core::sane(const wire::AppendRequest& request, std::uint64_t term) const {
  if (request.prev_index > wire::kMostIndex - wire::kEntriesPerMessage || request.entries.size() > wire::kEntriesPerMessage) return false;
  std::uint64_t index = request.prev_index, newest = request.prev_term;
  for (const LogEntry& entry : request.entries) {
    if (entry.index != ++index || entry.term < newest || entry.term > term) return false;
    newest = entry.term;
    if (entry.kind != EntryKind::configuration) continue;
    const auto configuration = wire::decode_configuration(entry.payload);
    if (!configuration || configuration->voters.empty()) return false;
  }
  if (newest > term) return false;
  // What is committed is the same on every leader: at the last such entry the terms must agree.
  const bool spans = request.prev_index < commit_ && commit_ <= index;
  return !spans || request.entries[commit_ - request.prev_index - 1].term == log_.term_at(commit_);
}

void Raft::Core::take_entries(const wire::AppendRequest& request) {
  bool reconfigured = false;
  for (const LogEntry& entry : request.entries) {
    if (entry.index <= commit_) continue;
    if (entry.index <= log_.last_index()) {
      if (log_.term_at(entry.index) == entry.term) continue;
      cut_from(entry.index);
      reconfigured = true;
    }
    if (entry.kind == EntryKind::configuration) {
      configurations_.push(entry.index, *wire::decode_configuration(entry.payload));
      reconfigured = true;
    }
    log_.append(entry);
  }
  if (reconfigured) adopt_configuration();
}

void Raft::Core::cut_from(std::uint64_t index) {
  log_.truncate_from(index);
  drop_waiting_from(index);
  if (with(Rule::truncated_config_rolls_back)) configurations_.truncate_from(index);
}

void Raft::Core::refuse_append(const MemberId& to, const wire::AppendRequest& request) {
  ++counters_.appends_refused;
  const std::uint64_t before = request.prev_index == 0 ? 0 : request.prev_index - 1;
  const std::uint64_t hint = log_.last_with_term_at_most(before, request.prev_term);
  send(to, wire::AppendReply{request.round, false, 0, request.prev_index, hint, log_.term_at(hint)});
}

}  // namespace dtrain::raft
