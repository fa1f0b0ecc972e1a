// Gives the calling thread, and no other, the file access rights of a user while the guard lives: fsuid, fsgid and
// supplementary groups, as initgroups would set them, and no capability at all in force: neither root's power to override file modes nor
// any other, such as to follow what /proc has of others' processes into directories that they alone may pass.
// For an agent that runs as root: nothing a job names is read, renamed or removed with more rights than its owner has, by
// the disk worker or by those that stage. The user's processes can do nothing to the thread: its real and effective user are still root. So
// access(2) and eaccess(3) answer for root: ask by stat(2) or open(2). The thread still dies with its parent, if it was to
// (PR_SET_PDEATHSIG).
//
// Where the process is not root, the agent runs everything as one user already: the guard then does nothing.
// Not to be nested. The thread must not run anything else meanwhile.
#pragma once

#include <linux/capability.h>
#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

#include "agent/account/host_user.h"
#include "common/base/result.h"
#include "common/task/shim_spec.h"

namespace dtrain::account {

class AsUser {
 public:
  // Error{refused}: this process may not do that.
  static Result<AsUser> enter(const HostUser& user, const std::string& name);
  // As for tasks: find_user(). Error{refused} also if this host does not know the user.
  static Result<AsUser> enter(const task::User& user);
  AsUser(AsUser&& other) noexcept;
  AsUser& operator=(AsUser&&) = delete;
  ~AsUser();

 private:
  AsUser() = default;
  bool active_ = false;
  int death_signal_ = 0;  // each change of rights cancels it
  std::vector<gid_t> previous_groups_;
  std::array<__user_cap_data_struct, 2> previous_capabilities_{};
};

}  // namespace dtrain::account
