// The replicated state machine: jobs, their generations, tasks, checkpoints, and the history. Event-sourced: apply() is
// the only way to change it, and the same commands give the same bytes. No I/O, no clock: each command carries its time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/broken_rule.h"
#include "common/base/result.h"
#include "common/cluster/command.h"
#include "common/cluster/state.h"
#include "common/cluster/versions.h"
#include "common/raft/request_window.h"
#include "common/wire/since.h"

namespace dtrain::cluster {

// The newest report of a host that was applied.
struct ReportMark {
  std::uint64_t life = 0, sequence = 0;
  std::uint64_t history = 0;  // history of the log, see history_of()
  auto operator<=>(const ReportMark& other) const { return std::pair(life, sequence) <=> std::pair(other.life, other.sequence); }
  bool operator==(const ReportMark&) const = default;
  template <class V>
  void fields(V& v) {
    v("life", life);
    v("sequence", sequence);
    v("history", history);
  }
};

// The number of an epoch's history: 0 until the first recover-quorum, which makes it 1.
inline std::uint64_t history_of(std::uint64_t epoch) { return epoch >> 32; }

// A host that was away for too long. It gets no tasks until it has reported that all which was taken from it has ended there.
struct LostHost {
  std::uint64_t index = 0;  // of the newest HostLost
  std::string name;
  bool gone = false;              // an operator said so: it runs nothing any more
  std::uint64_t leases_over = 0;  // whatever had a lease at that index no longer runs there
  bool ordered = false;           // see HostLost
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("name", name);
    v("gone", gone);
    v("leases_over", leases_over);
    v("ordered", ordered);
  }
};

// Drained hosts; a further one is refused.
inline constexpr std::size_t kDrainedHosts = 10'000;
// Jobs on one drained host whose reason to stay is remembered; reasons of further jobs are not shown.
inline constexpr std::size_t kStayingJobs = 1'000;

// A host that a user drained: it gets no tasks, and its tasks leave it when they find a place elsewhere.
struct DrainedHost {
  std::uint64_t index = 0;  // of the entry by which this drain began
  std::string name, reason, by;
  WallTime since{};
  std::optional<Duration> deadline;    // elapsed time; after it, what has not moved is ended
  std::map<JobId, std::string> stays;  // why a job has not moved
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("name", name);
    v("reason", reason);
    v("by", by);
    v("since", since);
    v("deadline", deadline);
    v("stays", stays);
  }
};

// Hosts where a user's jobs failed to begin several times in a row through no fault of the jobs: this user's tasks go
// elsewhere for a growing time. Kept for each user, so that nobody can take hosts from others.
inline constexpr Duration kAvoidedFirst = 5s;  // after the second failure in a row; doubled with each
inline constexpr Duration kAvoidedMost = 10min;
inline constexpr std::size_t kAvoidedUsers = 64;  // users of one host; beyond, the one whose time ends first is forgotten

