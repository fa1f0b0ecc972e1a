// What tasks leave in /dev/shm: a process that is killed removes nothing there, and it is memory that nobody gives back.
//
// The kernel tells who makes a name there (fanotify). Recorded is what is known to be a task's: its maker descends from the task's shim, or
// is its main process, and it is of the task's user. A maker that was gone before it could be looked at, and was not that, is not known:
// what it made stays. So does what others make, whoever they are. Without root, which alone is told, nothing is recorded or removed.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/account/host_user.h"
#include "agent/base/unique_fd.h"
#include "common/base/ids.h"

namespace dtrain::proc {

inline constexpr std::size_t kShmRecordBytes = 1 << 20;  // of one assignment; what it makes beyond stays
inline constexpr int kShmLooksPerSecond = 300;           // at new names of one user; of more in a second nobody knows whose they are
// Attempts whose leftovers wait to be removed; those of any more stay until the next agent.
inline constexpr std::size_t kShmRemovals = 10'000;

class ShmWatch {
 public:
  explicit ShmWatch(std::string directory = "/dev/shm");
  int fd() const { return fd_.get(); }  // readable when there is news; -1: it cannot be watched
  bool has_news() const;
  struct Task {
    AssignmentId id;
    uid_t uid = 0;
    pid_t shim = 0;  // that lives; 0: none
    pid_t main = 0;  // the main process, also one that is gone; 0: none
  };
  // Notes what tasks have made since the last look, where it is their user's; never waits. Of an attempt that has ended all is noted
  // when its end is told.
  void note(const std::string& tasks_dir, const std::vector<Task>& tasks);
  // Nothing of its attempt is left: removes what it made, where that is still the same file, with the rights of the task's user.
  // Directories only where they are empty. A thread does it, since to give back the memory of a large file takes seconds.
  void remove(const std::string& assignment, const account::HostUser& user);
  ~ShmWatch();  // waits until all that was to be removed is
  ShmWatch(const ShmWatch&) = delete;
  ShmWatch& operator=(const ShmWatch&) = delete;

 private:
  struct Made {
    pid_t pid = 0;
    std::string name;
  };
  struct Removal {
    std::string record;
    account::HostUser user;
  };
  std::vector<Made> read();
  bool may_look(uid_t user);  // at one more name in this second
  void remove_all();
  void remove_noted(const Removal& removal) const;

  std::string directory_;
  UniqueFd fd_;
  std::int64_t second_ = 0;
  std::map<uid_t, int> looks_;

  std::thread thread_;  // begun with the first removal
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Removal> removals_;
  bool ending_ = false;
};

}  // namespace dtrain::proc
