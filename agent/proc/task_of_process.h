// Does a process belong to a task of this host? Tasks get no way to the agent: what a training script fetches and runs is
// not to submit, cancel or read in the name of its user.
//
// All that a task leaves behind descends from its shim, which is their subreaper, so the answer is found by going up. A user can get
// out of the task by other means that are theirs (cron, ssh, their own service manager): there they act as themselves.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>

namespace dtrain::proc {

inline constexpr int kMostAncestors = 64;  // looked at; who has more counts as a task

// The nearest of itself and its ancestors that is one of those; nullopt where that cannot be said for sure. Names and arguments say
// nothing: everybody chooses their own.
std::optional<pid_t> ancestor_of(pid_t pid, const std::function<bool(pid_t)>& is_one, const std::string& proc = "/proc");

// A process that is gone counts as one: whose it was nobody can tell any more. 0 (a process of an outer namespace) does not. What calls
// itself a shim is one only where it is `agent`'s.
bool runs_in_task(pid_t pid, const std::string& tasks_dir, const std::string& proc = "/proc", uid_t agent = ::geteuid());

}  // namespace dtrain::proc
