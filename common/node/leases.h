// Leases of exclusive tasks (docs/leases.md): this host's questions on their way to who coordinates, and, where this node
// does, cluster::LeaseGrants beside the ledger.
//
// The ledger stands for most of what proves an end there: a host's word that nothing of an assignment is left counts once it
// is applied, and only that of the host's newest life. So here no reports are looked at, and no boots: a rebooted host says
// that its attempts are over like any other. What is left is the time that a host which says nothing may still run what it has.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/cluster/lease_grants.h"
#include "common/node/context.h"

namespace dtrain::node {

inline constexpr std::size_t kLeaseRequests = 4096;  // that wait for the next round; a further one is dropped: its shim asks again

class Leases {
 public:
  explicit Leases(Context& context);

  // ---- of this host
  // Its question goes to the coordinator, or is lost: the shim asks again.
  void ask(const LeaseAsked& asked);
  void received(const wire::LeaseAnswer& answer);
  // What came for this host's shims since the last call.
  std::vector<AnswerLease> take_answers() { return std::exchange(answers_, {}); }

  // ---- while this node coordinates
  // All that the ledger has must be told by follow() then.
  void begin();
  void end();
  void follow(JobId id);
  void requested(const MemberId& host, const wire::LeaseRequest& request);
  // Of a round. What the step before it applied must have been followed.
  void answered(const raft::Answer& answer);
  // From when on nothing that this host, which is away, had under a lease can run; kNever: it has nothing of that kind, or all
  // of it was said to be over.
  Instant over_at(const NodeId& host, const cluster::HostSeen& seen) const;
  // What of the job runs under leases, as its hosts said last.
  struct Frozen {
    std::optional<AssignmentId> one;  // that must be frozen by now: it was granted nothing for so long
    bool none = true;                 // all were granted again, by this coordinator
    Instant next = kNever;            // when the next of them will be, unless it is granted
  };
  Frozen frozen(JobId id) const;
  // Before, it is not known how long what its predecessor granted stood still meanwhile.
  Instant known_from() const { return began_ + c_.options.lease; }
  // HostLost with the end of its leases is proposed: nothing is granted to it any more, until that is applied.
  void decided(const NodeId& host) { decide(host, true); }
  void applied(const NodeId& host) { decide(host, false); }

 private:
  void settle(cluster::LeaseOutputs& out);
  void decide(const NodeId& host, bool decided);

  Context& c_;
  cluster::LeaseGrants grants_;
  std::map<JobId, std::map<AssignmentId, NodeId>> placed_;  // as grants_ knows it
  std::vector<AnswerLease> answers_;
  Instant began_{};
};

}  // namespace dtrain::node
