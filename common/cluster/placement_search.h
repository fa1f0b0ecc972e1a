// The last try for a job of several roles: every way to place it, up to a bound.
#pragma once

#include <vector>

#include "common/cluster/attempt.h"

namespace dtrain::cluster {

// Searches depth first. Tasks of a role are alike: each goes to the same host as the one before or a later one, and
// of hosts that look alike only the first is tried. Returns false if there is no place, or if kSearchHosts or
// kSearchSteps was exceeded.
bool search(Attempt& attempt, const std::vector<Fit>& fits);

}  // namespace dtrain::cluster
