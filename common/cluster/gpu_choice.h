// Which of a host's free GPUs a task gets: those that NVLink or XGMI joins, as few NUMA nodes as can be, the same as the tasks
// beside it.
#pragma once

#include <cstdint>

#include "common/cluster/host_capacity.h"

namespace dtrain::cluster {

// `want` bits of `free` (bit i: host.gpus[i]; at least `want` are set). `in_all`: what this task and those that follow it
// on the host will want together. `beside`: GPUs that the job has here already.
//
// First a link group, all GPUs that are in none being one more; then a NUMA node of it, both by the same rule, in this order: one
// that holds all of `in_all`; one that holds `want`; of such that which the job is on, then a link group for several GPUs and none
// for a single one, then that with the fewest free. Where none holds `want`, those with the most, one after the other: the fewest
// that can be. Within a NUMA node the lowest numbers.
std::uint64_t choose_gpus(const HostCapacity& host, std::uint64_t free, std::uint32_t want, std::uint32_t in_all,
                          std::uint64_t beside);

// The most of `free` that lie in one link group or on one NUMA node.
std::uint32_t most_together(const HostCapacity& host, std::uint64_t free);

}  // namespace dtrain::cluster
