// Learns of changes in checkpoint directories from inotify, with one descriptor for all jobs.
//
// Watches are added where directories are read, on the disk worker and with the job's rights; everything else happens
// on the loop thread. For a directory that does not exist yet, its nearest existing ancestor is watched.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/store/checkpoint_files.h"
#include "common/base/ids.h"

namespace dtrain::store {

inline constexpr std::size_t kWatchedChildren = 1024;  // directories below one checkpoint.dir; further ones are not watched

// The watches that one scan of a directory tree added.
struct ArmedWatches {
  // By watch descriptor: the only name that matters there; "": every name.
  std::map<int, std::string> watches;
  bool complete = true;  // false: the kernel's limit was reached or inotify is missing, so scans must be repeated
  std::string cause;     // why not complete
};

class CheckpointWatch {
 public:
  CheckpointWatch();
  int fd() const { return inotify_->get(); }  // -1: this system has no inotify
  bool available() const { return static_cast<bool>(*inotify_); }

  // May be called on any thread, with the rights of the job's user. Takes the result of share(), which outlives this object.
  using Shared = std::shared_ptr<const UniqueFd>;
  Shared share() const { return inotify_; }
  static ArmedWatches arm(const Shared& inotify, const std::string& directory);

  // Loop thread. `armed` replaces the job's watches.
  void set(JobId job, const ArmedWatches& armed);
  void drop(JobId job) { set(job, {}); }
  // Reads the kernel's reports, a bounded amount at a time; fd() stays readable for the rest. Calls `changed` for
  // each job concerned, and `unknown` when something happened in a directory that no job has: a scan in progress may
  // be about to claim it.
  void read(const std::function<void(JobId)>& changed, const std::function<void()>& unknown);

 private:
  std::shared_ptr<const UniqueFd> inotify_;
  std::map<int, std::map<JobId, std::string>> jobs_of_;  // watch descriptor -> job -> only name
  std::map<JobId, std::set<int>> watches_of_;
};

}  // namespace dtrain::store