// Everything a snapshot holds.
struct LedgerState {
  std::uint64_t format = 1;
  std::uint64_t applied = 0;  // index of the last entry
  std::uint64_t epoch = 0;    // the highest seen; only grows
  NodeId coordinator;
  std::string coordinator_name;
  std::string boot_id;  // of the coordinator whose clock `at` refers to
  Instant at{};
  Duration elapsed{0};      // of the cluster, see Command::at
  Duration log_elapsed{0};  // the log's own time (raft::LogEntry) at `applied`, used when the coordinator changes
  std::uint64_t next_event = 1;
  std::map<JobId, JobRecord> jobs;
  std::map<NodeId, std::map<std::uint16_t, Duration>> ports;  // when each was last in use; entries older than kPortRest are dropped
  std::deque<LedgerEvent> events;                             // the newest limits::kKeptEvents
  std::map<NodeId, ReportMark> reports;
  std::map<NodeId, LostHost> lost;
  std::map<NodeId, DrainedHost> drained;
  mutable std::string requests;                              // raft::RequestWindow::encode(); empty but while a snapshot is written
  JobId job_base = 0;                                        // the coordinator's, see CoordinatorStarted
  std::optional<Duration> recovered;                         // elapsed time when job_base grew; unset: it never did
  std::map<NodeId, std::map<std::string, Refusal>> avoided;  // by name of the user
  std::uint64_t told = 0;                 // newest event that is in a coordinator's log and whose hook was run or is about to be
  std::uint32_t version = kFirstVersion;  // the version whose rules this ledger follows (versions.h)
  std::uint64_t rehearsals = 0;           // number of submitted jobs with `rehearsal`
  template <class V>
  void fields(V& v) {
    v("format", format);
    v("applied", applied);
    v("epoch", epoch);
    v("coordinator", coordinator);
    v("coordinator_name", coordinator_name);
    v("boot_id", boot_id);
    v("at", at);
    v("elapsed", elapsed);
    v("log_elapsed", log_elapsed);
    v("next_event", next_event);
    v("jobs", jobs);
    v("ports", ports);
    v("events", events);
    v("reports", reports);
    v("lost", lost);
    v("drained", drained);
    v("requests", requests);
    v("job_base", job_base);
    v("recovered", recovered);
    v("avoided", avoided);
    v("told", told);
    v("version", version);
    v("rehearsals", rehearsals, wire::kRehearsal);
  }
};

// A port of an ended generation rests this long, so that no leftover process meets a new task at its old address.
inline constexpr Duration kPortRest = 2min;

// The result of one command, for the node that proposed it.
struct Applied {
  Status status;  // a refused command changes nothing
  JobId job = 0;
  std::string name;
  bool unchanged = false;  // submit: the same job was already there
  bool forbidden = false;  // refused for want of rights
  MemberId request;        // Command::request; none: it was no user's request
};

// Cuts a user's text at a whole UTF-8 character and marks that by "...", so that it cannot grow the ledger.
void cut(std::string& text, std::size_t bytes);

class Ledger {
 public:
  Ledger() = default;
  // `index`: of the last entry in the snapshot. `knows`: the newest version that this program knows.
  static tl::expected<Ledger, Behind> restore(std::string_view snapshot, std::uint64_t index, std::uint32_t knows = kNewestVersion);
  std::string snapshot() const;

  // Applies an entry. One that this program cannot read is refused with ErrorCode::damaged: it changes nothing, and
  // nothing is applied any more (behind()). Changed jobs are added to take_touched(). `log_elapsed`: of the entry.
  Applied apply(std::uint64_t index, std::string_view payload, Duration log_elapsed = {});
  // To be called for an entry that concerns only the log itself.
  void skip(std::uint64_t index) {
    if (!behind_) state_.applied = index;
  }
  const std::optional<Behind>& behind() const { return behind_; }
  // To be called when the snapshot at the start could not be restored.
  void stop(Behind behind) { behind_ = std::move(behind); }
  // A hash of all that a snapshot holds.
  std::uint64_t hash() const;

  const LedgerState& state() const { return state_; }
  const std::deque<LedgerEvent>& events() const { return state_.events; }
  const JobRecord* find(JobId id) const;
  // The newest job of that name that is not forgotten.
  const JobRecord* find(std::string_view name) const;
  // True if that host has reported since the history began (recover-quorum). Before that, it may run leased tasks, or
  // anything else, that the new history does not know of.
  bool heard(const NodeId& host) const;
  // Hosts that get no tasks of the job now, because the job was refused there or its user's jobs fail there. See Refusal.
  Refusals refusals(const JobRecord& job, Duration elapsed) const;
  // Elapsed time at `now`, by the clock of the host whose boot id is `boot_id`.
  Duration elapsed_at(Instant now) const;

