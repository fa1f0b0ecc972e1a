// Leases as the coordinator grants them, and when an exclusive task may run elsewhere. docs/leases.md has the rules.
//
// A request is granted only after a round of the quorum that began after it arrived (raft's ReadAsked, or any proof
// that a majority still followed this term): so who is deposed or was stopped grants nothing that its successor does
// not count. One round serves all that wait, and begins at once when none is under way. A grant made in a term was asked
// for before the next coordinator was elected: that is why a new one need only count one lease from its election.
//
// An assignment is of one host and one boot of it: after a reboot the task needs a new assignment, and no grant is
// made to any other boot. So a report of another boot, made by a host that had already accepted this coordinator's
// order of the assignment (`fence`), proves that all of its attempts are over: it can only be a later one.
//
// Contract: pure; tell it what the log has applied (placed, removed) before the answer of a round is handled. Instants
// are of this node's CLOCK_BOOTTIME. Cost: O(log assignments) a call, a round O(its requests).
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
  std::size_t most_waiting = 4096;  // requests for the next round: a further one is dropped and counted
  BrokenRule broken_rule{};
};

// What the ledger says of an exclusive assignment.
struct LeasedPlace {
  MemberId host;
  std::string boot;  // the kernel's boot id, as its host reported it before the assignment was made
  // Runs under a lease; false for onDisconnect: keep, and for what began in a cluster of one host until its host has
  // said that it keeps one.
  bool leased = true;
  Duration lease{0};  // where its host keeps a longer one than this coordinator would
};

struct LeaseRequest {
  AssignmentId id;
  AttemptNumber attempt = 0;
  std::uint64_t nonce = 0;
  MemberId host;
  std::string boot;
};

struct LeaseAnswer {
  bool granted = false;  // else superseded: the assignment is not, or no longer, this host's
  LeaseRequest request;
};

struct LeaseOutputs {
  std::uint64_t begin_round = 0;  // 0: none
  std::vector<LeaseAnswer> answers;
};

// What a host says of its assignments.
struct LeaseReport {
  MemberId host;
  std::string boot;
  // The highest order that it has accepted durably, and that every shim which lives has confirmed: all that was sent
  // to it before is done. (An agent that accepts a stop while a start of its own is still on its way to the shim
  // would report an end that is none: world lease found that.)
  Fence fence;
  struct Entry {
    AssignmentId id;
    AttemptNumber attempt = 0;  // newest that was started
    bool exited = false;        // nothing of it is left
  };
  std::vector<Entry> entries;
};

// A host as membership sees it.
struct HostSeen {
  enum class State : std::uint8_t { alive, down, dead, forgotten };  // down: agent gone, host up
  State state{};
  Instant since{};
};

// May a successor be placed?
struct Replaceable {
  enum class Why : std::uint8_t {
    in_service,  // its host is alive, and nobody wants it elsewhere
    lease,       // the last possible grant runs out at `at`
    grace,       // the agent's time to come back ends at `at`
    exempt,      // only proof or forget-node
    exited,
    rebooted,
    forgotten,
  };
  Instant at = kNever;  // from then on
  Why why{};
};

// Does it stand still for want of a grant?
struct Renewed {
  Instant until = kNever;  // from then on it is frozen, unless granted again
  bool granted = false;    // by this coordinator; else its predecessor may have, just before
};

struct LeaseCounters {
  std::uint64_t rounds = 0, granted = 0, superseded = 0, dropped = 0, unanswered = 0;
};

class LeaseGrants {
 public:
  explicit LeaseGrants(const LeaseGrantOptions& options) : options_(options), rules_(options.broken_rule) {}

  // Elected: nothing is known but what placed() then says again, with fences of this epoch.
  void begin(Instant now);
  void end();  // deposed: what waits is dropped

  // As the log applies it. `fence`: of the order that first tells the host. Again with the same fence: nothing changes.
  void placed(const AssignmentId& id, const LeasedPlace& place, const Fence& fence);
  void removed(const AssignmentId& id) { places_.erase(id); }
  // Its host says that what began without a lease keeps one of this length: it may run for so long without any grant.
  void leased(Instant now, const AssignmentId& id, Duration lease);
  // Somebody wants it elsewhere (drain, move): nothing more is granted. `fence`: of the order that stops it.
  void withdraw(const AssignmentId& id, const Fence& fence);
  // A successor is proposed: nothing more is granted, until removed(), or restored because the log refused.
  void decided(const AssignmentId& id) { set_decided(id, true); }
  void restored(const AssignmentId& id) { set_decided(id, false); }

  void request(Instant now, LeaseRequest request, LeaseOutputs& out);
  void round_done(Instant now, std::uint64_t round, LeaseOutputs& out);
  void round_lost(std::uint64_t round, LeaseOutputs& out);  // its requests are dropped: who needs it asks again

  void report(const LeaseReport& report);
  Replaceable replaceable(const AssignmentId& id, const HostSeen& host) const;

  // Of what runs under a lease.
  Renewed renewed(const AssignmentId& id) const;

  const LeaseCounters& counters() const { return counters_; }

 private:
  using Rule = lease::Rule;
  struct Place {
    LeasedPlace place;
    Fence fence, stop;      // of the order that tells of it; of the one that stops it, if withdrawn
    Instant last_answer{};  // of the newest grant of this epoch, or the election
    AttemptNumber granted = 0, exited = 0;
    bool proven_exit = false, rebooted = false, withdrawn = false, decided = false;
  };
  void set_decided(const AssignmentId& id, bool decided);
  void answer(Instant now, const LeaseRequest& request, LeaseOutputs& out);
  void begin_round(LeaseOutputs& out);

  LeaseGrantOptions options_;
  lease::Rules rules_;
  std::map<AssignmentId, Place> places_;
  std::map<AssignmentId, LeaseRequest> waiting_;  // the newest of each assignment
  std::vector<LeaseRequest> in_round_;
  std::uint64_t round_ = 0, under_way_ = 0;
  Instant elected_{};
  LeaseCounters counters_;
};

}  // namespace dtrain::cluster
