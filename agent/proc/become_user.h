// Becoming the user that a job runs as, in children that the agent forks itself (exec, hooks), or acting as it (staging).
#pragma once

#include "agent/proc/host_user.h"

namespace dtrain::proc {

// The user as this host knows it; an error when the host lacks the user or the agent lacks the right to
// become it. A user id without a name is only the one that the agent itself runs as. May ask the network
// (NSS).
Result<HostUser> find_user_to_become(const task::User& user);

// Becomes that user, for good. Only in a child that was just forked; a process that is that user already
// keeps its groups. It is then as urgent as any other process (scheduling.h). False: errno says why.
bool become(const HostUser& user);

// The effective ids and groups of that user while this lives: what it may not reach cannot be reached, and its processes can do nothing to
// this one, whose real user is root still. access(2) asks for the real user: use eaccess(3). For processes of one thread.
class ActingAs {
 public:
  explicit ActingAs(const HostUser& user);
  ~ActingAs();  // a process that could not get its own rights back ends
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;

  int error() const { return error_; }  // errno; 0: it acts as the user

 private:
  const bool root_;
  const std::uint32_t gid_;
  std::vector<std::uint32_t> groups_;
  int death_signal_ = 0;  // PR_SET_PDEATHSIG, which each change of user cancels
  int error_ = 0;
};

}  // namespace dtrain::proc
