#include "agent/proc/become_user.h"

#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/proc/scheduling.h"
#include "common/base/check.h"

namespace dtrain::proc {

Result<HostUser> find_user_to_become(const task::User& user) {
  const bool own = user.uid == ::geteuid();
  if (user.name.empty() && own) return HostUser{::geteuid(), ::getegid(), {}};
  auto found = find_user(user);
  if (!found) return found;
  if (::geteuid() != 0 && ::geteuid() != found->uid)
    return fail(
        ErrorCode::refused,
        "could not become user " + user.name + ": the agent runs as user id " + std::to_string(::geteuid()),
        "run dtraind as root to serve several users");
  return found;
}

bool become(const HostUser& user) {
  become_usual();
  if (::geteuid() != 0) {
    errno = EPERM;
    return ::geteuid() == user.uid;
  }
  return ::setgroups(user.groups.size(), user.groups.data()) == 0 && ::setgid(user.gid) == 0 &&
         ::setuid(user.uid) == 0;
}

ActingAs::ActingAs(const HostUser& user) : root_(::geteuid() == 0), gid_(::getegid()) {
  if (!root_) {
    error_ = ::geteuid() == user.uid ? 0 : EPERM;
    return;
  }
  ::prctl(PR_GET_PDEATHSIG, &death_signal_);
  groups_.resize(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  CHECK(::getgroups(static_cast<int>(groups_.size()), groups_.data()) == static_cast<int>(groups_.size()));
  if (::setgroups(user.groups.size(), user.groups.data()) != 0 || ::setegid(user.gid) != 0 || ::seteuid(user.uid) != 0) error_ = errno;
  ::prctl(PR_SET_PDEATHSIG, death_signal_);
}

ActingAs::~ActingAs() {
  if (!root_) return;
  CHECK(::seteuid(0) == 0 && ::setegid(gid_) == 0 && ::setgroups(groups_.size(), groups_.data()) == 0);
  ::prctl(PR_SET_PDEATHSIG, death_signal_);
}

}  // namespace dtrain::proc
