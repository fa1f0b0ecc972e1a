// Gives the calling thread, and no other, the file access rights of a user while the guard lives: fsuid, fsgid and
// supplementary groups, as initgroups would set them, and with them the loss of root's power to override file modes.
// Made for the disk worker of an agent that runs as root: nothing a job names is read, renamed or removed with more
// rights than its owner has.
//
// Where the process is not root, the agent runs everything as one user already: the guard then does nothing.
// Not to be nested. The thread must not run anything else meanwhile.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/task/shim_spec.h"

namespace dtrain::store {

class AsUser {
 public:
  // By name, as tasks run. Error{refused}: this host does not know the user.
  static Result<AsUser> enter(const task::User& user);
  AsUser(AsUser&& other) noexcept;
  AsUser& operator=(AsUser&&) = delete;
  ~AsUser();

 private:
  AsUser() = default;
  bool active_ = false;
  std::vector<gid_t> previous_groups_;
};

}  // namespace dtrain::store
