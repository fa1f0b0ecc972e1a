// The jobs that want places, for which of their tasks, and on what terms: whether a job may begin with fewer tasks, which
// hosts refuse it, what it must wait for before it asks at all. Who gets a place is decided elsewhere (Placer).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/cluster/queue.h"
#include "common/cluster/shrink.h"
#include "common/node/kept_places.h"
#include "common/node/restore_chooser.h"
#include "common/node/watched_jobs.h"

namespace dtrain::node {

// True if the job has a place, or is to get one, for its next generation.
bool begins(const cluster::JobRecord& job);
// A number that is the same before and after the proposal that begins the run is applied.
std::uint64_t run_of(const cluster::JobRecord& job);

class WaitingJobs {
 public:
  WaitingJobs(Context& context, WatchedJobs& jobs, KeptPlaces& places, const RestoreChooser& restores)
      : c_(context), jobs_(jobs), places_(places), restores_(restores) {}

  void reset();
  void forget(JobId id);
  // To be called when the job changed. Returns true if it wants a place.
  bool look(const cluster::JobRecord& job, WatchedJob& soft);
  // To be called when its places are proposed.
  void placed(const cluster::JobRecord& job, WatchedJob& soft);

  const std::set<JobId>& all() const { return unplaced_; }
  // The tasks of the job that want a place now. Empty: it has a place, or waits for something else, for which
  // soft.deadline is set.
  std::vector<TaskId> tasks_to_place(const cluster::JobRecord& job, WatchedJob& soft);
  // All that want places now, as the queue is told of them, except jobs for which all places are held. Ends jobs that
  // no host can run.
  struct ForQueue {
    std::vector<cluster::WaitingJob> jobs;
    std::deque<job::JobSpec> whole;  // to which `jobs` point: specs of jobs that ran with fewer tasks than wanted
  };
  ForQueue for_queue();

  // To be called when the queue found room for all of the job, or did not.
  void note_room(const cluster::JobRecord& job, WatchedJob& soft, bool for_all);
  // To be called when the job was placed on more hosts than may have tasks: for a while, it asks for no place.
  void too_wide(const cluster::JobRecord& job, WatchedJob& soft, const std::string& why);

 private:
  struct Terms {
    std::optional<Instant> short_since;  // since when the queue finds no room for all of the job (shrink.h)
    Instant too_wide_until{};            // it asks for no place before
  };
  Instant may_run_unknown(const cluster::JobRecord& job) const;
  bool must_wait(const cluster::JobRecord& job, WatchedJob& soft);
  bool makes_way(const cluster::JobRecord& job, WatchedJob& soft);
  std::vector<TaskId> tasks_to_add(const cluster::JobRecord& job, WatchedJob& soft) const;
  void watch_refusals(const cluster::JobRecord& job, WatchedJob& soft) const;
  void watch_room(const cluster::JobRecord& job, WatchedJob& soft);
  std::optional<cluster::WaitingJob> queue_entry(const cluster::JobRecord& job, WatchedJob& soft, std::deque<job::JobSpec>& whole);
  bool no_host_can(const cluster::JobRecord& job, const cluster::WaitingJob& waiting) const;

  Context& c_;
  WatchedJobs& jobs_;
  KeptPlaces& places_;
  const RestoreChooser& restores_;
  std::set<JobId> unplaced_;
  std::map<JobId, Terms> terms_;
};

}  // namespace dtrain::node
