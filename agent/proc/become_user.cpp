#include "agent/proc/become_user.h"

#include <grp.h>
#include <unistd.h>

#include <cerrno>

#include "agent/proc/scheduling.h"

namespace dtrain::proc {

Result<account::HostUser> find_user_to_become(const task::User& user) {
  const bool own = user.uid == ::geteuid();
  if (user.name.empty() && own) return account::HostUser{::geteuid(), ::getegid(), {}};
  auto found = account::find_user(user);
  if (!found) return found;
  if (::geteuid() != 0 && ::geteuid() != found->uid)
    return fail(ErrorCode::refused, "could not become user " + user.name + ": the agent runs as user id " + std::to_string(::geteuid()),
                "run dtraind as root to serve several users");
  return found;
}

bool become(const account::HostUser& user) {
  become_usual();
  if (::geteuid() != 0) {
    errno = EPERM;
    return ::geteuid() == user.uid;
  }
  return ::setgroups(user.groups.size(), user.groups.data()) == 0 && ::setgid(user.gid) == 0 && ::setuid(user.uid) == 0;
}

}  // namespace dtrain::proc
