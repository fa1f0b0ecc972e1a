#include "agent/store/data_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dtrain::store {

Result<DataLock> DataLock::take(const std::string& data_dir) {
  const std::string path = data_dir + "/lock";
  // Whoever may open the file may lock it, and so keep the agent from starting: 0600, even if an earlier version made it.
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || ::fchmod(file.get(), 0600) != 0)
    return fail(ErrorCode::io, "could not open " + path + ": " + ::strerror(errno),
                "start the agent as the user who owns the data directory");
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(ErrorCode::io, "could not lock " + path + ": " + ::strerror(errno));
    const auto pid = read_file(path, 64);
    const std::string owner = pid && !pid->empty() ? "agent with pid " + pid->substr(0, pid->find('\n')) : "agent";
    return fail(ErrorCode::unavailable, "could not use data directory " + data_dir + ": another " + owner + " uses it",
                "stop that one, or give this one its own --data-dir and --run-dir");
  }
  // For the message above only; the lock itself is the kernel's and ends with the process.
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(file.get(), 0) == 0) (void)write_all(file.get(), pid);  // a full disk: locked all the same, unnamed
  return DataLock(std::move(file));
}

}  // namespace dtrain::store
