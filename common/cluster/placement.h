// Where the tasks of a generation go: all of them or none. Pure: what is free is handed in; whole numbers only; the same
// request to the same capacity gets the same answer.
//
// What is respected: cpus, memory, GPUs (and their model) of each task, ports, nodeSelector, antiAffinity,
// avoidGpuHosts: require, cordoned hosts. What is wished, and given up before the job would have to wait: pack or spread,
// avoidGpuHosts: prefer, and for the ranks of a collective job to be near each other: on one NUMA node, on one host, in one
// rack (hosts with the same label `rack`), else in few racks.
//
// What is promised: where all tasks are of one role, a place is found whenever there is one. Jobs of several roles are a
// vector bin-packing problem; they are tried most constrained role first, then tightest host first, then by a search of
// at most kSearchSteps steps among at most kSearchHosts hosts, which misses nothing when it ends within them.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/cluster/capacity.h"

namespace dtrain::cluster {

inline constexpr std::uint32_t kSearchSteps = 20'000;  // beyond: the job waits, though a place may exist
inline constexpr std::uint32_t kSearchHosts = 64;      // more that could take a task of the job: no search
inline constexpr std::uint32_t kCloseTries = 4;        // hosts, then racks, that are tried for a whole collective job

// Every task of the job, in the order of roles and indices.
std::vector<TaskId> wanted_tasks(const job::JobSpec& spec);

// Chooses a host, GPUs and a port for each of `tasks`, in their order. `standing`: tasks of the same generation that are
// placed already (and held in `capacity`). Failing (ErrorCode::unavailable) says in words a user can act on what is
// missing: placement_reasons.h. 10,000 hosts and 1,000 tasks: a few milliseconds. `refused`: hosts that will not have the job.
Result<std::vector<TaskPlacement>> place(const job::JobSpec& spec, const std::vector<TaskId>& tasks, const Capacity& capacity,
                                         const std::vector<TaskPlacement>& standing = {}, const Refusals& refused = {});

// False where place() is sure to fail for lack of cpus, memory or GPUs; O(roles).
bool may_fit(const job::JobSpec& spec, const std::vector<TaskId>& tasks, const RoomInAll& free);

}  // namespace dtrain::cluster
