// Does a process belong to a task of this host? Tasks get no way to the agent: what a training script fetches and runs is
// not to submit, cancel or read in the name of its user.
//
// All that a task leaves behind descends from its shim, which is their subreaper, so the answer is found by going up. A user can get
// out of the task by other means that are theirs (cron, ssh, their own service manager): there they act as themselves.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace dtrain::proc {

inline constexpr int kMostAncestors = 64;  // looked at; who has more counts as a task

// The assignment of the task that it belongs to, as its directory is called; nullopt where that cannot be said for sure.
std::optional<std::string> task_of_process(pid_t pid, const std::string& tasks_dir, const std::string& proc = "/proc");

// A process that is gone counts as one: whose it was nobody can tell any more. 0 (a process of an outer namespace) does not.
bool runs_in_task(pid_t pid, const std::string& tasks_dir, const std::string& proc = "/proc");

}  // namespace dtrain::proc
