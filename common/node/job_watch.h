// What becomes of a job as a whole when time passes: its end when a limit of its user is over, its removal, the verdict when it is
// in doubt, and that it stands still because a lease was not renewed. Places and checkpoints do not matter here.
#pragma once

#include <map>

#include "common/node/leases.h"
#include "common/node/watched_jobs.h"

namespace dtrain::node {

class JobWatch {
 public:
  JobWatch(Context& context, WatchedJobs& jobs, const Leases& leases) : c_(context), jobs_(jobs), leases_(leases) {}

  void reset() { all_there_.clear(); }
  void forget(JobId id) { all_there_.erase(id); }
  // To be called when the job changed or its deadline has passed, if no proposal of it is in flight. Proposes what must
  // follow, or sets soft.deadline.
  void look(const cluster::JobRecord& job, WatchedJob& soft);
  // To be called at least every kLookEvery. Returns when it must be called again at the latest; kNever: no lease says.
  Instant watch_leases();

 private:
  void watch_end(const cluster::JobRecord& job, WatchedJob& soft);
  void watch_doubt(const cluster::JobRecord& job, WatchedJob& soft);
  void watch_run(const cluster::JobRecord& job, WatchedJob& soft);
  bool due(WatchedJob& soft, Duration when) const;

  Context& c_;
  WatchedJobs& jobs_;
  const Leases& leases_;
  // By job in doubt: since when all its hosts are up. None: they are not, or were not looked at yet.
  std::map<JobId, Instant> all_there_;
};

}  // namespace dtrain::node
