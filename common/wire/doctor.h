// The answer to `dtrainctl doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrain::wire {

struct Finding {
  std::string check;    // "disk", "clock", ...
  std::string node;     // name of the node at fault, as far as can be told
  std::string level;    // ok | warn | bad
  std::string finding;  // one sentence for people
  std::string cure;     // what to do; "" if nothing is to be done
  template <class V>
  void fields(V& v) {
    v("check", check);
    v("node", node);
    v("level", level);
    v("finding", finding);
    v("cure", cure);
  }
  bool operator==(const Finding&) const = default;
};

// How the host that was asked sees the asking agent.
struct PeerSight {
  std::string address;             // advertised, as known to the host that was asked
  std::string gossip, bulk;        // why no connection to that port could be made; "": one could
  std::vector<std::string> named;  // addresses that its name resolves to there; empty: the name is not known there
  template <class V>
  void fields(V& v) {
    v("address", address);
    v("gossip", gossip);
    v("bulk", bulk);
    v("named", named);
  }
};

struct DoctorReply {
  std::vector<Finding> findings;  // to another agent: without those that are `ok`
  std::int64_t wall_ms = 0;       // clock of the host that was asked, when it answered; ms since the epoch
  std::int64_t took_ns = 0;       // how long it looked before it answered
  PeerSight sight;                // to another agent only
  template <class V>
  void fields(V& v) {
    v("findings", findings);
    v("wall_ms", wall_ms);
    v("took_ns", took_ns);
    v("sight", sight);
  }
};

}  // namespace dtrain::wire
