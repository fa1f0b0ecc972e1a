// The order in which a job's roles start: ps, then chief or master, then all others.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/job/job_spec.h"

namespace dtrain::job {

// What `role` waits for when its job file does not say: chief and master for the ps, every other role but ps
// for the ps and the chief or master; each at Running, each only where the job has that role.
std::map<std::string, StartAfter> default_start_after(const JobSpec& spec, const std::string& role);

// A circle of roles that wait for each other, first = last; empty when there is none. Unknown roles, and a
// role that waits for itself, are skipped: they are mistakes of their own.
std::vector<std::string> find_start_cycle(const JobSpec& spec);

}  // namespace dtrain::job
