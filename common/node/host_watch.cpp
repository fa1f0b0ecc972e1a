#include "common/node/host_watch.h"

#include <algorithm>

#include "common/base/duration_text.h"
#include "common/node/cluster_members.h"
#include "common/node/host_capacities.h"

namespace dtrain::node {
namespace {

// An agent counts as back when it has been up for so long.
constexpr Duration kStaysBack = 10s;
// Pause before a proposal that the log refused (it is handing over, or is full) is made again.
constexpr Duration kTryAgain = 200ms;
// A host that is up and was given tasks must have begun to copy the log after this time, or it counts as lost: the
// log does not reach it, or its disk fails. Longer than a snapshot takes, and longer than following a newer history
// takes (raft::RaftOptions). If more hosts need a snapshot than are sent one at a time, the time counts from the host's
// turn; while it waits for its turn, from when another host's copy arrived last.
constexpr Duration kCopyWithin = 1min;

}  // namespace

void HostWatch::reset() {
  away_.clear();
  without_copy_.clear();
  losing_.clear();
}

void HostWatch::applied(std::uint64_t index) {
  std::erase_if(losing_, [&](const auto& entry) {
    if (entry.second > index) return false;
    leases_.applied(entry.first);
    return true;
  });
}

Instant HostWatch::look() {
  const std::set<NodeId> busy = busy_hosts(c_.ledger);
  std::erase_if(away_, [&](const auto& entry) { return !busy.contains(entry.first); });
  std::erase_if(without_copy_, [&](const auto& entry) { return !busy.contains(entry.first); });
  std::set<MemberId> copying, waiting;
  for (const raft::FollowerView& follower : c_.replicated->raft().followers(c_.now.boot)) {
    if (follower.match == 0 && follower.waits) waiting.insert(follower.id);
    if (follower.match == 0) continue;
    copying.insert(follower.id);
    if (without_copy_.contains(follower.id.text())) copy_came_ = c_.now.boot;
  }
  Instant next = kNever;
  for (const NodeId& id : busy) next = std::min(next, look_at(id, copying, waiting));
  return next;
}

// Each of the following returns when this host must be looked at again at the latest.
Instant HostWatch::look_at(const NodeId& id, const std::set<MemberId>& copying, const std::set<MemberId>& waiting) {
  const auto member_id = MemberId::parse(id);
  const auto member = member_id ? c_.members->table().find(*member_id) : std::nullopt;
  // No member has spoken of the host since this agent's start: it is waited for like a host whose agent is down.
  const bool absent = member_id && !member && id != c_.facts.id;
  if (absent || (id != c_.facts.id && member && !wire::in_service(member->state))) return watch_absent(id, member);
  came_back(id);
  if (id != c_.facts.id && member && !copying.contains(*member_id))
    return watch_copy(id, member->identity->name, waiting.contains(*member_id));
  without_copy_.erase(id);
  return kNever;
}

// An agent that ends again and again counts as away since the first time, not for a moment each time.
void HostWatch::came_back(const NodeId& id) {
  const auto away = away_.find(id);
  if (away == away_.end()) return;
  if (away->second.back == Instant{}) away->second.back = c_.now.boot;
  if (c_.now.boot - away->second.back >= kStaysBack) away_.erase(away);
}

// Tasks placed on such a host have not begun, because a task begins only after its host has reported, through the log,
// that it is staged. What began there in an older history, and must not run twice, is kept by the ledger (Ledger::heard).
Instant HostWatch::watch_copy(const NodeId& id, const std::string& name, bool waits) {
  WithoutCopy& without = without_copy_.try_emplace(id, WithoutCopy{c_.now.boot}).first->second;
  if (waits) without.since = std::max(without.since, copy_came_);
  else if (without.waits) without.since = c_.now.boot;
  without.waits = waits;
  const Instant due = without.since + kCopyWithin;
  if (losing_.contains(id) || c_.ledger.state().lost.contains(id)) return kNever;
  if (due > c_.now.boot) return due;
  if (!propose(id, {id, name, false, 0})) return c_.now.boot + kTryAgain;
  c_.log.write(LogLevel::warn, "host.without-copy",
               {{"node", name},
                {"reason", "it is alive and was given tasks, and has got no copy of the log for " + duration_text(kCopyWithin)},
                {"next", "look at its agent's log and at its disk"}});
  return kNever;
}

// `member`: nullopt if nobody has spoken of the host.
Instant HostWatch::watch_absent(const NodeId& id, const std::optional<gossip::MemberView>& member) {
  without_copy_.erase(id);
  if (losing_.contains(id)) return kNever;
  cluster::HostLost lost{id, host_name(c_, id), member && member->state == wire::MemberState::left, 0,
                         member && (member->state != wire::MemberState::dead || member->agent_ended_first)};
  const bool down = !member || member->state == wire::MemberState::down;
  Away& away = away_.try_emplace(id, Away{c_.now.boot, {}}).first->second;
  away.back = {};
  Instant due = down ? away.since + c_.options.down_grace : away.since;
  const auto known = c_.ledger.state().lost.find(id);
  if (known != c_.ledger.state().lost.end() && known->second.gone >= lost.gone) {
    // After that, until its leases are over: nothing was placed there since.
    due = known->second.gone ? kNever : leases_.over_at(id, {down, away.since});
    lost.leases_over = c_.ledger.state().applied;
  }
  if (due > c_.now.boot) return due;
  if (!propose(id, lost)) return c_.now.boot + kTryAgain;
  if (lost.leases_over != 0) leases_.decided(id);
  return kNever;
}

// Returns false if the log refused the proposal.
bool HostWatch::propose(const NodeId& id, const cluster::HostLost& lost) {
  const std::uint64_t index = c_.propose(cluster::CommandType::host_lost, lost);
  if (index != 0) losing_[id] = index;
  return index != 0;
}

}  // namespace dtrain::node
