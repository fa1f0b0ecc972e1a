// Where `dtrainctl exec` runs its command: beside the task, in the same surroundings.
#pragma once

#include <cstdint>
#include <string>

#include "agent/proc/exec_session.h"
#include "common/base/ids.h"
#include "common/base/result.h"

namespace dtrain::daemon {

// Read from the assignment's launch file, so that it also works for tasks that an earlier agent started. `rank`: as
// wire::ExecRequest::rank.
Result<proc::ExecPlace> exec_place(const std::string& tasks_dir, const AssignmentId& id, std::uint32_t rank);

}  // namespace dtrain::daemon
