// The coordinator's decisions: looks at every job that changed and proposes what comes next - a generation, an end, a
// removal. Changes nothing itself; a proposal takes effect when the log commits it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/cluster/queue.h"
#include "common/cluster/restore.h"
#include "common/cluster/shrink.h"
#include "common/node/checkpoint_requests.h"
#include "common/node/context.h"
#include "common/node/leases.h"

namespace dtrain::node {

class Coordinator {
 public:
  Coordinator(Context& context, Leases& leases, CheckpointRequests& checkpoints)
      : c_(context), leases_(leases), checkpoints_(checkpoints),
        queue_({.preempt = true, .back_fill_by_time = true, .broken_rule = context.options.broken_rule}) {}

  // To be called when another node coordinates: discards all that this class knows.
  void reset();
  // To be called when these jobs changed or were removed.
  void consider(const std::set<JobId>& ids);
  // To be called when entries up to this index are applied: those jobs may be decided about again. Returns their ids.
  std::set<JobId> applied(std::uint64_t index);
  void tick();
  Instant deadline() const;
  // To be called when hosts may have come, gone, died or changed; look_at_hosts() then looks at them when it is due.
  void hosts_changed() { next_look_ = {}; }
  void look_at_hosts();
  // To be called when a drain began or ended.
  void drains_changed();

  void scanned(const CheckpointsScanned& e);
  void verified(const CheckpointVerified& e);
  void quarantined(const CheckpointQuarantined& e);

  // The placement that the job would get now, for `plan`. Reserves nothing.
  Result<std::vector<cluster::TaskPlacement>> try_place(const job::JobSpec& spec) const;
  // Why the job waits; "" when it does not wait.
  std::string waiting_for(JobId id) const;

 private:
  struct Choosing {
    Choosing(cluster::RestoreChoice c, std::int64_t newest) : choice(std::move(c)), newest_known(newest) {}
    cluster::RestoreChoice choice;
    // step of the newest good checkpoint that the ledger knew at the beginning; -1: none
    std::int64_t newest_known;
    std::map<std::uint64_t, NodeId> asked;  // hosts that are scanning, by token
    std::set<NodeId> looked;                // hosts that were asked to scan
    std::vector<cluster::RestoreChoice::Found> found;
    std::optional<Error> problem;           // the first error of a scan
    bool everywhere = false;                // all hosts were asked
    std::uint64_t token = 0;                // of the verification or quarantine that is awaited; 0: none
    NodeId host;                            // where that verification or quarantine happens
    Instant asked_at{};                     // when the newest unanswered question was asked
    Instant retry = kNever;                 // when to try again, after a failure or while a host is awaited
    std::uint32_t unreadable = 0;           // reads that failed for a reason other than damage
    bool under_way() const { return token != 0 || !asked.empty(); }
  };
  struct Job {
    std::uint64_t proposed = 0;  // index of the proposal in flight; 0: none
    std::optional<Choosing> choosing;
    std::string waiting;                                // why no generation can begin
    std::string told;                                   // the value of `waiting` that was last sent to the ledger
    // the reason that the ledger had before `told`; nullopt: the ledger has `told`
    std::optional<std::string> told_after;
    std::optional<cluster::WaitKind> waits_as;          // the kind of `told`, if it was the queue that gave it
    std::optional<Instant> short_since;                 // since when the queue finds no room for all of the job (shrink.h)
    // while the job is in doubt: since when all its hosts are up; kNever: they are not, or were not looked at yet
    Instant all_there_since = kNever;
    // placement needed more hosts than may have tasks: tried again at this instant
    Instant too_wide_until{};
    Instant deadline = kNever;
  };
  bool look_at(JobId id);
  std::vector<TaskId> tasks_to_place(const cluster::JobRecord& job, Job& soft);
  Instant may_run_unknown(const cluster::JobRecord& job) const;
  void watch_refusals(const cluster::JobRecord& job, Job& soft);
  bool no_host_can(const cluster::JobRecord& job, const cluster::WaitingJob& waiting) const;
  void watch_doubt(const cluster::JobRecord& job, Job& soft);
  void watch_room(const cluster::JobRecord& job, Job& soft);
  void note_room(const cluster::JobRecord& job, Job& soft, bool for_all);
  cluster::Sizes fewest_tasks(const cluster::JobRecord& job, const Job& soft) const;
  std::vector<cluster::RunningJob> running_jobs() const;
  void start_waiting();
  bool decide();
  std::string cluster_too_wide(const std::vector<cluster::TaskPlacement>& placements) const;
  bool begin_generation(const cluster::JobRecord& job, Job& soft, std::vector<cluster::TaskPlacement> placements);
  enum class Restoring : unsigned char { ready, under_way, blocked };
  Restoring look_for_restore(const cluster::JobRecord& job, Job& soft);
  void say_what_takes_long(const cluster::JobRecord& job, Job& soft);
  void extend(const cluster::JobRecord& job, Job& soft, std::vector<cluster::TaskPlacement> placements);
  void wait_in_queue(const cluster::JobRecord& job, Job& soft, const cluster::Waits& waits);
  static bool is_told(const cluster::JobRecord& job, Job& soft);
  void choose(const cluster::JobRecord& job, Job& soft);
  void drive_choice(const cluster::JobRecord& job, Job& soft);
  // ---- coordinator_restore.cpp
  static bool wants_restore(const cluster::JobRecord& job);
  std::string why_restored(const cluster::RestoreChoice::Step& step) const;
  std::set<NodeId> hosts_to_ask(const cluster::JobRecord& job, const Choosing& choosing) const;
  void ask_hosts(const cluster::JobRecord& job, Choosing& choosing);
  void all_looked(const cluster::JobRecord& job, Job& soft);
  std::set<NodeId> hosts_away(const cluster::JobRecord& job, const Choosing& choosing) const;
  void wait_for_newest(const cluster::JobRecord& job, Job& soft);
  std::string hosts_text(const std::vector<NodeId>& hosts) const;
  void wait(const cluster::JobRecord& job, Job& soft, const std::string& reason, bool for_restore = false);
  void watch_time(const cluster::JobRecord& job, Job& soft);
  // Free capacity now, without what proposals in flight and held places use; the places held for `except` count as free.
  cluster::Capacity capacity(JobId except = 0) const;
  cluster::PortRange task_ports() const { return {c_.options.task_port_first, c_.options.task_port_last}; }
  void note_hosts(const cluster::Capacity& hosts);
  void watch_hosts();
  void came_back(const NodeId& id);
  void watch_copy(const NodeId& id, const std::string& name, bool waits);
  void watch_leases();
  bool watches_hosts() const { return has_others() || !c_.ledger.state().drained.empty(); }
  bool has_others() const;  // other hosts may have tasks, with or without a copy of the log
  // True if giving leadership away now would lose questions or proposals of this coordinator.
  bool in_the_middle() const;
  // ---- coordinator_preempt.cpp
  bool preempt(const std::vector<cluster::Preemption>& victims);
  bool makes_way(const cluster::JobRecord& job, Job& soft);
  // ---- coordinator_moves.cpp: drained hosts
  void move_jobs();
  bool is_over(const cluster::DrainedHost& drain) const;
  void move_from(const NodeId& host, const cluster::DrainedHost& drain, const cluster::JobRecord& job, Job& soft);
  bool propose_move(const NodeId& host, const cluster::JobRecord& job, Job& soft, bool forced);
  void stay(const NodeId& host, const cluster::DrainedHost& drain, const cluster::JobRecord& job, const std::string& why);
  void drop_unused_holds();
  void give_held_places();
  bool fits(const JobId& id, const job::JobSpec& spec, const std::vector<cluster::TaskPlacement>& placements) const;
  void lead_elsewhere();
  Instant at(Duration elapsed) const { return c_.now.boot + (elapsed - c_.elapsed()); }

