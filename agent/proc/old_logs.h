// tasks.logs.keepFor: removes old output of tasks, even of jobs that still exist.
#pragma once

#include <set>
#include <string>

#include "common/base/ids.h"
#include "common/base/time.h"

namespace dtrain::proc {

// Removes log files and their indexes that were last written before that time, except the newest file of a living
// task, which may still be written. Returns the number of removed files.
std::size_t remove_old_logs(const std::string& tasks_dir, WallTime before, const std::set<AssignmentId>& living);

}  // namespace dtrain::proc
