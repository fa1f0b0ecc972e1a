// What a coordinator knows of each job beside the ledger: the proposal in flight, when the job is looked at again, and
// why it waits. The parts of the coordinator share this: while one of them has a proposal about a job in flight, the
// others leave the job alone. Nothing here is durable; the next coordinator begins anew.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/cluster/queue.h"
#include "common/node/context.h"

namespace dtrain::node {

// Between two looks at what nothing announces: what hosts have, and hosts and jobs on which a decision waits.
inline constexpr Duration kLookEvery = 1s;

struct WatchedJob {
  std::uint64_t proposed = 0;  // index of the proposal in flight; 0: none
  Instant deadline = kNever;   // when the job is looked at again though nothing has changed
  std::string waiting;         // why no generation can begin
  std::string told;            // the value of `waiting` that was last sent to the ledger
  // the reason that the ledger had before `told`; nullopt: the ledger has `told`
  std::optional<std::string> told_after;
  std::optional<cluster::WaitKind> waits_as;  // the kind of `told`, if it was the queue that gave it

  void look_by(Instant when) { deadline = std::min(deadline, when); }
};

class WatchedJobs {
 public:
  explicit WatchedJobs(Context& context) : c_(context) {}

  void reset();
  WatchedJob& watch(JobId id) { return jobs_[id]; }
  void forget(JobId id) { jobs_.erase(id); }
  WatchedJob* find(JobId id);  // nullptr: the job is not watched
  std::map<JobId, WatchedJob>& all() { return jobs_; }

  // The jobs whose deadline has passed, and the first deadline of all.
  std::set<JobId> due() const;
  Instant deadline() const;
  // When the clock of this host shows that elapsed time of the cluster.
  Instant at(Duration elapsed) const { return c_.now.boot + (elapsed - c_.elapsed()); }

  template <class T>
  void propose(WatchedJob& soft, JobId id, cluster::CommandType type, const T& body) {
    soft.proposed = c_.propose(type, body);
    proposals_[soft.proposed] = id;
  }
  bool any_proposed() const { return !proposals_.empty(); }
  // Entries up to this index are applied. Returns the jobs that had proposals among them, or refused ones.
  std::set<JobId> applied(std::uint64_t index);

  // Sets the reason for a wait that involves no proposal; the job keeps its place in the queue.
  void wait(const cluster::JobRecord& job, WatchedJob& soft, const std::string& reason, bool for_restore = false);
  void wait_in_queue(const cluster::JobRecord& job, WatchedJob& soft, const cluster::Waits& waits);
  std::string waiting_for(JobId id) const;  // "": it does not wait

 private:
  Context& c_;
  std::map<JobId, WatchedJob> jobs_;
  std::map<std::uint64_t, JobId> proposals_;  // by index of the proposal in flight
};

}  // namespace dtrain::node
