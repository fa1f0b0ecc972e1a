// What the parts of Node share: the ledger and its log, this host's facts, the time of this turn, and the list of effects.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/cluster/host_capacity.h"
#include "common/cluster/ledger.h"
#include "common/job/container_engine.h"
#include "common/node/connections.h"
#include "common/node/effect.h"
#include "common/node/event.h"
#include "common/node/host_facts.h"
#include "common/node/node.h"
#include "common/node/replica.h"
#include "common/node/tickets.h"
#include "common/task/assignments.h"

namespace dtrain::node {

class ClusterMembers;
class Forming;

// Id of a node whose own id cannot be parsed (in tests); such a node has no other members.
inline constexpr MemberId kNameless{0, 1};

struct Context {
  Context(NodeOptions o, Rng r, Log& l) : options(std::move(o)), rng(r), log(l) {}

  NodeOptions options;
  Rng rng;
  Log& log;
  NodeFacts facts;
  ClusterMembers* members = nullptr;  // the membership
  Forming* forming = nullptr;         // the formation of a cluster
  cluster::Ledger ledger;
  std::optional<Replica> replicated;
  bool serving = false;         // this node coordinates: it leads, and its first entry of this term is applied
  bool current = false;         // an entry of this agent's life is applied, so what the ledger says of this host is not old
  Instant led{};                // when this node last led the log
  Instant last_led{};           // when any node last led, as far as this node knows
  bool let_go = false;          // the leader removed this learner, though this copy of the log does not show that
  bool storage_failed = false;  // nothing is decided any more
  // What this copy of the ledger says of itself (node/copy_check.h).
  struct {
    CopyMark mark;
    bool wants_state = false;
  } copy;
  Now now;
  std::vector<Effect>* out = nullptr;
  struct SeenHere {
    std::string status;              // last STATUS=
    std::vector<std::int32_t> pids;  // of the ranks that run; 0: it has ended
  };
  std::map<AssignmentId, SeenHere> seen_here;  // of running tasks of this host; not durable
  const task::Assignments* host = nullptr;     // this host's tasks; nullptr: not adopted yet
  // Used by host_capacities(): each member's fact as it came, and what was made of it.
  mutable std::map<MemberId, std::pair<std::string, cluster::HostCapacity>> capacities;
  Tickets tickets;
  std::deque<Event> later;             // what parts answer on behalf of the world; Node handles it before the end of the turn
  std::vector<std::string> fell_sick;  // why this host is given no new tasks from now on; to be reported likewise
  Connections connections;

  void emit(Effect effect) { out->push_back(std::move(effect)); }
  std::uint64_t next_token() { return tickets.give(nullptr); }
  // True if this node has a copy of the ledger that is kept up to date: it votes or learns, and its program
  // understands the log.
  bool holds_ledger() const {
    return replicated && !let_go && !ledger.behind() && replicated->raft().configuration().has(replicated->raft().id());
  }
  // True if tasks whose role names an image run in it here.
  bool runs_images() const { return !facts.images.empty() && facts.images != job::kImagesOnHost; }
  // True if there are, or were, other nodes with a copy of the log.
  bool among_others() const {
    if (!replicated) return false;
    const raft::Configuration& configuration = replicated->raft().configuration();
    // After recover-quorum this node is alone in the configuration, but the lost ones may still run tasks.
    return configuration.voters.size() + configuration.learners.size() > 1 || replicated->raft().history().number > 1;
  }
  // The cluster's elapsed time, by the coordinator's clock or by the log's.
  Duration elapsed() const {
    if (serving || !replicated || replicated->alone()) return ledger.elapsed_at(now.boot);
    const Duration since = replicated->raft().elapsed(now.boot) - ledger.state().log_elapsed;
    return ledger.state().elapsed + std::max<Duration>(since, 0ns);
  }

  // Returns the index at which the command will be applied, or 0 if it was refused.
  template <class T>
  std::uint64_t propose(cluster::CommandType type, const T& body) {
    return propose_encoded(type, wire::encode(body), cluster::version_of(type, body).value_or(cluster::kFirstVersion), {});
  }
  // `needs`: the version of the ledger that the body needs.
  std::uint64_t propose_encoded(cluster::CommandType type, std::string body, std::uint32_t needs,
                                std::optional<cluster::RequestStamp> request);
};

}  // namespace dtrain::node
