// Where the ranks of a task record the exception that ends them (common/job/recorded_error.h): <assignment's
// directory>/errors/ATTEMPT.RANK. The directory `errors` is the task's user's own, and so is what lies there: it is read as that user, and
// nothing there leads elsewhere.
#pragma once

#include <optional>
#include <string>

#include "agent/proc/launch_file.h"
#include "common/base/result.h"
#include "common/job/recorded_error.h"

namespace dtrain::proc {

// Makes the directory. "" where the task's user could not reach it; otherwise the beginning of the paths of its files.
Result<std::string> make_error_directory(const LaunchFile& launch, const std::string& assignment_directory);

// The earliest error that a rank of this attempt recorded.
std::optional<job::RecordedError> read_recorded_error(const LaunchFile& launch, const std::string& assignment_directory,
                                                      AttemptNumber attempt, WallTime began, WallTime ended);

}  // namespace dtrain::proc
