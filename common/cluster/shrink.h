// Jobs that continue with fewer tasks than their users want, down to minReplicas, and grow again: docs/recovery.md, "A
// job that shrinks". JobRecord::spec has the sizes with which the job runs, JobRecord::shrunk the sizes that are wanted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/cluster/state.h"

namespace dtrain::cluster {

using Sizes = std::map<std::string, std::uint32_t>;  // tasks, by role

// Size, spec and tasks as the user wants them.
std::uint32_t wanted_replicas(const JobRecord& job, const std::string& role);
job::JobSpec whole_spec(const JobRecord& job);
std::vector<TaskId> whole_tasks(const JobRecord& job);

// A rank that has completed is part of its gang's next generation, whose ranks would wait for it. Before version 3 it was left out, and
// they waited for ever.
bool begins_with_its_gang(const JobRecord& job, const TaskId& task, std::uint32_t version);

// The fewest tasks with which its next generation may begin, of the roles where that is less than what is wanted. None: it is
// whole or it waits. A run begins whole; who made room for another goes on as it was. Sizes with which it ran already are tried at
// once, smaller ones once it has `waited` for room. What was given up, or has completed for good, is never left out: it would be
// run again when the job grows. `version`: of the ledger, here and below.
Sizes fewest_tasks(const JobRecord& job, bool waited, std::uint32_t version);
// True if waiting would allow fewer tasks.
bool may_shrink(const JobRecord& job, std::uint32_t version);

// policy.gang: false. Its tasks begin one by one, each when it has room, whatever the others do; it has succeeded when all that are wanted
// have.
bool begins_in_parts(const JobRecord& job, std::uint32_t version);

// The sizes of these placements, for roles that have fewer than what is wanted.
Sizes sizes_of(const JobRecord& job, const std::vector<TaskPlacement>& placements);
// True if a generation of these sizes may begin with these placements.
bool may_have(const JobRecord& job, const Sizes& sizes, const std::vector<TaskPlacement>& placements, std::uint32_t version);

// "runs with 3 of 4 worker"; "" while nothing runs, or all tasks do.
std::string runs_with(const JobRecord& job);

}  // namespace dtrain::cluster
