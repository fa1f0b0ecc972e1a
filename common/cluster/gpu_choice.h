// Which of a host's free GPUs a task gets: as few NUMA nodes as can be, the same as the tasks beside it.
#pragma once

#include <cstdint>

#include "common/cluster/host_capacity.h"

namespace dtrain::cluster {

// `want` bits of `free` (bit i: host.gpus[i]; at least `want` are set). `in_all`: what this task and those that follow it
// on the host will want together. `beside`: GPUs that the job has here already. In this order: a NUMA node that holds all
// of `in_all`; one that holds `want`; of such ones that which the job is on, then the one with the fewest free. Where none
// holds `want`, the nodes with the most, one after the other: the fewest that can be. Within a node the lowest numbers.
std::uint64_t choose_gpus(const HostCapacity& host, std::uint64_t free, std::uint32_t want, std::uint32_t in_all,
                          std::uint64_t beside);

// The most of `free` that lie on one NUMA node.
std::uint32_t most_on_one_numa_node(const HostCapacity& host, std::uint64_t free);

}  // namespace dtrain::cluster
