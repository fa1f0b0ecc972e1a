// The few members that this node probes in turn and forwards its rumours to: stable while the members are, and the
// same number at any size.
//
// Members lie on several rings, each in another pseudo-random order (position = mix of id and ring). Neighbours are
// the successor and the predecessor on each ring, so being a neighbour is mutual between nodes that agree about the
// members, and the graph is an expander with high probability (Law and Siu, INFOCOM 2003; as in Rapid, ATC 2018).
// Adding or removing a member takes O(rings), except a neighbour: then one pass over the candidates finds the next.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/member_id.h"

namespace dtrain::gossip {

class Rings {
 public:
  using Visit = std::function<void(const MemberId&)>;
  // Calls visit for every remaining candidate; this node itself and repetitions do no harm.
  using Candidates = std::function<void(const Visit&)>;

  Rings(const MemberId& self, std::uint32_t rings);

  // True when neighbours() changed. A candidate may be added again.
  bool add(const MemberId& id);
  bool remove(const MemberId& id,
              const Candidates& candidates);   // candidates: without id (it is skipped anyway)
  bool rebuild(const Candidates& candidates);  // after many changes at once

  // Successor before predecessor, from the first ring on, each member once, never this node; at most 2 * rings.
  const std::vector<MemberId>& neighbours() const { return neighbours_; }
  bool is_neighbour(const MemberId& id) const;

 private:
  struct Place {
    MemberId id;                 // none: there is nobody
    std::uint64_t distance = 0;  // on the ring, in this direction
  };
  bool offer(const MemberId& id);
  bool list();  // places_ -> neighbours_; true when it changed

  MemberId self_;
  std::uint32_t rings_;
  std::vector<Place> places_;  // successor and predecessor, ring by ring
  std::vector<MemberId> neighbours_;
};

}  // namespace dtrain::gossip
