// What the parts of Node share: the ledger and its log, this host's facts, the time of this turn, and the way
// out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/cluster/ledger.h"
#include "common/node/effect.h"
#include "common/node/event.h"
#include "common/node/node.h"
#include "common/raft/solo_log.h"

namespace dtrain::node {

class ClusterMembers;

struct Context {
  Context(Options o, Rng r, Log& l) : options(std::move(o)), rng(r), log(l) {}

  Options options;
  Rng rng;
  Log& log;
  NodeFacts facts;
  bool holds_ledger = true;           // false: a member of a cluster whose ledger another node holds
  ClusterMembers* members = nullptr;  // whom this node knows
  cluster::Ledger ledger;
  std::optional<raft::SoloLog> replicated;
  bool serving = false;         // this life's own entry is applied
  bool storage_failed = false;  // nothing is decided any more
  Now now;
  std::vector<Effect>* out = nullptr;
  std::map<AssignmentId, std::string> status_text;  // last STATUS= of each task; not durable
  std::uint64_t last_token = 0;

  void emit(Effect effect) { out->push_back(std::move(effect)); }
  std::uint64_t next_token() { return ++last_token; }
  Duration elapsed() const { return ledger.elapsed_at(now.boot); }

  // Index at which the command will be applied.
  template <class T>
  std::uint64_t propose(cluster::CommandType type, const T& body) {
    return replicated->propose(cluster::make_command(type, replicated->term(), now, body));
  }
};

}  // namespace dtrain::node
