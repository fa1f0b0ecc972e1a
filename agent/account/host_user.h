// Users of this host, resolved by the agent: the shim is static and must not load name services.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/task/shim_spec.h"

namespace dtrain::account {

struct HostUser {
  std::uint32_t uid = 0, gid = 0;
  std::vector<std::uint32_t> groups;   // supplementary, the primary one included
  std::string name{}, home{}, shell{}; // as the entry has them; "": it does not say
};

// May jobs be root's on this host (tasks.allowRoot)? To be said before there are threads and helpers, which inherit it; until then they
// may.
void let_jobs_be_roots(bool may);

// By name; a spec without a name by uid. Fails where the host does not know the user, where the name has another number here than where the
// job was submitted (who has it is somebody else), and for root where jobs may not be root's. The thread's last answer is good for a
// second: that long a user's groups may be those of before a change.
Result<HostUser> find_user(const task::User& user);

// May `user` pass through every directory above `path` (absolute)? Mode bits only: an ACL may say otherwise.
bool can_reach(const HostUser& user, const std::string& path);

}  // namespace dtrain::account
