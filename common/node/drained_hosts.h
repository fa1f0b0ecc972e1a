// What leaves a drained host. A job leaves it when it has places elsewhere, which are held until it takes them; otherwise
// it stays, with a reason. If the host is this one, the leadership of the log leaves it, too, and first. Only the outcome
// is in the log: the next coordinator begins anew, and jobs that were halted already wait in the queue.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/node/kept_places.h"
#include "common/node/watched_jobs.h"

namespace dtrain::node {

class DrainedHosts {
 public:
  DrainedHosts(Context& context, WatchedJobs& jobs, KeptPlaces& places) : c_(context), jobs_(jobs), places_(places) {}

  void reset();
  // Goes through each drained host and each job with tasks there. To be called at each look at the hosts, because jobs
  // that could not move are tried again, and whenever something becomes free.
  void move_jobs();
  // A drained coordinator hands leadership to another voter, once for each drain. If it is elected again, it keeps
  // leading. `in_the_middle`: questions or proposals of this coordinator would be lost now.
  void lead_elsewhere(bool in_the_middle);

 private:
  void move_from(const NodeId& host, const cluster::DrainedHost& drain, const cluster::JobRecord& job, WatchedJob& soft);
  Result<std::vector<cluster::TaskPlacement>> places_elsewhere(const cluster::JobRecord& job, const std::vector<TaskId>& there,
                                                               bool whole) const;
  void stay(const NodeId& host, const cluster::DrainedHost& drain, const cluster::JobRecord& job, const std::string& why);

  Context& c_;
  WatchedJobs& jobs_;
  KeptPlaces& places_;
  std::map<std::pair<NodeId, JobId>, Instant> stays_said_;  // when "stays on drained host" was last reported
  std::pair<NodeId, JobId> tried_last_;                     // the move that was tried last: the next look continues after it
  // no job is moved before this instant: leadership is being handed over, and the next coordinator is to hold the
  // places
  Instant moves_wait_{};
  std::uint64_t leads_elsewhere_ = 0;  // index of this host's drain for which leadership is being handed over; 0: none
  std::uint64_t led_elsewhere_ = 0;    // index of the drain for which it was handed over: not again for the same drain
  Instant next_lead_elsewhere_{};
};

}  // namespace dtrain::node
