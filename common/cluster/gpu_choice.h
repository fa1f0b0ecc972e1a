// Chooses which of a host's free GPUs a task gets: GPUs that NVLink or XGMI joins, on as few NUMA nodes as possible,
// the same as its neighbours'.
#pragma once

#include <cstdint>

#include "common/cluster/host_capacity.h"

namespace dtrain::cluster {

// Returns `want` bits of `free` (bit i: host.gpus[i]; at least `want` are set). `in_all`: what this task and the
// following ones on the host will want together. `beside`: GPUs that the job has here already.
//
// A link group is chosen first (all GPUs outside any group form one more), then a NUMA node within it, both by the
// same rule. Preferred in this order: one that holds all of `in_all`; one that holds `want`, and among those the one
// that the job is on, then a link group for several GPUs and no group for a single one, then the one with the fewest
// free. If none holds `want`, those with the most free are taken one after the other, so that they are as few as
// possible. Within a NUMA node the lowest numbers are taken.
std::uint64_t choose_gpus(const HostCapacity& host, std::uint64_t free, std::uint32_t want, std::uint32_t in_all, std::uint64_t beside);

// The largest number of GPUs in `free` that lie in one link group or on one NUMA node.
std::uint32_t most_together(const HostCapacity& host, std::uint64_t free);

}  // namespace dtrain::cluster
