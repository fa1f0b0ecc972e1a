#include "agent/proc/old_logs.h"

#include <sys/stat.h>
#include <unistd.h>

#include "agent/proc/assignment_dir.h"
#include "agent/proc/log_reader.h"

namespace dtrain::proc {

std::size_t remove_old_logs(const std::string& tasks_dir, WallTime before, const std::set<AssignmentId>& living) {
  const auto limit = std::chrono::duration_cast<std::chrono::seconds>(before.time_since_epoch()).count();
  std::size_t removed = 0;
  for (const AssignmentId& id : list_assignments(tasks_dir)) {
    const std::string directory = tasks_dir + "/" + id.text();
    const auto numbers = list_log_files(directory);
    if (!numbers) continue;  // tried again the next time
    for (const std::uint64_t number : *numbers) {
      if (number == numbers->back() && living.contains(id)) continue;
      const std::string path = directory + "/log." + std::to_string(number);
      struct stat info {};
      if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_mtim.tv_sec >= limit) continue;
      if (::unlink(path.c_str()) != 0) continue;
      ::unlink((path + ".idx").c_str());
      ++removed;
    }
  }
  return removed;
}

}  // namespace dtrain::proc
