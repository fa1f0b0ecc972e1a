// Jobs that run with fewer tasks than their users want, and whose missing tasks cannot come beside those that run: once there has been room
// for all tasks of such a job for long enough, it begins again with all of them (docs/recovery.md, "A job that shrinks"). The command is
// the one with which a user restarts a job, so no replica needs a rule of its own. Nothing here is durable: the next coordinator counts
// anew.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "common/node/placer.h"

namespace dtrain::node {

class GrowingJobs {
 public:
  GrowingJobs(Context& context, WatchedJobs& jobs, KeptPlaces& places, const Placer& placer)
      : c_(context), jobs_(jobs), places_(places), placer_(placer) {}

  void reset() { growing_.clear(); }
  void forget(JobId id) { growing_.erase(id); }
  // To be called when the job changed, or the time that an earlier call set in soft.deadline has come.
  void look(const cluster::JobRecord& job, WatchedJob& soft);

 private:
  using Saved = std::pair<Generation, std::int64_t>;  // a checkpoint: by whom, and its step
  struct Growing {
    Instant next_look{};
    std::optional<Instant> due;   // when there will have been room for long enough; unset: there is none
    Duration wait{0};             // for so long
    std::optional<Saved> saved;   // the newest verified checkpoint at that time; unset: it is not yet over, or no checkpoint is waited for
    std::optional<Instant> grew;  // when it last grew,
    Duration waited{0};           // and for how long there had been room then
  };
  void look_for_room(const cluster::JobRecord& job, WatchedJob& soft, Growing& growing);
  Duration wait_of(const cluster::JobRecord& job, const Growing& growing) const;
  static Saved newest_saved(const cluster::JobRecord& job);

  Context& c_;
  WatchedJobs& jobs_;
  KeptPlaces& places_;
  const Placer& placer_;
  std::map<JobId, Growing> growing_;  // jobs that shrank or grew
};

}  // namespace dtrain::node
