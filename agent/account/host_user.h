// Users of this host, looked up by the agent: the shim is static and must not load name services.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/task/shim_spec.h"

namespace dtrain::account {

struct HostUser {
  std::uint32_t uid = 0, gid = 0;
  std::vector<std::uint32_t> groups;    // supplementary, the primary one included
  std::string name{}, home{}, shell{};  // from the user's entry; "": it is not given there
};

// Sets whether jobs may run as root on this host (tasks.allowRoot); they may until this is called. To be called
// before there are threads and helpers, which inherit it.
void let_jobs_be_roots(bool may);

// Finds the user by name, or by uid if the spec has no name. Fails if the host does not know the user, if the name has
// another uid here than where the job was submitted (it is then somebody else), and for root if jobs may not run as root.
// The thread's last answer is reused for a second, so a change of the user's groups may show that much later.
Result<HostUser> find_user(const task::User& user);

// True if `user` can pass through every directory above `path` (absolute). By mode bits only: an ACL may differ.
bool can_reach(const HostUser& user, const std::string& path);

}  // namespace dtrain::account
