// The coordinator's thinking: looks at every job that changed and proposes what should come next - a
// generation, an end, a removal. It changes nothing itself; what it proposes takes effect when the log
// commits it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/cluster/queue.h"
#include "common/cluster/restore.h"
#include "common/node/context.h"
#include "common/node/leases.h"

namespace dtrain::node {

class Coordinator {
 public:
  Coordinator(Context& context, Leases& leases) : c_(context), leases_(leases) {}

  // Another node coordinates: nothing of this is known here any more.
  void reset();
  // These jobs changed, or are gone.
  void consider(const std::set<JobId>& ids);
  // Entries up to this index are applied: what was proposed with them may be proposed anew. Returns the jobs
  // meant.
  std::set<JobId> applied(std::uint64_t index);
  void tick();
  Instant deadline() const;
  // Hosts may have come, gone, died or changed: looked at when it is due.
  void hosts_changed() { next_look_ = {}; }
  void look_at_hosts();

  void scanned(const CheckpointsScanned& e);
  void verified(const CheckpointVerified& e);
  void quarantined(const CheckpointQuarantined& e);

  // What a job would get now: for `plan`. Nothing is booked.
  Result<std::vector<cluster::TaskPlacement>> try_place(const job::JobSpec& spec) const;
  // Why a job that waits does so; "" when it does not wait.
  std::string waiting_for(JobId id) const;

 private:
  struct Choosing {
    cluster::RestoreChoice choice;
    std::uint64_t token = 0;       // of the answer awaited; 0: none
    Instant retry = kNever;        // after a scan or read that failed
    std::uint32_t unreadable = 0;  // reads that failed for another reason than damage
  };
  struct Job {
    std::uint64_t proposed = 0;  // index of our proposal in flight; 0: none
    std::optional<Choosing> choosing;
    bool watched = false;
    std::set<std::string> known;    // checkpoints (path and digest) seen by the watch, queued or judged
    std::set<std::string> deleted;  // surplus ones whose removal was ordered
    std::vector<transfer::CheckpointInfo> to_verify;    // found by the watch
    std::optional<transfer::CheckpointInfo> verifying;  // one at a time, newest first
    std::string waiting;                                // why no generation can begin
    cluster::WaitKind waits_as = cluster::WaitKind::behind;  // of `waiting`, in the queue
    Instant deadline = kNever;
  };
  // Where a job's files are: it can run nowhere else.
  struct Bound {
    NodeId host;             // "": nowhere in particular
    std::string why;         // for people: "its package is on h2 only"
    bool coordinator = false;  // and only that host can look for what it restores: it must coordinate
  };

  bool look_at(JobId id);
  std::vector<TaskId> tasks_to_place(const cluster::JobRecord& job, Job& soft);
  std::vector<cluster::RunningJob> running_jobs() const;
  void start_waiting();
  bool decide();
  bool begin_generation(const cluster::JobRecord& job, Job& soft, std::vector<cluster::TaskPlacement> placements);
  void extend(const cluster::JobRecord& job, Job& soft, std::vector<cluster::TaskPlacement> placements);
  void wait_in_queue(const cluster::JobRecord& job, Job& soft, const cluster::Waits& waits);
  void choose(const cluster::JobRecord& job, Job& soft);
  void drive_choice(const cluster::JobRecord& job, Job& soft);
  void watch(const cluster::JobRecord& job, Job& soft);
  void verify_next(const cluster::JobRecord& job, Job& soft);
  void delete_surplus(const cluster::JobRecord& job, Job& soft);
  void wait(const cluster::JobRecord& job, Job& soft, const std::string& reason);
  void watch_time(const cluster::JobRecord& job, Job& soft);
  cluster::Capacity capacity() const;  // what is free now, proposals in flight taken off
  Bound bound(const cluster::JobRecord& job) const;
  bool waits_for_its_host(const cluster::JobRecord& job, Job& soft);
  void hand_over_to(const NodeId& host, Job& soft);
  void watch_hosts();
  Instant at(Duration elapsed) const { return c_.now.boot + (elapsed - c_.elapsed()); }

  struct Booking {
    std::uint64_t index = 0;  // of the proposal
    JobId job = 0;
    job::JobSpec spec;
    std::vector<cluster::TaskPlacement> placements;
  };

  template <class T>
  void propose(Job& soft, JobId id, cluster::CommandType type, const T& body) {
    soft.proposed = c_.propose(type, body);
    proposals_[soft.proposed] = id;
  }

  Context& c_;
  Leases& leases_;
  std::map<JobId, Job> jobs_;
  std::map<std::uint64_t, JobId> proposals_;  // in flight, by index
  std::vector<Booking> bookings_;             // placed, not yet applied: the next placement must see them
  std::set<JobId> unplaced_;                  // want a place: the queue says who gets one
  std::map<NodeId, Instant> away_;            // since when a host with tasks is down
  std::map<NodeId, std::uint64_t> losing_;    // HostLost in flight, by index
  std::uint64_t shape_ = 0;                   // of the hosts that may be given tasks, as last looked at
  std::set<JobId> bound_;                     // wait for the host that has their files
  Instant next_look_{};                       // at the hosts
  Instant next_hand_over_{};
  cluster::JobQueue queue_{{.preempt = false, .back_fill_by_time = true, .broken_rule = {}}};
};

}  // namespace dtrain::node
