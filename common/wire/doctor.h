// What `dtrainctl doctor` is told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrain::wire {

struct Finding {
  std::string check;    // "disk", "clock", ...
  std::string node;     // whose fault it is, as far as can be told: a node's name
  std::string level;    // ok | warn | bad
  std::string finding;  // one sentence for people
  std::string cure;     // what to do; "" where nothing is to be done
  template <class V> void fields(V& v) {
    v("check", check); v("node", node); v("level", level); v("finding", finding); v("cure", cure);
  }
  bool operator==(const Finding&) const = default;
};

// How the host asked sees the one that asks, which is another agent.
struct PeerSight {
  std::string address;               // advertised, as the host asked knows it
  std::string gossip, bulk;          // why no connection could be made to that port; "": one could
  std::vector<std::string> named;    // what its name means there; none: it is not known there
  template <class V> void fields(V& v) { v("address", address); v("gossip", gossip); v("bulk", bulk); v("named", named); }
};

struct DoctorReply {
  std::vector<Finding> findings;     // to another agent: without those that are well
  std::int64_t wall_ms = 0;          // the clock of the host asked when it answered, since the epoch
  std::int64_t took_ns = 0;          // it looked for so long before it answered
  PeerSight sight;                   // to another agent only
  template <class V> void fields(V& v) { v("findings", findings); v("wall_ms", wall_ms); v("took_ns", took_ns); v("sight", sight); }
};

}  // namespace dtrain::wire