  // Returns the jobs that changed since the last call.
  std::set<JobId> take_touched();
  // Returns the jobs whose signalBeforeDeadline became due since the last call.
  std::set<JobId> take_signalled();
  // True if a drain began or ended since the last call.
  bool take_drains() { return std::exchange(drains_, false); }
  // Returns the jobs that were removed since the last call, so that their files can be removed.
  std::set<JobId> take_forgotten();

  // For --break in the simulator: the name of a rule that is not kept. Empty in production.
  BrokenRule broken_rule{};
  // The newest version that this program knows; differs only in tests of upgrades.
  std::uint32_t knows = kNewestVersion;

 private:
  friend class JobTransition;
  Applied apply_read(const Command& command, std::uint64_t index, Duration log_elapsed);
  // `unmeasured`: the log's time since the previous entry.
  Applied dispatch(const Command& command, std::uint64_t index, Duration unmeasured);
  const JobRecord* made_by(std::uint64_t index) const;
  Applied apply_request(const Command& command, std::uint64_t index, Duration unmeasured);
  Applied apply_coordinator(const CoordinatorStarted& c, const Command& command, Duration unmeasured);
  Applied apply_submit(const SubmitJob& c, std::uint64_t index, WallTime wall);
  Applied apply_action(const JobAction& c, WallTime wall);
  Applied act(const JobAction& c, WallTime wall);
  Applied apply_begin(const BeginGeneration& c, bool extend, WallTime wall);
  Applied apply_report(const HostReport& c, WallTime wall);
  Applied apply_finish(const FinishJob& c, WallTime wall);
  Applied apply_checkpoint(const CheckpointSeen& c, WallTime wall);
  Applied apply_share(JobRecord& job, const CheckpointSeen& c, WallTime wall);
  void add_event(WallTime wall, const JobRecord& job, const CheckpointSeen& c, const char* type);
  void note_stage_failure(const JobRecord& job, const NodeId& host, const std::string& reason);
  void note_staged(const JobRecord& job, const NodeId& host);
  void note_hosts(JobRecord& job, const BeginGeneration& c, bool extend);
  void note_restore_point(JobRecord& job, bool scratch_asked);
  void note_begun(JobRecord& job);
  Applied apply_forget(const ForgetJob& c, WallTime wall);
  Applied apply_waits(const JobWaits& c, WallTime wall);
  Applied apply_signal(const SignalJob& c);
  Applied apply_host_lost(const HostLost& c, std::uint64_t index, WallTime wall);
  Applied apply_still(const JobStill& c, WallTime wall);  // in job_still.cpp
  // ledger_drain.cpp
  Applied apply_drain(const DrainHost& c, std::uint64_t index, WallTime wall);
  Applied apply_move(const MoveJob& c, WallTime wall);
  Applied apply_preempt(const PreemptJob& c, WallTime wall);
  Applied apply_version(const RaiseVersion& c, WallTime wall);
  // Adds the event audit.VERB, after the events of its effects, if somebody's command changed something.
  void audit(WallTime wall, const std::optional<Asker>& asker, JobId job, const std::string& verb, std::string object, std::string reason,
             std::vector<EventField> details);
  void drop_oldest_finished(WallTime wall);
  struct Usage;
  Usage usage(const job::User& user) const;
  Status room_for_spec(const SubmitJob& c, const std::string& name, const JobRecord* replaced, Usage used, WallTime wall);
  void forget(JobId id, WallTime wall);
  void add_event(WallTime wall, JobId job, std::string type, std::string object, std::string reason, std::vector<EventField> details);
  void use_ports(const TaskPlacement& place);
  bool taken(const BeginGeneration& c) const;

  raft::RequestWindow window_;
  LedgerState state_;
  std::map<std::string, JobId, std::less<>> names_, requests_;
  std::set<std::pair<std::string, JobId>> winding_;  // jobs that had not ended when a newer job got their name
  std::set<JobId> touched_, forgotten_, signalled_;
  bool drains_ = false;
  std::optional<Behind> behind_;
};

}  // namespace dtrain::cluster
