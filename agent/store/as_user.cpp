#include "agent/store/as_user.h"

#include <grp.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>

#include "common/base/check.h"

namespace dtrain::store {
namespace {

constexpr int kMostGroups = 65536;              // NGROUPS_MAX of the kernel
constexpr std::size_t kPasswdBytes = 1 << 20;   // of one passwd entry; a longer one is refused

// glibc's setgroups changes every thread of the process; the system call itself changes only the calling one.
bool set_groups_of_thread(const std::vector<gid_t>& groups) {
  return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
};

Result<Identity> find_identity(const task::User& user) {
  const auto refuse = [&](const std::string& cause) {
    return fail(ErrorCode::refused, "could not act as user " + user.name + ": " + cause,
                "create the user on this host, with the same uid as elsewhere");
  };
  passwd entry{};
  passwd* found = nullptr;
  std::string buffer(4096, '\0');
  int error_number = 0;
  while ((error_number = ::getpwnam_r(user.name.c_str(), &entry, buffer.data(), buffer.size(), &found)) == ERANGE &&
         buffer.size() < kPasswdBytes)
    buffer.resize(2 * buffer.size());
  if (error_number != 0) return refuse(std::generic_category().message(error_number));
  if (found == nullptr) return refuse("it is not known here");
  Identity identity{entry.pw_uid, entry.pw_gid, {}};
  int count = 64;
  identity.groups.resize(static_cast<std::size_t>(count));
  while (::getgrouplist(user.name.c_str(), identity.gid, identity.groups.data(), &count) < 0) {
    if (count > kMostGroups || static_cast<std::size_t>(count) <= identity.groups.size()) return refuse("it is in too many groups");
    identity.groups.resize(static_cast<std::size_t>(count));
  }
  identity.groups.resize(static_cast<std::size_t>(count));
  return identity;
}

}  // namespace

Result<AsUser> AsUser::enter(const task::User& user) {
  AsUser guard;
  if (::geteuid() != 0) return guard;
  const auto identity = find_identity(user);
  if (!identity) return fail(identity.error());
  if (identity->uid == 0) return guard;

  const int count = ::getgroups(0, nullptr);
  CHECK(count >= 0);
  guard.previous_groups_.resize(static_cast<std::size_t>(count));
  CHECK(::getgroups(count, guard.previous_groups_.data()) == count);
  if (!set_groups_of_thread(identity->groups))
    return fail(ErrorCode::refused, "could not act as user " + user.name + ": " + std::generic_category().message(errno),
                "give the agent CAP_SETGID and CAP_SETUID");
  guard.active_ = true;
  ::setfsgid(identity->gid);
  ::setfsuid(identity->uid);
  // They report no errors; asking for an impossible id answers the present one. On failure the guard's end undoes all.
  constexpr auto kNoId = std::numeric_limits<uid_t>::max();
  if (static_cast<uid_t>(::setfsuid(kNoId)) != identity->uid || static_cast<gid_t>(::setfsgid(kNoId)) != identity->gid)
    return fail(ErrorCode::refused, "could not act as user " + user.name + ": the kernel refused the change of rights",
                "give the agent CAP_SETGID and CAP_SETUID");
  return guard;
}

AsUser::AsUser(AsUser&& other) noexcept
    : active_(std::exchange(other.active_, false)), previous_groups_(std::move(other.previous_groups_)) {}

AsUser::~AsUser() {
  if (!active_) return;
  ::setfsuid(::geteuid());
  ::setfsgid(::getegid());
  // To go on as somebody else, or with somebody's groups, would be worse than to stop.
  CHECK(set_groups_of_thread(previous_groups_));
}

}  // namespace dtrain::store
