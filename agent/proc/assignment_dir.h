// The directory of one assignment: <tasks_dir>/17.2.worker-1
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"

namespace dtrain::proc {

// Parses AssignmentId::text().
std::optional<AssignmentId> parse_assignment(std::string_view text);

// Every assignment that has a directory here, in order.
std::vector<AssignmentId> list_assignments(const std::string& tasks_dir);

// The number after the newest log file; 0 if there is none. A shim never appends to a predecessor's file.
std::uint32_t next_log_number(const std::string& directory);

// True if the launch file was written, and no shim has come up since.
bool launch_came_to_nothing(const std::string& directory);

// Like mkdir -p; the last directory gets mode 0711, so that a task's user can reach its NOTIFY_SOCKET in it and see
// nothing else. Returns true if the directory did not exist before.
Result<bool> make_passable_directory(const std::string& path);

}  // namespace dtrain::proc
