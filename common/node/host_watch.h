// Hosts with tasks that went away, or that get no copy of the log. What membership and the leases say of them is not in
// the log: here it becomes a command (HostLost), which all replicas apply at the same place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/node/context.h"
#include "common/node/leases.h"

namespace dtrain::node {

class HostWatch {
 public:
  HostWatch(Context& context, Leases& leases) : c_(context), leases_(leases) {}

  void reset();
  void applied(std::uint64_t index);  // entries up to this index are applied
  // To be called when membership changed, and at least every kLookEvery (watched_jobs.h). Returns when it must be called again
  // at the latest; kNever: it waits for no time.
  Instant look();

 private:
  struct Away {
    Instant since{};
    Instant back{};  // in service again since then; 0: it is away
  };
  struct WithoutCopy {
    Instant since{};
    bool waits = false;  // it waits for its turn to be sent a snapshot
  };
  Instant look_at(const NodeId& id, const std::set<MemberId>& copying, const std::set<MemberId>& waiting);
  Instant watch_copy(const NodeId& id, const std::string& name, bool waits);
  Instant watch_absent(const NodeId& id, const std::optional<gossip::MemberView>& member);
  void came_back(const NodeId& id);
  bool propose(const NodeId& id, const cluster::HostLost& lost);

  Context& c_;
  Leases& leases_;
  std::map<NodeId, Away> away_;                 // hosts with tasks that are down, or were until recently
  std::map<NodeId, WithoutCopy> without_copy_;  // hosts that are up and have tasks but no copy of the log
  Instant copy_came_{};                         // when such a host last got its copy
  std::map<NodeId, std::uint64_t> losing_;      // index of the HostLost in flight, by host
};

}  // namespace dtrain::node
