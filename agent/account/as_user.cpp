#include "agent/account/as_user.h"

#include <grp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "common/base/check.h"

namespace dtrain::account {
namespace {

// glibc's setgroups changes every thread of the process; the system call itself changes only the calling one.
bool set_groups_of_thread(const std::vector<gid_t>& groups) { return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0; }

using Capabilities = std::array<__user_cap_data_struct, 2>;  // version 3 has two words of each

// For the calling thread only, like the system calls themselves.
bool get_capabilities(Capabilities& capabilities) {
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  return ::syscall(SYS_capget, &head, capabilities.data()) == 0;
}
bool set_capabilities(const Capabilities& capabilities) {
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  return ::syscall(SYS_capset, &head, capabilities.data()) == 0;
}

Error refusal(const std::string& name, const std::string& cause, const std::string& next) {
  return Error{ErrorCode::refused, "could not act as user " + name + ": " + cause, next};
}

}  // namespace

Result<AsUser> AsUser::enter(const task::User& user) {
  if (::geteuid() != 0) return AsUser();
  const auto found = find_user(user);
  if (!found && found.error().code == ErrorCode::refused) return fail(found.error());
  if (!found) return fail(refusal(user.name, found.error().message, "create the user on this host, with the same uid as elsewhere"));
  return enter(*found, user.name);
}

Result<AsUser> AsUser::enter(const HostUser& user, const std::string& name) {
  AsUser guard;
  if (::geteuid() != 0 || user.uid == 0) return guard;

  const int count = ::getgroups(0, nullptr);
  CHECK(count >= 0);
  guard.previous_groups_.resize(static_cast<std::size_t>(count));
  CHECK(::getgroups(count, guard.previous_groups_.data()) == count);
  ::prctl(PR_GET_PDEATHSIG, &guard.death_signal_);
  CHECK(get_capabilities(guard.previous_capabilities_));
  const std::string next = "give the agent CAP_SETGID and CAP_SETUID";
  if (!set_groups_of_thread(user.groups)) return fail(refusal(name, std::generic_category().message(errno), next));
  guard.active_ = true;
  ::setfsgid(user.gid);
  ::setfsuid(user.uid);
  // They stay permitted, so that the guard's end can restore them.
  Capabilities none = guard.previous_capabilities_;
  for (auto& word : none) word.effective = 0;
  const bool powerless = set_capabilities(none);
  ::prctl(PR_SET_PDEATHSIG, guard.death_signal_);
  // These calls report no errors; asking for an impossible id returns the present one. On failure the guard's end undoes all.
  constexpr auto kNoId = std::numeric_limits<uid_t>::max();
  if (!powerless || static_cast<uid_t>(::setfsuid(kNoId)) != user.uid || static_cast<gid_t>(::setfsgid(kNoId)) != user.gid)
    return fail(refusal(name, "the kernel refused the change of rights", next));
  return guard;
}

AsUser::AsUser(AsUser&& other) noexcept
    : active_(std::exchange(other.active_, false)),
      death_signal_(other.death_signal_),
      previous_groups_(std::move(other.previous_groups_)),
      previous_capabilities_(other.previous_capabilities_) {}

AsUser::~AsUser() {
  if (!active_) return;
  CHECK(set_capabilities(previous_capabilities_));
  ::setfsuid(::geteuid());
  ::setfsgid(::getegid());
  // Continuing as another user, or with another's groups, would be worse than stopping.
  CHECK(set_groups_of_thread(previous_groups_));
  ::prctl(PR_SET_PDEATHSIG, death_signal_);
}

}  // namespace dtrain::account
