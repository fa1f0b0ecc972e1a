// Leases of exclusive tasks (docs/leases.md): passes this host's lease questions to the coordinator, and, where this
// node coordinates, keeps cluster::LeaseGrants in step with the ledger.
//
// The proof that an assignment is over is in the ledger: a host's report that nothing of an assignment is left counts
// once it is applied, and only from the host's newest life. So this class looks at no reports and no boots: a
// rebooted host reports that its attempts are over like any other. What is left to this class is how long a silent
// host may still run what it has.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/cluster/lease_grants.h"
#include "common/node/context.h"

namespace dtrain::node {

// requests that wait for the next round; a further one is dropped, and its shim asks again
inline constexpr std::size_t kLeaseRequests = 4096;

class Leases {
 public:
  explicit Leases(Context& context);

  // ---- of this host
  //
  // Passes a question on to the coordinator; a lost question is asked again by its shim.
  void ask(const LeaseAsked& asked);
  void received(const wire::LeaseAnswer& answer);
  // Returns the answers for this host's shims since the last call.
  std::vector<AnswerLease> take_answers() { return std::exchange(answers_, {}); }

  // ---- while this node coordinates
  //
  // After begin(), job_changed() must be called for every job of the ledger.
  void begin();
  void end();
  void job_changed(JobId id);
  void requested(const MemberId& host, const wire::LeaseRequest& request);
  // The answer to a round. job_changed() must have been called for all that the previous step applied.
  void answered(const raft::Answer& answer);
  // The instant from which on nothing that this absent host had under leases can run; kNever: it had nothing under a
  // lease, or reported the end of all of it.
  Instant over_at(const NodeId& host, const cluster::HostAway& away) const;
  // What of a job runs under leases, as its hosts last reported.
  struct Frozen {
    std::optional<AssignmentId> one;  // one that must be frozen by now, because it was granted no lease for so long
    bool none = true;                 // this coordinator has renewed all of the job's leases
    Instant next = kNever;            // when the next one must be frozen unless it is granted a lease
  };
  Frozen frozen(JobId id) const;
  // Before this instant the coordinator does not know how long a task stood still that its predecessor granted a lease.
  Instant known_from() const { return began_ + c_.options.lease; }
  // HostLost with the end of the host's leases is proposed: the host is granted nothing until that is applied.
  void decided(const NodeId& host) { decide(host, true); }
  void applied(const NodeId& host) { decide(host, false); }

 private:
  void settle(cluster::LeaseOutputs& out);
  void decide(const NodeId& host, bool decided);

  Context& c_;
  cluster::LeaseGrants grants_;
  std::map<JobId, std::map<AssignmentId, NodeId>> placed_;  // what grants_ was told of each job
  std::vector<AnswerLease> answers_;
  Instant began_{};
};

}  // namespace dtrain::node
