// The last try for a job of several roles: every way to place it, up to a bound.
#pragma once

#include <vector>

#include "common/cluster/attempt.h"

namespace dtrain::cluster {

// Depth first. Tasks of a role are alike: each goes to the same host as the one before or a later one; of hosts that look
// alike only the first is tried. False: there is no place, or kSearchHosts or kSearchSteps did not suffice.
bool search(Attempt& attempt, const std::vector<Fit>& fits);

}  // namespace dtrain::cluster
