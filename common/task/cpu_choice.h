// Which of a host's CPUs a task gets for itself: near its GPUs, on one NUMA node, in whole cores, as far as that goes. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace dtrain::task {

// A logical CPU that tasks of this host may run on.
struct HostCpu {
  std::uint32_t index = 0;  // as the kernel counts them
  std::uint32_t core = 0;   // the same for the hyperthreads of one core, and for no others
  std::int32_t numa = -1;   // its NUMA node; -1: not known, all such are taken to be near each other
  bool operator==(const HostCpu&) const = default;
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("core", core);
    v("numa", numa);
  }
};

// Whole CPUs that a task with this much gets for itself: none where it asks for a part of one (500m, 1500m), or for nothing.
std::uint32_t own_cpus(std::uint64_t millis);

struct CpuChoice {
  std::vector<std::uint32_t> cpus;  // ascending; empty: none to itself
  std::int32_t numa_node = -1;      // where all of them lie, on a host of several nodes whose nodes are known; else -1
  std::string reason;               // why it gets none though it asks for whole ones; "": it gets them, or asks for none
};

// own_cpus(millis) of those of `host` (each index once) that are not in `taken`, all or none. `near`: NUMA nodes of the task's GPUs;
// others than the host's, and -1, are left aside. From, in this order:
//   1. one of the nodes `near` that has enough free, the one with the fewest;
//   2. the nodes `near` together, those with the most free first;
//   3. one of the other nodes that has enough free, the one with the fewest;
//   4. all nodes: those `near` first, then those with the most free.
// Of a node: whole cores while they are needed whole, then what is left of cores that are in use already, those with the least left first,
// and only then a part of a whole one. Among equals the lowest numbers.
//
// A host of which nothing is known (empty) binds nobody, and gives no reason.
CpuChoice choose_cpus(const std::vector<HostCpu>& host, const std::set<std::uint32_t>& taken, std::uint64_t millis,
                      const std::vector<std::int32_t>& near);

}  // namespace dtrain::task
