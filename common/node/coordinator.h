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
  // A host was drained, or is no more.
  void drains_changed();

  void scanned(const CheckpointsScanned& e);
  void verified(const CheckpointVerified& e);
  void quarantined(const CheckpointQuarantined& e);

  // What a job would get now: for `plan`. Nothing is booked.
  Result<std::vector<cluster::TaskPlacement>> try_place(const job::JobSpec& spec) const;
  // Why a job that waits does so; "" when it does not wait.
  std::string waiting_for(JobId id) const;

 private:
  struct Choosing {
    Choosing(cluster::RestoreChoice c, std::int64_t newest) : choice(std::move(c)), newest_known(newest) {}
    cluster::RestoreChoice choice;
    std::int64_t newest_known;              // step of the newest good one that the ledger knew when it began; -1: none
    std::map<std::uint64_t, NodeId> asked;  // who is looking, by token
    std::set<NodeId> looked;                // whoever was asked to
    std::vector<cluster::RestoreChoice::Found> found;
    std::optional<Error> problem;           // the first of those who could not
    bool everywhere = false;                // all hosts were asked
    std::uint64_t token = 0;                // of the verdict or quarantine that is awaited; 0: none
    NodeId host;                            // where
    Instant asked_at{};                     // the newest question without an answer
    Instant retry = kNever;                 // after what failed, or while a host is awaited
    std::uint32_t unreadable = 0;           // reads that failed for another reason than damage
    bool under_way() const { return token != 0 || !asked.empty(); }
  };
  struct Job {
    std::uint64_t proposed = 0;  // index of our proposal in flight; 0: none
    std::optional<Choosing> choosing;
    std::string waiting;                                // why no generation can begin
    std::string told;                                   // of `waiting`, to the ledger
    std::optional<std::string> told_after;              // the ledger's reason before; nullopt: it knows `told`
    std::optional<cluster::WaitKind> waits_as;          // of `told`, in the queue; nullopt: it waits for something else
    std::optional<Instant> short_since;                 // since when the queue finds no room for all of it (shrink.h)
    Instant all_there_since = kNever;                   // while it is in doubt: its hosts; kNever: they are not, or were not looked at yet
    Instant too_wide_until{};                           // it found places on more hosts than may have tasks: looked at again then
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
  // coordinator_restore.cpp
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
  // What is free now: proposals in flight are taken off, and so are held places, those of `except` excepted.
  cluster::Capacity capacity(JobId except = 0) const;
  cluster::PortRange task_ports() const { return {c_.options.task_port_first, c_.options.task_port_last}; }
  void note_hosts(const cluster::Capacity& hosts);
  void watch_hosts();
  void came_back(const NodeId& id);
  void watch_copy(const NodeId& id, const std::string& name, bool waits);
  void watch_leases();
  bool watches_hosts() const { return has_others() || !c_.ledger.state().drained.empty(); }
  bool has_others() const;  // who may have tasks, be it without a copy of the log
  // What was asked or proposed by this coordinator would be lost by giving leadership away now.
  bool in_the_middle() const;
  // coordinator_preempt.cpp
  bool preempt(const std::vector<cluster::Preemption>& victims);
  bool makes_way(const cluster::JobRecord& job, Job& soft);
  // coordinator_moves.cpp: drained hosts.
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

  // Places of a job that is to leave a drained host, until it takes them or they are of no use any more.
  struct Held {
    NodeId host;  // that it leaves
    Generation generation = 0;
    std::uint64_t proposal = 0;  // MoveJob in flight, by index; 0: applied
    bool whole = false;          // of all of the job; else of the tasks that move alone
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
  std::map<std::uint64_t, JobId> proposals_;  // in flight, by index
  std::vector<Booking> bookings_;             // placed, not yet applied: the next placement must see them
  std::set<JobId> unplaced_;                  // want a place: the queue says who gets one
  struct Away {
    Instant since{};
    Instant back{};  // in service since then, for the moment; 0: it is away
  };
  std::map<NodeId, Away> away_;               // hosts with tasks that are down, or were just now
  struct WithoutCopy {
    Instant since{};
    bool waits = false;  // for its turn to be sent a snapshot
  };
  std::map<NodeId, WithoutCopy> without_copy_;  // hosts with tasks that have none of the log, though they are there
  Instant copy_came_{};                       // to one of them, last
  std::map<NodeId, std::uint64_t> losing_;    // HostLost in flight, by index
  std::uint64_t shape_ = 0;                   // of the hosts that may be given tasks, as last looked at
  bool hosts_differ_ = false;                 // from those that the jobs which wait were last looked at with
  std::map<JobId, Held> held_;                // what is not free for others
  std::map<std::pair<NodeId, JobId>, Instant> stays_said_;  // when last
  std::pair<NodeId, JobId> tried_last_;       // to move: the next look goes on behind it
  std::uint64_t leads_elsewhere_ = 0;         // for the drain of this host of that index leadership is being handed over
  std::uint64_t led_elsewhere_ = 0;           // and was: not again for that one
  Instant moves_wait_{};                      // for the next coordinator, who shall hold the places
  Instant next_lead_elsewhere_{};
  bool drains_changed_ = false;
  Instant next_look_{};                       // at the hosts
  cluster::JobQueue queue_;
};

}  // namespace dtrain::node
