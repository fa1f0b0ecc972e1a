// Where the tasks of a generation go: all of them or none. Pure: capacity and use are handed in.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/cluster/ledger.h"
#include "common/cluster/state.h"

namespace dtrain::cluster {

// What one host has, and what of it is taken.
struct HostCapacity {
  NodeId id;
  std::string name;
  std::string task_address;
  std::uint64_t cpu_millis = 0, cpu_used = 0;
  std::uint64_t memory_bytes = 0, memory_used = 0;
  struct Gpu {
    std::uint32_t index = 0;
    std::string model;
    bool free = true;
  };
  std::vector<Gpu> gpus;  // healthy ones
  std::map<std::string, std::string> labels;
  std::set<std::uint16_t> ports_in_use;  // taken or resting
  std::uint32_t tasks = 0;               // running here: spread and pack look at it
};

struct PortRange {
  std::uint16_t first = 20000, last = 29999;
};

// Takes from `hosts` what the active assignments of the ledger hold (every task that has not ended), and the
// ports that rest until kPortRest after their use.
void subtract_used(const Ledger& ledger, std::vector<HostCapacity>& hosts);

// Takes from `hosts` what these placements of `spec` will hold: proposals that are on their way.
void book(const job::JobSpec& spec, const std::vector<TaskPlacement>& placements,
          std::vector<HostCapacity>& hosts);

// Chooses a host, port and GPUs for each of `tasks`. On failure says what is missing in words a user can act
// on: "needs 4 GPUs on one host, best is 2 on h3". `hosts` is taken by value: the search books as it goes.
Result<std::vector<TaskPlacement>> place(const job::JobSpec& spec, const std::vector<TaskId>& tasks,
                                         std::vector<HostCapacity> hosts, PortRange ports);

}  // namespace dtrain::cluster
