#include "agent/proc/error_files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/account/as_user.h"
#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"
#include "agent/proc/record.h"

namespace dtrain::proc {

namespace {

constexpr char kErrors[] = "errors";
constexpr mode_t kErrorsMode = 0700;
constexpr std::int64_t kNanosecondsOfSecond = 1'000'000'000;

account::HostUser user_of(const LaunchFile& launch) { return {launch.uid, launch.gid, launch.groups}; }

// Below `directory`, which is the agent's own. The user may have put anything there: links and other file systems are not followed, and
// nothing waits for a pipe or for whoever has a lease on the file.
UniqueFd open_errors(const UniqueFd& directory, const std::string& name) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, directory.get(), name.c_str(), &how, sizeof(how))));
}

std::optional<job::RecordedError> read_one(const UniqueFd& directory, const std::string& name, WallTime began, WallTime ended) {
  const UniqueFd file = open_errors(directory, name);
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= 0 ||
      info.st_size > static_cast<off_t>(job::kErrorFileBytes))
    return std::nullopt;
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  if (!read_into(file.get(), text)) return std::nullopt;
  // Times that no clock has shown would not fit.
  const std::int64_t seconds = std::clamp<std::int64_t>(info.st_mtim.tv_sec, 0, INT64_MAX / kNanosecondsOfSecond - 1);
  return job::parse_recorded_error(text, {wall_time(seconds * kNanosecondsOfSecond + info.st_mtim.tv_nsec), began, ended});
}

}  // namespace

Result<std::string> make_error_directory(const LaunchFile& launch, const std::string& assignment_directory) {
  const std::string path = assignment_directory + "/" + kErrors;
  if (launch.switch_user && !account::can_reach(user_of(launch), path)) return std::string();
  if (::mkdir(path.c_str(), kErrorsMode) != 0 && errno != EEXIST)
    return fail(ErrorCode::io, "could not create directory " + path + ": " + cause_of(errno), "check free space and permissions above it");
  if (launch.switch_user && ::lchown(path.c_str(), launch.uid, launch.gid) != 0)
    return fail(ErrorCode::io, "could not give directory " + path + " to the task's user: " + cause_of(errno));
  return path + "/";
}

std::optional<job::RecordedError> read_recorded_error(const LaunchFile& launch, const std::string& assignment_directory,
                                                      AttemptNumber attempt, WallTime began, WallTime ended) {
  if (launch.error_file.empty()) return std::nullopt;
  const UniqueFd directory(::open(assignment_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const auto rights = account::AsUser::enter(user_of(launch), std::to_string(launch.uid));
  if (!directory || !rights) return std::nullopt;
  std::optional<job::RecordedError> earliest;
  const std::size_t ranks = std::max<std::size_t>(launch.ranks.size(), 1);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto error = read_one(directory, std::string(kErrors) + "/" + std::to_string(attempt) + "." + std::to_string(rank), began, ended);
    if (!error || (earliest && earliest->at <= error->at)) continue;
    error->rank = launch.ranks.empty() ? 0 : static_cast<std::uint32_t>(rank + 1);
    earliest = std::move(error);
  }
  return earliest;
}

}  // namespace dtrain::proc
