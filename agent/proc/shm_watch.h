// What tasks leave in /dev/shm: a process that is killed removes nothing there, and it is memory that nobody gives back.
//
// The kernel tells who makes a name there (fanotify). Recorded is what is known to be a task's: its maker descends from the task's shim, or
// is its main process. A maker that was gone before it could be looked at, and was not that, is not known: what it made stays. So does what
// others make, whoever they are. Without root, which alone is told, nothing is recorded, and nothing removed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/account/host_user.h"
#include "agent/proc/unique_fd.h"
#include "common/base/ids.h"

namespace dtrain::proc {

inline constexpr std::size_t kShmRecordBytes = 1 << 20;  // of one assignment; what it makes beyond stays
inline constexpr int kShmLooksPerSecond = 1000;          // at new names; of more in a second nobody knows whose they are

class ShmWatch {
 public:
  explicit ShmWatch(std::string directory = "/dev/shm");
  int fd() const { return fd_.get(); }  // readable when there is news; -1: it cannot be watched
  // Notes what assignments of that directory have made since the last look; never waits. `of_main`: whose main process a number is, or was
  // last: that may be gone by now. Of an attempt that has ended all is noted when its end is told.
  using OfMain = std::function<std::optional<AssignmentId>(pid_t)>;
  void note(const std::string& tasks_dir, const OfMain& of_main);
  // Nothing of its attempt is left: removes what it made, where that is still the same file, with the rights of the task's user.
  // Directories only where they are empty.
  void remove(const std::string& assignment, const account::HostUser& user) const;

 private:
  struct Made {
    pid_t pid = 0;
    std::string name;
  };
  std::vector<Made> read();
  bool may_look();  // at one more name in this second

  std::string directory_;
  UniqueFd fd_;
  std::int64_t second_ = 0;
  int looks_ = 0;
};

}  // namespace dtrain::proc
