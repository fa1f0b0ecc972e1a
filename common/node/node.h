// Node makes all decisions of an agent, as one deterministic state machine. It is told the time and what happened, and
// answers with what to do. It owns no descriptor, clock, thread or file; the daemon and the simulator run this same class.
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
#include "common/wire/manifest_settings.h"

namespace dtrain::cluster {
class Ledger;
}

namespace dtrain::node {

struct NodeOptions {
  std::string cluster_name;
  std::string cluster_id;
  std::string version;
  bool allow_root = false;  // uid 0 may submit
  Access access;
  std::uint32_t agent_uid = 0;  // not 0: the agent can run jobs only as this user
  std::uint16_t task_port_first = 20000, task_port_last = 29999;
  std::map<std::string, std::string> pass_env;  // tasks.passEnv, read by the agent
  wire::ManifestSettings manifests;             // volumes, priorityClasses, tasks.imageFallback
  std::string prolog, epilog;                   // tasks.prolog, tasks.epilog: absolute paths; "": none
  Duration down_grace = 15s;                    // timing.downGrace: agent gone, host up
  Duration lease = 10s;                         // timing.lease
  // timing.agentGrace: how long leased tasks of a host whose agent is down wait for the agent
  Duration agent_grace = 30s;
  Duration restore_wait = 10min;        // timing.restoreWait: how long a job waits for hosts that have its newest checkpoint
  KeepFree keep_free{0, 0};             // storage.minFree: with less free space this host takes no new tasks; 0: no minimum
  std::uint64_t snapshot_every = 4096;  // entries between snapshots of the ledger
  std::uint64_t compare_every = 4096;   // entries between comparisons of its copies (node/copy_check.h)
  // newest version of the ledger that the program knows; differs only in tests of upgrades
  std::uint32_t ledger_knows = cluster::kNewestVersion;
  bool packages_are_given = false;  // in simulations, which have no uploads: a user may use any package
  // --break: switches one protocol rule off, to show that the simulator notices. Empty in production.
  BrokenRule broken_rule{};
};

class Node {
 public:
  Node(NodeOptions options, Rng rng, Log& log);
  ~Node();
  // Never blocks, never throws. Effects are appended in the order in which they must be performed.
  // The first event is Started, once.
  void step(Now now, const Event& event, std::vector<Effect>& out);
  // The earliest instant at which Tick must be delivered; kNever when nothing waits for time.
  Instant deadline() const;
  // A one-line status for people who look at this host's services. Only after Started.
  std::string status_line() const;
  // True if the cluster has other members, up or not. Only after Started.
  bool among_others() const;
  // The number of a connection that the agent is about to report (ConnectionOpened). Only after Started.
  ConnectionId next_connection();
  // True if the client of that connection may use this package in a job.
  bool may_have_package(ConnectionId connection, const std::string& digest) const;
  // Encoded ledger, for the replay check of tests.
  std::string ledger_bytes() const;
  // For tests: the ledger itself, valid until the next step; the index of the newest log entry in it (0: there is no
  // copy here); whether this node believes that it coordinates; how many connections of its own are open.
  const cluster::Ledger& ledger() const;
  std::uint64_t ledger_index() const;
  bool coordinates() const;
  std::size_t own_connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain::node
