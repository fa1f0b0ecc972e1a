#include "common/raft/raft.h"

#include <utility>

#include "common/raft/core.h"

namespace dtrain::raft {

Raft::Raft(Self self, RaftOptions options, Rng rng, Log& log, Stored stored)
    : core_(std::make_unique<Core>(std::move(self), std::move(options), rng, log, std::move(stored))) {}
Raft::~Raft() = default;
Raft::Raft(Raft&&) noexcept = default;

void Raft::step(Instant now, const Input& input, Outputs& out, bool more) { core_->step(now, input, out, more); }
Instant Raft::deadline() const { return core_->deadline(); }
const MemberId& Raft::id() const { return core_->id(); }
const Life& Raft::life() const { return core_->life(); }
const History& Raft::history() const { return core_->history(); }
std::uint64_t Raft::term() const { return core_->term(); }
Role Raft::role() const { return core_->role(); }
bool Raft::ready() const { return core_->ready(); }
const MemberId& Raft::leader() const { return core_->leader(); }
Mute Raft::mute() const { return core_->mute(); }
const Configuration& Raft::configuration() const { return core_->configuration(); }
bool Raft::settled() const { return core_->settled(); }
Instant Raft::heard() const { return core_->heard(); }
std::uint64_t Raft::commit() const { return core_->commit(); }
std::uint64_t Raft::first_index() const { return core_->entries().first_index(); }
std::uint64_t Raft::last_index() const { return core_->entries().last_index(); }
std::uint64_t Raft::durable_index() const { return core_->entries().durable(); }
std::uint64_t Raft::snapshot_index() const { return core_->snapshot_index(); }
std::uint64_t Raft::term_at(std::uint64_t index) const { return core_->entries().term_at(index); }
Duration Raft::elapsed(Instant now) const { return core_->elapsed(now); }
std::vector<FollowerView> Raft::followers(Instant now) const { return core_->followers(now); }
const Counters& Raft::counters() const { return core_->counters(); }
std::size_t Raft::memory_bytes() const { return core_->memory_bytes(); }

const char* to_string(Role role) {
  constexpr const char* kNames[] = {"follower", "pre-candidate", "candidate", "leader"};
  return kNames[static_cast<std::size_t>(role)];
}
const char* to_string(Mute mute) {
  constexpr const char* kNames[] = {"none", "disk-failed", "stale-life"};
  return kNames[static_cast<std::size_t>(mute)];
}
const char* to_string(Refusal refusal) {
  constexpr const char* kNames[] = {
      "none",          "not-leader",     "not-ready", "transferring", "overloaded", "too-large", "change-under-way",
      "not-caught-up", "no-such-member", "already",   "last-voter",   "full",       "unknown"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(enum_last(Refusal{})) + 1);
  return kNames[static_cast<std::size_t>(refusal)];
}

}  // namespace dtrain::raft
