#include <algorithm>
#include <utility>

#include "common/raft/core.h"

namespace dtrain::raft {

namespace {

std::uint64_t base_index(const Stored& stored) { return stored.snapshot ? stored.snapshot->index : 0; }
std::uint64_t base_term(const Stored& stored) { return stored.snapshot ? stored.snapshot->term : 0; }
Duration last_elapsed(const Stored& stored) {
  if (!stored.log.empty()) return stored.log.back().elapsed;
  return stored.snapshot ? stored.snapshot->elapsed : Duration{};
}
// An empty configuration for a snapshot that an older version stored, or for entries of another kind.
Configuration configuration_in(const std::string& bytes) {
  if (bytes.empty()) return {};
  auto decoded = wire::decode_configuration(bytes);
  return decoded ? *std::move(decoded) : Configuration{};
}

}  // namespace

Raft::Core::Core(Self self, RaftOptions options, Rng rng, Log& log, Stored stored)
    : options_(std::move(options)),
      rules_(options_.broken_rule),
      rng_(rng),
      log_sink_(log),
      id_(self.id),
      life_{self.life, 0},
      hard_(std::move(stored.hard)),
      log_(base_index(stored), base_term(stored), stored.log),
      configurations_(base_index(stored), stored.snapshot ? configuration_in(stored.snapshot->configuration) : Configuration{}),
      clock_(last_elapsed(stored)) {
  life_.mark = rng_.next();
  for (const LogEntry& entry : stored.log)
    if (entry.kind == EntryKind::configuration) configurations_.push(entry.index, configuration_in(entry.payload));
  commit_ = applied_ = base_index(stored);
  if (stored.snapshot) snapshot_ = std::make_shared<const StoredSnapshot>(*std::move(stored.snapshot));
  if (hard_.stale && with(Rule::fresh_life_only)) mute_ = Mute::stale_life;
  if (!self.may_vote) mute_ = Mute::disk_failed;
}

void Raft::Core::step(Instant now, const Input& input, Outputs& out, bool more) {
  now_ = started_ ? std::max(now, now_) : now;
  out_ = &out;
  if (started_) note_stall();
  else start();
  std::visit([this](const auto& what) { act(what); }, input);
  run_timers();
  finish(more);
  expected_ = deadline();
  out_ = nullptr;
}

void Raft::Core::start() {
  started_ = true;
  resumed_ = now_ - options_.stall;
  clock_.start(now_);
  settled_at_ = now_;
  for (const auto* ids : {&configuration().voters, &configuration().learners})
    for (const MemberId& id : *ids)
      if (id != id_) strangers_to_life_.insert(id);
  if (!strangers_to_life_.empty()) {
    settled_at_ = now_ + options_.settle;
    next_hello_ = now_;
  }
  time_election();
  // No other member could lead.
  if (voter() && configuration().voters.size() == 1) election_ = settled_at_;
  log(LogLevel::info, "raft-started",
      {{"term", std::to_string(hard_.term)},
       {"last", std::to_string(log_.last_index())},
       {"snapshot", std::to_string(snapshot_index())},
       {"voters", std::to_string(configuration().voters.size())}});
}

// This process or its machine was stopped: the others' messages may be waiting to be read.
void Raft::Core::note_stall() {
  if (expected_ == kNever || now_ < expected_ + options_.stall) return;
  resumed_ = now_;
  election_ = std::max(election_, now_ + options_.stall + between(Duration{}, options_.heartbeat));
}

void Raft::Core::run_timers() {
  if (mute_ != Mute::none) return;
  if (role_ == Role::leader) return run_leader_timers();
  if (now_ >= next_hello_) greet();
  if (now_ >= election_) election_is_due();
}

void Raft::Core::run_leader_timers() {
  if (now_ < next_broadcast_) return;
  check_quorum();
  if (role_ != Role::leader) return;
  if (transfer_ && now_ >= transfer_->until) transfer_.reset();
  broadcast();
}

void Raft::Core::finish(bool more) {
  if (!more) {
    announce_commit();
    persist();
  }
  const Leadership is{hard_.term, role_, leader_, ready_};
  if (is.term == told_.term && is.role == told_.role && is.leader == told_.leader && is.ready == told_.ready) return;
  told_ = is;
  out_->leadership = is;
}

Instant Raft::Core::deadline() const {
  if (mute_ != Mute::none) return kNever;
  // There is nobody to send to: a council of one costs nothing while nothing happens.
  if (role_ == Role::leader) return followers_.empty() ? kNever : next_broadcast_;
  return std::min(next_hello_, election_);
}

Duration Raft::Core::between(Duration from, Duration to) {
  if (to <= from) return from;
  return from + Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>((to - from).count()))));
}

std::vector<FollowerView> Raft::Core::followers(Instant now) const {
  std::vector<FollowerView> views;
  for (const auto& [id, follower] : followers_)
    views.push_back({id, configuration().votes(id), follower.match, follower.next, follower.state == Progress::State::snapshot,
                     now - follower.heard, snapshot_waits(id, follower)});
  return views;
}

std::size_t Raft::Core::memory_bytes() const {
  std::size_t bytes = log_.bytes() + (log_.last_index() - log_.first_index() + 1) * sizeof(LogEntry);
  if (snapshot_) bytes += snapshot_->payload.size();
  for (const auto& [id, follower] : followers_)
    if (follower.snapshot && follower.snapshot != snapshot_) bytes += follower.snapshot->payload.size();
  if (incoming_) bytes += incoming_->bytes.size();
  return bytes + (waiting_.size() + held_.size()) * sizeof(Waiting) + pending_.size() * sizeof(Pending) + reads_.size() * sizeof(Read);
}

}  // namespace dtrain::raft
