#include "agent/account/host_user.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "agent/base/boot_clock.h"

namespace dtrain::account {

namespace {

// One entry with its strings: a buffer that suffices for nearly all, and the largest that is tried. Otherwise each
// look-up would use 16 pages.
constexpr std::size_t kPasswdBytes = 1 << 10;
constexpr std::size_t kMostPasswdBytes = 64 << 10;
constexpr Duration kFoundFor = 1s;  // the last answer serves again that long
constexpr int kFirstGroups = 64;
constexpr int kMostGroups = 65536;  // NGROUPS_MAX of the kernel

// For each thread: hundreds of tasks that are launched in one second mostly belong to one user, and each look-up
// reads two files, or asks a server.
struct Last {
  task::User asked;
  HostUser found;
  Instant until{};
};
thread_local Last last;

bool roots_jobs = true;

Result<HostUser> look_up(const task::User& user) {
  std::string buffer(kPasswdBytes, '\0');
  passwd entry{};
  passwd* found = nullptr;
  int cause = 0;
  while (true) {
    cause = user.name.empty() ? getpwuid_r(user.uid, &entry, buffer.data(), buffer.size(), &found)
                              : getpwnam_r(user.name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (cause != ERANGE || buffer.size() >= kMostPasswdBytes) break;
    buffer.resize(buffer.size() * 2);
  }
  if (found == nullptr) {
    const std::string name = user.name.empty() ? "uid " + std::to_string(user.uid) : user.name;
    return fail(ErrorCode::unavailable,
                "could not find user " + name + ": " + (cause != 0 ? std::generic_category().message(cause) : "this host has none"),
                "create the user here, or submit as another one");
  }
  if (!user.name.empty() && entry.pw_uid != user.uid)
    return fail(ErrorCode::refused,
                "could not act as user " + user.name + ": that name has uid " + std::to_string(entry.pw_uid) + " on this host, and had " +
                    std::to_string(user.uid) + " where the job was submitted",
                "give the user the same uid on all hosts");
  if (entry.pw_uid == 0 && !roots_jobs)
    return fail(ErrorCode::refused, "could not act as user " + std::string(entry.pw_name) + ": this host runs no jobs as root",
                "submit as an ordinary user, or set tasks.allowRoot: true on this host");
  const auto text = [](const char* field) { return std::string(field != nullptr ? field : ""); };
  HostUser result{entry.pw_uid, entry.pw_gid, {}, text(entry.pw_name), text(entry.pw_dir), text(entry.pw_shell)};
  std::vector<gid_t> groups(kFirstGroups);
  int count = kFirstGroups;
  if (getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) {
    count = std::clamp(count, 0, kMostGroups);
    groups.resize(static_cast<std::size_t>(count));
    if (getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0)
      return fail(ErrorCode::limit, std::string("could not list the groups of ") + entry.pw_name + ": too many");
  }
  result.groups.assign(groups.begin(), groups.begin() + count);
  return result;
}

}  // namespace

void let_jobs_be_roots(bool may) { roots_jobs = may; }

Result<HostUser> find_user(const task::User& user) {
  if (boot_now() < last.until && user.name == last.asked.name && user.uid == last.asked.uid) return last.found;
  auto found = look_up(user);
  // Counted from the answer, because the server may be slow. A refusal is not kept, because the user may be created
  // at any moment.
  if (found) last = {user, *found, boot_now() + kFoundFor};
  return found;
}

bool can_reach(const HostUser& user, const std::string& path) {
  if (user.uid == 0) return true;
  for (std::size_t slash = path.rfind('/'); slash != std::string::npos;
       slash = slash == 0 ? std::string::npos : path.rfind('/', slash - 1)) {
    struct stat info {};
    if (::stat(slash == 0 ? "/" : path.substr(0, slash).c_str(), &info) != 0) return false;
    const auto in_group = [&](gid_t gid) {
      return gid == user.gid || std::find(user.groups.begin(), user.groups.end(), gid) != user.groups.end();
    };
    const mode_t bit = info.st_uid == user.uid ? S_IXUSR : in_group(info.st_gid) ? S_IXGRP : S_IXOTH;
    if ((info.st_mode & bit) == 0) return false;
  }
  return true;
}

}  // namespace dtrain::account
