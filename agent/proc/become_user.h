// Becoming the user that a job runs as, in children that the agent forks itself (exec, hooks, tar of staging).
#pragma once

#include "agent/account/host_user.h"

namespace dtrain::proc {

// The user as this host knows it; an error when the host lacks the user or the agent lacks the right to
// become it. A user id without a name is only the one that the agent itself runs as. May ask the network
// (NSS).
Result<account::HostUser> find_user_to_become(const task::User& user);

// Becomes that user, for good. Only in a child that was just forked; a process that is that user already
// keeps its groups. It is then as urgent as any other process (scheduling.h). False: errno says why.
bool become(const account::HostUser& user);

}  // namespace dtrain::proc
