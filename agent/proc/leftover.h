// Processes of an assignment whose shim was killed, or is stopped, on a host without cgroups. The kernel ends the main process (its
// parent-death signal); its children are found by the NOTIFY_SOCKET in their environment, which names the assignment.
#pragma once

#include <string>

namespace dtrain::proc {

// Sends SIGKILL to each and returns their number. Best effort: a process that replaced its environment is not found.
int kill_leftovers(const std::string& notify_socket);
// Sends SIGSTOP to each that is not stopped and returns their number.
int stop_leftovers(const std::string& notify_socket);

}  // namespace dtrain::proc
