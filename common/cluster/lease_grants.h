// Grants leases, where this node coordinates, and decides when an exclusive task may run elsewhere. docs/leases.md
// has the rules.
//
// A request is granted only after a quorum round that began after it arrived (raft's ReadAsked, or any proof that a
// majority still followed this term), so that a deposed or stopped coordinator grants nothing that its successor does
// not count. One round serves all waiting requests, and begins at once if none is in flight. A grant made in a term
// was asked for before the next coordinator was elected; so a new coordinator need only count one lease from its
// election.
//
// An assignment belongs to one host and one boot of it: after a reboot the task needs a new assignment, and no other
// boot gets a grant. So a report from another boot, by a host that had already accepted this coordinator's order for
// the assignment (`fence`), proves that all of its attempts are over, because that boot can only be a later one.
//
// Contract: pure. The caller must report what the log has applied (placed, removed) before it hands in the answer to
// a round. Instants are this node's CLOCK_BOOTTIME. Cost: O(log assignments) for a call, O(its requests) for a round.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
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

// An exclusive assignment, as the ledger has it.
struct LeasedPlace {
  MemberId host;
  std::string boot;  // the kernel's boot id that the host reported before the assignment was made
  // The task runs under a lease; false with onDisconnect: keep, and for a task that began in a cluster of one host,
  // until its host reports that it keeps a lease.
  bool leased = true;
  Duration lease{0};  // set if its host keeps a longer lease than this coordinator grants
};

struct LeaseRequest {
  AssignmentId id;
  AttemptNumber attempt = 0;
  std::uint64_t nonce = 0;
  MemberId host;
  std::string boot;
};

struct LeaseAnswer {
  bool granted = false;  // false: superseded, because the assignment is not, or no longer, this host's
  LeaseRequest request;
};

struct LeaseOutputs {
  std::uint64_t begin_round = 0;  // number of the round to begin; 0: none
  std::vector<LeaseAnswer> answers;
};

// A host's report about its assignments.
struct LeaseReport {
  MemberId host;
  std::string boot;
  // The highest order that the host has accepted durably and that every living shim has confirmed: all that was sent
  // to it before is done. (Otherwise an agent that accepts a stop while its own start is still on the way to the shim
  // would report an end that is none; the simulated world `lease` found that.)
  Fence fence;
  struct Entry {
    AssignmentId id;
    AttemptNumber attempt = 0;  // the newest that was started
    bool exited = false;        // nothing of it is left
  };
  std::vector<Entry> entries;
};

// A host's state, by membership.
struct HostSeen {
  enum class State : std::uint8_t { alive, down, dead, forgotten };  // down: the agent is gone and the host is up
  State state{};
  Instant since{};
};

// From when on a successor of the assignment may be placed, and what that depends on.
struct Replaceable {
  enum class Why : std::uint8_t {
    in_service,  // the host is alive and nobody wants the task elsewhere: not at all
    lease,       // the last possible grant runs out at `at`
    grace,       // the agent's time to come back ends at `at`
    exempt,      // only a proof of its end, or forget-node, will do
    exited,
    rebooted,
    forgotten,
  };
  Instant at = kNever;  // the successor may be placed from then on
  Why why{};
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

  // To be called when this node is elected. All is forgotten; placed() must then be called for every assignment, with
  // fences of this epoch.
  void begin(Instant now);
  void end();  // to be called when this node is deposed: waiting requests are dropped

  // To be called as the log applies it. `fence`: of the order that first tells the host. A repetition with the same
  // fence changes nothing.
  void placed(const AssignmentId& id, const LeasedPlace& place, const Fence& fence);
  void removed(const AssignmentId& id) { places_.erase(id); }
  // The host reports that a task which began without a lease now keeps one of this length: it may run for so long
  // without a grant.
  void leased(Instant now, const AssignmentId& id, Duration lease);
  // The task is wanted elsewhere (drain, move): it gets no more grants. `fence`: of the order that stops it.
  void withdraw(const AssignmentId& id, const Fence& fence);
  // A successor is proposed: no more grants until removed(), or until restored() because the log refused the proposal.
  void decided(const AssignmentId& id) { set_decided(id, true); }
  void restored(const AssignmentId& id) { set_decided(id, false); }

  void request(Instant now, LeaseRequest request, LeaseOutputs& out);
  void round_done(Instant now, std::uint64_t round, LeaseOutputs& out);
  void round_lost(std::uint64_t round, LeaseOutputs& out);  // drops the round's requests; their shims ask again

  void report(const LeaseReport& report);
  Replaceable replaceable(const AssignmentId& id, const HostSeen& host) const;

  // For an assignment that runs under a lease.
  Renewed renewed(const AssignmentId& id) const;

  const LeaseCounters& counters() const { return counters_; }

 private:
  using Rule = lease::Rule;
  struct Place {
    LeasedPlace place;
    Fence fence, stop;      // of the order that first tells the host; of the order that stops the task, if withdrawn
    Instant last_answer{};  // when the newest grant of this epoch was given, or of the election
    AttemptNumber granted = 0, exited = 0;
    bool proven_exit = false, rebooted = false, withdrawn = false, decided = false;
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
