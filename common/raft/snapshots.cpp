// Compaction, and snapshots that are sent or received in chunks (rules 6, 7; thesis 5).
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/raft/core.h"

namespace dtrain::raft {

using State = Progress::State;

// ---------------------------------------------------------------- made here

void Raft::Core::act(const Snapshotted& made) {
  if (made.index <= snapshot_index()) return;  // a snapshot that was received meanwhile holds more
  CHECK(made.index <= applied_);
  const LogEntry& last = log_.at(made.index);
  cover(made.index, last.term, last.elapsed, made.state);
  compact();
}

// The snapshot takes the place of the entries up to its index, which are here, or were.
void Raft::Core::cover(std::uint64_t index, std::uint64_t term, Duration elapsed, std::string state) {
  snapshot_ = std::make_shared<const StoredSnapshot>(
      StoredSnapshot{index, term, std::move(state), wire::encode_configuration(configurations_.at(index)), elapsed});
  snapshot_waits_ = true;
  log_.covered_to(index);
  configurations_.compact_to(index);
  applied_bytes_ = 0;
  for (std::uint64_t behind = index + 1; behind <= applied_; ++behind) applied_bytes_ += log_.at(behind).payload.size();
}

// Memory keeps a little more than the disk, so that a follower that is just behind gets entries and not the whole
// state. It also keeps what follows a snapshot that is being sent, until the receiver has caught up with what came
// meanwhile: a receiver that takes longer for that than the time between two snapshots here would need another one,
// for ever. No more than that is kept: the next snapshot may be the shorter way.
void Raft::Core::compact() {
  std::uint64_t wanted = snapshot_index() + 1;
  for (const auto& [id, follower] : followers_) {
    if (now_ - follower.heard >= options_.check_quorum) continue;
    if (follower.state == State::snapshot) wanted = std::min(wanted, follower.snapshot->index + 1);
    else if (follower.match < follower.owed) wanted = std::min(wanted, follower.match + 1);
  }
  std::uint64_t keep_from = snapshot_index() + 1;
  std::size_t bytes = 0;
  while (keep_from > log_.first_index() && (keep_from > wanted || snapshot_index() - keep_from + 1 < options_.kept_entries)) {
    bytes += sizeof(LogEntry) + log_.at(keep_from - 1).payload.size();  // most payloads are small
    if (bytes > options_.kept_bytes) break;
    --keep_from;
  }
  log_.compact_to(keep_from - 1);
}

// ---------------------------------------------------------------- going out

// Each receiver may have a chunk in flight and keeps the snapshot that it began with, so their number is bounded. A
// silent one delays nobody.
bool Raft::Core::snapshot_waits(const MemberId& id, const Progress& follower) const {
  if (follower.state == State::snapshot || follower.next >= log_.first_index() || configuration().votes(id)) return false;
  const auto under_way = std::ranges::count_if(followers_, [this](const auto& other) {
    return other.second.state == State::snapshot && now_ - other.second.heard < options_.check_quorum;
  });
  return static_cast<std::size_t>(under_way) >= options_.snapshots_under_way;
}

void Raft::Core::begin_snapshot(Progress& follower) {
  CHECK(snapshot_);  // it holds what is gone from the log
  follower.send_snapshot(snapshot_);
  ++counters_.snapshots_sent;
}

void Raft::Core::act(const SendState& asked) {
  const auto found = followers_.find(asked.to);
  if (role_ != Role::leader || found == followers_.end() || !snapshot_ || found->second.state == State::snapshot) return;
  begin_snapshot(found->second);
  found->second.needs_state = true;
  feed(asked.to, found->second);
}

void Raft::Core::send_chunk(const MemberId& id, Progress& follower) {
  const StoredSnapshot& snapshot = *follower.snapshot;
  wire::SnapshotChunk chunk;
  chunk.round = round_;
  chunk.index = snapshot.index;
  chunk.term = snapshot.term;
  if (auto configuration = wire::decode_configuration(snapshot.configuration)) chunk.configuration = *std::move(configuration);
  chunk.snapshot_elapsed = snapshot.elapsed;
  chunk.elapsed = clock_.now(now_);
  chunk.total = snapshot.payload.size();
  chunk.offset = follower.offset;
  chunk.bytes = snapshot.payload.substr(follower.offset, std::min(options_.snapshot_chunk_bytes, wire::kSnapshotChunkBytes));
  follower.moved = now_;
  send(id, std::move(chunk));
}

void Raft::Core::receive(const wire::RaftHeader& from, const wire::SnapshotReply& reply) {
  if (role_ != Role::leader || from.term != hard_.term) return;
  const auto found = followers_.find(from.sender);
  if (found == followers_.end()) return;
  Progress& follower = found->second;
  if (reply.round > round_ || reply.index > log_.last_index()) {
    ++counters_.dropped;
    return;
  }
  follower.heard = now_;
  follower.round = std::max(follower.round, reply.round);
  confirm_reads();
  if (follower.state != State::snapshot || reply.index != follower.snapshot->index) return;
  if (reply.done) {
    follower.acknowledged(reply.index, now_);
    follower.replicate();
    follower.owed = log_.last_index();
    count_matches();
  } else if (reply.next_offset != follower.offset && reply.next_offset <= follower.snapshot->payload.size()) {
    follower.offset = reply.next_offset;
    follower.paused = false;
  }
  // Otherwise the answer came twice: the chunk that it asks for is in flight, or the next retry sends it.
  if (role_ == Role::leader) feed(from.sender, follower);
}

// ---------------------------------------------------------------- coming in

void Raft::Core::receive(const wire::RaftHeader& from, const wire::SnapshotChunk& chunk) {
  const bool another_leads = role_ == Role::leader || (!last_leader_.none() && last_leader_ != from.sender);
  const bool fits = chunk.index != 0 && chunk.term != 0 && chunk.term <= from.term && chunk.total <= options_.snapshot_bytes &&
                    chunk.offset <= chunk.total && chunk.bytes.size() <= chunk.total - chunk.offset;
  if (another_leads || !fits || chunk.configuration.voters.empty()) {
    ++counters_.dropped;
    return;
  }
  heard_leader(from.sender);
  clock_.told(chunk.elapsed, now_);
  const bool matches = chunk.index > commit_ && log_.term_at(chunk.index) == chunk.term;
  if (matches) commit_to(chunk.index);  // a snapshot holds only committed entries, and the log here agrees with it
  if (chunk.index <= commit_ && !replaces_state(chunk)) {
    incoming_.reset();
    return answer_installed(from.sender, chunk);
  }
  const bool goes_on = incoming_ && incoming_->from == from.sender && incoming_->index == chunk.index && incoming_->term == chunk.term &&
                       incoming_->total == chunk.total;
  if (!goes_on) incoming_ = Incoming{from.sender, chunk.index, chunk.term, chunk.total, {}};
  if (chunk.offset == incoming_->bytes.size()) incoming_->bytes += chunk.bytes;
  if (incoming_->bytes.size() < chunk.total)
    return send(from.sender, wire::SnapshotReply{settled() ? chunk.round : 0, chunk.index, incoming_->bytes.size(), false});
  if (replaces_state(chunk)) take_state(chunk);
  else install(chunk);
  answer_installed(from.sender, chunk);
}

// True if only the state is replaced: the snapshot's last entry is here, and so are all later ones.
bool Raft::Core::replaces_state(const wire::SnapshotChunk& chunk) const {
  return wants_state_ && chunk.index <= commit_ && chunk.index >= snapshot_index() && log_.term_at(chunk.index) == chunk.term;
}

void Raft::Core::take_state(const wire::SnapshotChunk& chunk) {
  wants_state_ = false;
  out_->committed.clear();  // these entries come again, from there on
  applied_ = chunk.index;
  cover(chunk.index, chunk.term, chunk.snapshot_elapsed, std::exchange(incoming_, std::nullopt)->bytes);
  out_->installed = *snapshot_;
  ++counters_.snapshots_installed;
  log(LogLevel::info, "raft-state-replaced", {{"index", std::to_string(chunk.index)}});
  commit_to(commit_);
  compact();
}

// As with entries, nothing is acknowledged before this member is settled; the leader then sends its last chunk again.
void Raft::Core::answer_installed(const MemberId& to, const wire::SnapshotChunk& chunk) {
  if (settled()) send(to, wire::SnapshotReply{chunk.round, chunk.index, chunk.total, true}, chunk.index);
}

void Raft::Core::install(const wire::SnapshotChunk& chunk) {
  const Configuration& carried = with(Rule::snapshot_carries_config) ? chunk.configuration : Configuration(configuration());
  snapshot_ = std::make_shared<const StoredSnapshot>(
      StoredSnapshot{chunk.index, chunk.term, std::move(incoming_->bytes), wire::encode_configuration(carried), chunk.snapshot_elapsed});
  incoming_.reset();
  snapshot_waits_ = snapshot_resets_ = true;
  wants_state_ = false;
  drop_waiting_from(1);
  log_.reset(chunk.index, chunk.term);
  configurations_.reset(chunk.index, carried);
  commit_ = applied_ = chunk.index;
  applied_bytes_ = 0;
  out_->installed = *snapshot_;
  ++counters_.snapshots_installed;
  adopt_configuration();
  log(LogLevel::info, "raft-snapshot-installed", {{"index", std::to_string(chunk.index)}});
}

}  // namespace dtrain::raft
