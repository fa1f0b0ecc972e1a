// Becomes the user that a job runs as, in children that the agent forks itself (exec, hooks, tar of staging).
#pragma once

#include "agent/account/host_user.h"

namespace dtrain::proc {

// The user as this host knows it. An error if the host does not know the user, or if the agent may not become it. A
// uid without a name is accepted only if the agent runs as it. May ask the network (NSS).
Result<account::HostUser> find_user_to_become(const task::User& user);

// Becomes that user for good. Only in a child that was just forked; a process that is that user already keeps its
// groups. The process then has the usual priority (scheduling.h). False: errno says why.
bool become(const account::HostUser& user);

}  // namespace dtrain::proc
