// Gives waiting jobs their places: first those that are held for them, then what the queue decides. Proposes the
// generations that begin or grow, and ends jobs that must make room for the first waiting one. A job that cannot begin
// yet, because its checkpoint must be found first, gets no place, and nobody is ended for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/cluster/queue.h"
#include "common/node/kept_places.h"
#include "common/node/restore_chooser.h"
#include "common/node/waiting_jobs.h"
#include "common/node/watched_jobs.h"

namespace dtrain::node {

class Placer {
 public:
  Placer(Context& context, WatchedJobs& jobs, KeptPlaces& places, RestoreChooser& restores, WaitingJobs& waiting)
      : c_(context),
        jobs_(jobs),
        places_(places),
        restores_(restores),
        waiting_(waiting),
        queue_({.preempt = true, .back_fill_by_time = true, .broken_rule = context.options.broken_rule}) {}

  void reset() { queue_.forget(); }
  // To be called when a job wants a place, or something may have become free.
  void give_places();
  // The places that all tasks of a job that runs with fewer would get now if those that run ended. Nothing is taken that is reserved for
  // the first waiting job, unless that waits for this very job and would have to let it go first. nullopt: there is no room.
  std::optional<std::vector<cluster::TaskPlacement>> room_for_all(const cluster::JobRecord& job) const;
  // True if the hosts changed since the waiting jobs were last tried on them, or since the last call.
  bool hosts_differ();

 private:
  void give_held_places();
  bool give_held(JobId id, HeldPlaces& held);
  bool decide();
  bool start(cluster::Start& start);
  bool preempt(const std::vector<cluster::Preemption>& victims);
  bool begin_generation(const cluster::JobRecord& job, WatchedJob& soft, std::vector<cluster::TaskPlacement> placements);
  void extend(const cluster::JobRecord& job, WatchedJob& soft, std::vector<cluster::TaskPlacement> placements);
  std::vector<cluster::RunningJob> running_jobs() const;
  std::string cluster_too_wide(const std::vector<cluster::TaskPlacement>& placements) const;
  void note_hosts(const cluster::Capacity& hosts);

  Context& c_;
  WatchedJobs& jobs_;
  KeptPlaces& places_;
  RestoreChooser& restores_;
  WaitingJobs& waiting_;
  cluster::JobQueue queue_;
  std::uint64_t shape_ = 0;    // a hash of the hosts that may be given tasks, as last looked at
  bool hosts_differ_ = false;  // they changed since hosts_differ() was last asked
};

}  // namespace dtrain::node
