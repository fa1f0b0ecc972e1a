// The ranks of a collective job wait for each other at every step: near each other they wait less.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/cluster/attempt.h"

namespace dtrain::cluster {

// The label whose value names a host's rack.
inline constexpr const char* kRackLabel = "rack";

// Puts all tasks of the roles `ranks` (numbers of fits): on one host (where one NUMA node has GPUs for all, if there is
// such a host; then the one that is left with the fewest GPUs), else in one rack (the one left with the least room), else
// in as few racks and hosts as can be. At most kCloseTries hosts and racks are tried whole. Returns the role that found
// no room; nullopt: all are placed.
std::optional<std::size_t> put_close(Attempt& attempt, const std::vector<Fit>& fits, const std::vector<std::size_t>& ranks);

}  // namespace dtrain::cluster
