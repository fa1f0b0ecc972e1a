// Explains why a role finds no room, in words that people can act on: what it needs, which host comes nearest, and
// which rule excludes how many hosts.
#pragma once

#include <cstddef>
#include <string>

#include "common/cluster/attempt.h"

namespace dtrain::cluster {

// Of fits[f] at the attempt's present state, where its tasks do not all fit:
//   worker-0 needs 4 GPUs on one host, best is 2 on h3; 2 of 9 hosts are cordoned
//   12 tasks of worker need 1 A100 GPU each, there is room for 9 (on 3 hosts, most on h3: 4)
//   3 tasks of worker need a host each (antiAffinity: host), 2 have room
//   ps-0 needs a host with label zone=a, none of 9 hosts has it
std::string why_not(const Fit& fit, std::size_t f, const Attempt& attempt);

}  // namespace dtrain::cluster
