// Removes files that killed tasks leave in /dev/shm, whose memory nobody else would free.
//
// The kernel reports who creates a name there (fanotify). Only names that certainly belong to a task are recorded:
// the creator descends from the task's shim, or is its main process, and has the task's user. If the creator was gone
// before it could be looked at, and was no main process, its file stays; so do the files of all others. Only root
// gets these reports: otherwise nothing is recorded or removed.
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

inline constexpr std::size_t kShmRecordBytes = 1 << 20;  // of one assignment; files beyond that stay
// checks of new names of one user; the owners of further names in that second stay unknown
inline constexpr int kShmLooksPerSecond = 300;
// Attempts whose leftovers wait to be removed; those of further ones stay until the agent's next life.
inline constexpr std::size_t kShmRemovals = 10'000;

class ShmWatch {
 public:
  explicit ShmWatch(std::string directory = "/dev/shm");
  int fd() const { return fd_.get(); }  // readable when there is news; -1: it cannot be watched
  bool has_news() const;
  struct Task {
    AssignmentId id;
    uid_t uid = 0;
    pid_t shim = 0;  // a living shim; 0: none
    pid_t main = 0;  // the main process, even if it is gone; 0: none
  };
  // Records the files that these tasks made since the last call, if they belong to their user; never waits. All files
  // of an ended attempt are recorded by the time its end is reported.
  void note(const std::string& tasks_dir, const std::vector<Task>& tasks);
  // To be called when nothing of the attempt is left: removes the files that it made, if they are still the same
  // files, with the rights of the task's user; directories only if they are empty. A thread does it, because freeing
  // a large file takes seconds.
  void remove(const std::string& assignment, const account::HostUser& user);
  ~ShmWatch();  // waits until all removals are done
  ShmWatch(const ShmWatch&) = delete;
  ShmWatch& operator=(const ShmWatch&) = delete;

 private:
  struct Made {
    pid_t pid = 0;
    std::string name;
    std::string handle;  // of the file, as the kernel says it; empty before Linux 5.17
  };
  struct Removal {
    std::string record;
    account::HostUser user;
  };
  std::vector<Made> read();
  bool may_look(uid_t user);  // whether to check one more name in this second
  void remove_all();
  void remove_noted(const Removal& removal) const;

  std::string directory_;
  UniqueFd fd_;
  std::int64_t second_ = 0;
  std::map<uid_t, int> looks_;

  std::thread thread_;  // started with the first removal
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Removal> removals_;
  bool ending_ = false;
};

}  // namespace dtrain::proc
