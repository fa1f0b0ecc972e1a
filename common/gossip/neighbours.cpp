#include "common/gossip/neighbours.h"

#include <algorithm>
#include <tuple>

#include "common/gossip/mix.h"

namespace dtrain::gossip {

Rings::Rings(const MemberId& self, std::uint32_t rings) : self_(self), rings_(rings), places_(2 * std::size_t{rings}) {}

bool Rings::offer(const MemberId& id) {
  if (id == self_ || id.none()) return false;
  bool taken = false;
  for (std::uint32_t ring = 0; ring < rings_; ++ring) {
    const std::uint64_t ahead = mix64(id, ring) - mix64(self_, ring);  // around the ring: modulo 2^64
    const Place places[] = {{id, ahead}, {id, std::uint64_t{0} - ahead}};
    for (std::size_t side = 0; side < 2; ++side) {
      Place& place = places_[2 * ring + side];
      const Place& offered = places[side];
      const bool nearer =
          std::tie(offered.distance, offered.id) < std::tie(place.distance, place.id);  // ids decide between equal positions
      if (!place.id.none() && !nearer) continue;
      place = offered;
      taken = true;
    }
  }
  return taken;
}

bool Rings::list() {
  std::vector<MemberId> listed;
  for (const Place& place : places_) {
    if (!place.id.none() && std::ranges::find(listed, place.id) == listed.end()) listed.push_back(place.id);
  }
  const bool changed = listed != neighbours_;
  neighbours_ = std::move(listed);
  return changed;
}

bool Rings::add(const MemberId& id) { return offer(id) && list(); }

bool Rings::remove(const MemberId& id, const Candidates& candidates) {
  if (!is_neighbour(id)) return false;
  for (Place& place : places_) {
    if (place.id == id) place = {};
  }
  candidates([&](const MemberId& candidate) {
    if (candidate != id) offer(candidate);
  });
  return list();
}

bool Rings::rebuild(const Candidates& candidates) {
  std::ranges::fill(places_, Place{});
  candidates([&](const MemberId& candidate) { offer(candidate); });
  return list();
}

bool Rings::is_neighbour(const MemberId& id) const { return std::ranges::find(neighbours_, id) != neighbours_.end(); }

}  // namespace dtrain::gossip
