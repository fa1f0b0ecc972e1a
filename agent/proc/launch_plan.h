// What an assignment's shim is started with, but for the place of its processes, which is a launcher's or a standby's to say.
#pragma once

#include "agent/proc/launch_file.h"
#include "agent/proc/runner.h"

namespace dtrain::proc {

const std::map<std::string, int>& limit_resources();  // RLIMIT_* by the names of RunnerOptions::ulimits

// `directory`: of the assignment; `last_attempt`: the highest that is known to have begun there.
Result<LaunchFile> plan_launch(const RunnerOptions& options, const task::ShimSpec& spec, const std::string& directory,
                               AttemptNumber last_attempt, bool directory_is_new);

}  // namespace dtrain::proc
