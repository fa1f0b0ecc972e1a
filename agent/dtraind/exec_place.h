// Where `dtrainctl exec` puts its command: beside the task, as the shim was told to run it.
#pragma once

#include <string>

#include "agent/proc/exec_session.h"
#include "common/base/ids.h"
#include "common/base/result.h"

namespace dtrain::daemon {

// From the assignment's launch file, so that it also holds for tasks that an earlier agent started.
Result<proc::ExecPlace> exec_place(const std::string& tasks_dir, const AssignmentId& id);

}  // namespace dtrain::daemon
