// Decides where the tasks of a generation go: all of them or none. Pure: free capacity is passed in; whole numbers
// only; the same request with the same capacity gets the same answer.
//
// Always respected: cpus, memory, GPUs (and their model) of each task, ports, nodeSelector, antiAffinity,
// avoidGpuHosts: require, cordoned hosts. Wished, and given up before the job would have to wait: pack or spread,
// avoidGpuHosts: prefer, and that ranks of a collective job are near each other: on one NUMA node, on one host, in
// one rack (hosts with the same label `rack`), else in few racks.
//
// Guaranteed: if all tasks are of one role, a place is found whenever there is one. Jobs of several roles are a
// vector bin-packing problem; they are tried with the most constrained role first, then with the tightest host first,
// then by a search of at most kSearchSteps steps among at most kSearchHosts hosts, which misses nothing if it ends
// within these bounds.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/cluster/capacity.h"

namespace dtrain::cluster {

inline constexpr std::uint32_t kSearchSteps = 20'000;  // beyond, the job waits although a place may exist
inline constexpr std::uint32_t kSearchHosts = 64;      // if more hosts could take a task of the job, there is no search
inline constexpr std::uint32_t kCloseTries = 4;        // hosts, then racks, that are tried for a whole collective job

// Every task of the job, in the order of roles and indices.
std::vector<TaskId> wanted_tasks(const job::JobSpec& spec);

// Chooses a host, GPUs and a port for each of `tasks`, in their order. `standing`: tasks of the same generation that
// are already placed (and held in `capacity`). `refused`: hosts that refuse the job. On failure
// (ErrorCode::unavailable) the text says what is missing, so that a user can act on it: placement_reasons.h. 10,000
// hosts and 1,000 tasks take a few milliseconds.
Result<std::vector<TaskPlacement>> place(const job::JobSpec& spec, const std::vector<TaskId>& tasks, const Capacity& capacity,
                                         const std::vector<TaskPlacement>& standing = {}, const Refusals& refused = {});

// False if place() is sure to fail for lack of cpus, memory or GPUs; O(roles).
bool may_fit(const job::JobSpec& spec, const std::vector<TaskId>& tasks, const RoomInAll& free);

}  // namespace dtrain::cluster
