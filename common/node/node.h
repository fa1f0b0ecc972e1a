// Node: everything an agent decides, as one deterministic machine. Told the time and what happened, it
// answers with what to do. It owns no descriptor, clock, thread or file; the daemon and the simulator run
// this same class.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/broken_rule.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/base/time.h"
#include "common/cluster/versions.h"
#include "common/node/effect.h"
#include "common/node/event.h"

namespace dtrain::cluster {
class Ledger;
}

namespace dtrain::node {

struct Options {
  std::string cluster_name;
  std::string cluster_id;
  std::string version;
  bool allow_root = false;      // may uid 0 submit
  Access access;
  std::uint32_t agent_uid = 0;  // not 0: an agent that can run jobs as this user alone
  std::uint16_t task_port_first = 20000, task_port_last = 29999;
  std::map<std::string, std::string> pass_env;  // tasks.passEnv, read by the agent
  std::string prolog, epilog;                   // tasks.prolog, tasks.epilog: absolute paths; "": none
  Duration down_grace = 15s;                    // timing.downGrace: agent gone, host up
  Duration lease = 10s;                         // timing.lease
  Duration agent_grace = 30s;                   // timing.agentGrace: what such a host has under leases waits for its agent
  Duration restore_wait = 10min;                // timing.restoreWait: a job waits so long for hosts that have its newest checkpoint
  KeepFree keep_free{0, 0};                     // storage.minFree: below, this host takes no new tasks. 0: whatever is free
  std::uint64_t snapshot_every = 4096;          // entries between snapshots of the ledger
  std::uint64_t compare_every = 1024;           // entries between comparisons of its copies (node/copy_check.h)
  std::uint32_t ledger_knows = cluster::kNewestVersion;  // of the ledger, the newest version; another one only in tests of upgrades
  bool packages_are_given = false;              // in simulations, which have no uploads: who names a package may have it
  // --break: switches one protocol rule off, to show that the simulator notices. Empty in production.
  BrokenRule broken_rule{};
};

class Node {
 public:
  Node(Options options, Rng rng, Log& log);
  ~Node();
  // Never blocks, never throws. Effects are appended in the order in which they must be performed.
  // The first event is Started, once.
  void step(Now now, const Event& event, std::vector<Effect>& out);
  // Earliest instant at which Tick must be delivered; kNever when nothing waits for time.
  Instant deadline() const;
  // One line for people who look at this host's services. After Started only.
  std::string status_line() const;
  // Other members are in the cluster, up or not. After Started only.
  bool among_others() const;
  // May the client of that connection name this package in a job?
  bool may_have_package(ConnectionId connection, const std::string& digest) const;
  // Encoded ledger, for the replay check of tests.
  std::string ledger_bytes() const;
  // For tests likewise: the ledger itself, until the next step; the newest entry of the log in it (0: no copy is here); whether
  // this node coordinates, as it knows.
  const cluster::Ledger& ledger() const;
  std::uint64_t ledger_index() const;
  bool coordinates() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain::node
