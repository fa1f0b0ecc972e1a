// Grants leases, where this node coordinates, and decides when an exclusive task may run elsewhere. docs/leases.md
// has the rules.
//
// A request is granted only after a quorum round that began after it arrived (raft's ReadAsked, or any proof that a
// majority still followed this term), so that a deposed or stopped coordinator grants nothing that its successor does
// not count. One round serves all waiting requests, and begins at once if none is in flight. A grant made in a term
// was asked for before the next coordinator was elected; so a new coordinator need only count one lease from its
// election.
//
// That nothing of an assignment is left is the ledger's to know: the caller then calls removed(). This class only knows
// how long an absent host may still run what it has.
//
// Contract: pure. The caller must report what the log has applied (placed, removed) before it hands in the answer to
// a round. Instants are this node's CLOCK_BOOTTIME. Cost: O(log assignments) for a call, O(its requests) for a round.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/base/broken_rule.h"
#include "common/base/ids.h"
#include "common/base/lease.h"
#include "common/base/member_id.h"
#include "common/base/time.h"
#include "common/cluster/lease_rules.h"

namespace dtrain::cluster {

struct LeaseGrantOptions {
  Duration lease = 10s;
  Duration agent_grace = 5min;
  std::size_t most_waiting = 4096;  // requests for the next round; a further one is dropped and counted
  BrokenRule broken_rule{};
};

struct LeaseRequest {
  AssignmentId id;
  std::uint64_t nonce = 0;
  MemberId host;
};

struct LeaseAnswer {
  bool granted = false;  // false: superseded, because the assignment is not, or no longer, this host's
  LeaseRequest request;
};

struct LeaseOutputs {
  std::uint64_t begin_round = 0;  // number of the round to begin; 0: none
  std::vector<LeaseAnswer> answers;
};

// A host that is absent, by membership.
struct HostAway {
  bool down = false;  // only its agent is gone, and the host is up
  Instant since{};
};

// Until when an assignment's lease holds.
struct Renewed {
  Instant until = kNever;  // the task is frozen from then on unless it is granted a lease again
  bool granted = false;    // this coordinator granted it; false: the predecessor may have, just before the election
};

struct LeaseCounters {
  std::uint64_t rounds = 0, granted = 0, superseded = 0, dropped = 0, unanswered = 0;
};

class LeaseGrants {
 public:
  explicit LeaseGrants(const LeaseGrantOptions& options) : options_(options), rules_(options.broken_rule) {}

  // To be called when this node is elected. All is forgotten; placed() must then be called for every assignment.
  void begin(Instant now);
  void end();  // to be called when this node is deposed: waiting requests are dropped

  // To be called as the log applies it. `index`: of the entry that placed it there. A repetition changes nothing.
  void placed(const AssignmentId& id, const MemberId& host, std::uint64_t index);
  void removed(const AssignmentId& id) { places_.erase(id); }
  // The host reports that the task keeps a lease of this length, which may be longer than those that this coordinator
  // grants: it may run for so long without a grant.
  void leased(Instant now, const AssignmentId& id, Duration lease);
  // A successor is proposed: no more grants until removed(), or until restored() because the log refused the proposal.
  void decided(const AssignmentId& id) { set_decided(id, true); }
  void restored(const AssignmentId& id) { set_decided(id, false); }

  void request(Instant now, LeaseRequest request, LeaseOutputs& out);
  void round_done(Instant now, std::uint64_t round, LeaseOutputs& out);
  void round_lost(std::uint64_t round, LeaseOutputs& out);  // drops the round's requests; their shims ask again

  // The instant from which on nothing of the assignment can run on its absent host. Only for one that runs under a lease.
  Instant over_at(const AssignmentId& id, const HostAway& host) const;

  // For an assignment that runs under a lease.
  Renewed renewed(const AssignmentId& id) const;

  const LeaseCounters& counters() const { return counters_; }

 private:
  using Rule = lease::Rule;
  struct Place {
    MemberId host;
    std::uint64_t index = 0;
    Duration lease{0};      // as its host reported; 0: the host may run it without one
    Instant last_answer{};  // when the newest grant of this epoch was given, or of the election
    bool granted = false, decided = false;
  };
  void set_decided(const AssignmentId& id, bool decided);
  void answer(Instant now, const LeaseRequest& request, LeaseOutputs& out);
  void begin_round(LeaseOutputs& out);

  LeaseGrantOptions options_;
  lease::Rules rules_;
  std::map<AssignmentId, Place> places_;
  std::map<AssignmentId, LeaseRequest> waiting_;  // the newest request of each assignment
  std::vector<LeaseRequest> in_round_;
  std::uint64_t round_ = 0, under_way_ = 0;
  Instant elected_{};
  LeaseCounters counters_;
};

}  // namespace dtrain::cluster
