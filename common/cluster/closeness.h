// Places the ranks of a collective job near each other, because they wait for each other at every step.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/cluster/attempt.h"

namespace dtrain::cluster {

// The label whose value names a host's rack.
inline constexpr const char* kRackLabel = "rack";

// Places all tasks of the roles `ranks` (indices of fits): on one host (one where a single NUMA node has GPUs for
// all, if there is such a host; among several, the one that is left with the fewest GPUs), else in one rack (the one
// left with the least room), else in as few racks and hosts as can be. At most kCloseTries hosts and racks are tried
// for all tasks. Returns the role that found no room; nullopt: all are placed.
std::optional<std::size_t> put_close(Attempt& attempt, const std::vector<Fit>& fits, const std::vector<std::size_t>& ranks);

}  // namespace dtrain::cluster
