// tasks.logs.keepFor: what tasks wrote is removed when it is old, also of jobs that are still known.
#pragma once

#include <set>
#include <string>

#include "common/base/ids.h"
#include "common/base/time.h"

namespace dtrain::proc {

// Removes the log files, and their indexes, that were written last before that time. Of one that lives the newest stays: it is being
// written to. Answers how many were removed.
std::size_t remove_old_logs(const std::string& tasks_dir, WallTime before, const std::set<AssignmentId>& living);

}  // namespace dtrain::proc