  struct Booking {
    std::uint64_t index = 0;  // of the proposal
    JobId job = 0;
    job::JobSpec spec;
    std::vector<cluster::TaskPlacement> placements;
  };

  // Places kept for a job that is to leave a drained host, until the job takes them or has no use for them.
  struct Held {
    NodeId host;  // the drained host
    Generation generation = 0;
    std::uint64_t proposal = 0;  // index of the MoveJob in flight; 0: it is applied
    bool whole = false;          // places for the whole job; false: only for the tasks that move
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
  CheckpointRequests& checkpoints_;
  std::map<JobId, Job> jobs_;
  std::map<std::uint64_t, JobId> proposals_;  // by index of the proposal in flight
  std::vector<Booking> bookings_;             // placed but not yet applied: the next placement must count them
  std::set<JobId> unplaced_;                  // jobs that want a place; the queue decides who gets one
  struct Away {
    Instant since{};
    Instant back{};  // in service again since then; 0: it is away
  };
  std::map<NodeId, Away> away_;               // hosts with tasks that are down, or were until recently
  struct WithoutCopy {
    Instant since{};
    bool waits = false;  // it waits for its turn to be sent a snapshot
  };
  std::map<NodeId, WithoutCopy> without_copy_;  // hosts that are up and have tasks but no copy of the log
  Instant copy_came_{};                       // when such a host last got its copy
  std::map<NodeId, std::uint64_t> losing_;    // index of the HostLost in flight, by host
  std::uint64_t shape_ = 0;                   // a hash of the hosts that may be given tasks, as last looked at
  bool hosts_differ_ = false;                 // the hosts changed since the waiting jobs were last tried on them
  std::map<JobId, Held> held_;                // places that are not free for other jobs
  std::map<std::pair<NodeId, JobId>, Instant> stays_said_;  // when "stays on drained host" was last reported
  std::pair<NodeId, JobId> tried_last_;       // the move that was tried last: the next look continues after it
  std::uint64_t leads_elsewhere_ = 0;         // index of this host's drain for which leadership is being handed over; 0: none
  std::uint64_t led_elsewhere_ = 0;           // index of the drain for which it was handed over: not again for the same drain
  // no job is moved before this instant: leadership is being handed over, and the next coordinator is to hold the
  // places
  Instant moves_wait_{};
  Instant next_lead_elsewhere_{};
  bool drains_changed_ = false;
  Instant next_look_{};                       // when the hosts are looked at next
  cluster::JobQueue queue_;
};

}  // namespace dtrain::node
