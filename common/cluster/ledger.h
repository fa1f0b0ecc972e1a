// The replicated state machine: jobs, their generations, tasks, checkpoints, and the history. Event-sourced:
// the only way in is apply(); the same commands give the same bytes. No I/O, no clock: a command brings its
// time.
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
  std::uint64_t history = 0;  // of the log, see history_of()
  auto operator<=>(const ReportMark& other) const { return std::pair(life, sequence) <=> std::pair(other.life, other.sequence); }
  bool operator==(const ReportMark&) const = default;
  template <class V>
  void fields(V& v) {
    v("life", life);
    v("sequence", sequence);
    v("history", history);
  }
};

// Of an epoch: 0 until the first recover-quorum, which makes it 1.
inline std::uint64_t history_of(std::uint64_t epoch) { return epoch >> 32; }

// A host that was away for too long. It is given nothing until it has said that what was taken from it has ended there.
struct LostHost {
  std::uint64_t index = 0;  // of the newest HostLost
  std::string name;
  bool gone = false;        // an operator's word: it runs nothing any more
  std::uint64_t leases_over = 0;  // what had a lease by that index runs there no more
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
// Jobs whose reason to stay is remembered of one drained host; a further one's is not shown.
inline constexpr std::size_t kStayingJobs = 1'000;

// A host that a user drained: given nothing, and left by its tasks where these find a place elsewhere.
struct DrainedHost {
  std::uint64_t index = 0;  // of the entry by which this drain began
  std::string name, reason, by;
  WallTime since{};
  std::optional<Duration> deadline;  // elapsed; then what has not moved is ended all the same
  std::map<JobId, std::string> stays;  // why it has not moved
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

// Hosts on which what a user submitted could not be begun, several times in a row and for no fault of the jobs: this user's are begun
// elsewhere for a growing while. By user, so that nobody can take hosts from others.
inline constexpr Duration kAvoidedFirst = 5s;  // after the second failure in a row; doubled with each
inline constexpr Duration kAvoidedMost = 10min;
inline constexpr std::size_t kAvoidedUsers = 64;  // of a host; beyond, the one whose time ends first is forgotten

// Everything a snapshot holds.
struct LedgerState {
  std::uint64_t format = 1;
  std::uint64_t applied = 0;  // index of the last entry
  std::uint64_t epoch = 0;    // highest seen; only grows
  NodeId coordinator;
  std::string coordinator_name;
  std::string boot_id;  // of the coordinator whose clock is meant by `at`
  Instant at{};
  Duration elapsed{0};  // of the cluster, see Command::at
  Duration log_elapsed{0};  // the log's own time (raft::LogEntry) at `applied`; what counts when the coordinator changes
  std::uint64_t next_event = 1;
  std::map<JobId, JobRecord> jobs;
  std::map<NodeId, std::map<std::uint16_t, Duration>>
      ports;                        // when last in use; entries older than kPortRest are dropped
  std::vector<LedgerEvent> events;  // newest limits::kKeptEvents
  std::map<NodeId, ReportMark> reports;
  std::map<NodeId, LostHost> lost;
  std::map<NodeId, DrainedHost> drained;
  std::string requests;  // raft::RequestWindow::encode(); only in a snapshot
  JobId job_base = 0;    // of the coordinator, see CoordinatorStarted
  std::optional<Duration> recovered;  // when job_base grew, elapsed; unset: it never did
  std::map<NodeId, std::map<std::string, Refusal>> avoided;  // by the name of whose jobs
  std::uint64_t told = 0;  // newest event that is in a coordinator's log, and whose hook was run or is about to be
  std::uint32_t version = kFirstVersion;  // what this ledger does (versions.h)
  std::uint64_t rehearsals = 0;           // jobs with `rehearsal` that were submitted
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

// A port of an ended generation rests this long: nothing left over may be met at its old address.
inline constexpr Duration kPortRest = 2min;

// What came of one command, for whoever proposed it.
struct Applied {
  Status status;  // refused commands change nothing
  JobId job = 0;
  std::string name;
  bool unchanged = false;  // submit: the same job was there already
  bool forbidden = false;  // refused for want of rights
  MemberId request;        // Command::request; none: no user's
};

// Cuts a text of users that would grow the ledger, at a whole UTF-8 character, and says so by "...".
void cut(std::string& text, std::size_t bytes);

class Ledger {
 public:
  Ledger() = default;
  // `index`: of the last entry in it. `knows`: the newest version that this program knows.
  static tl::expected<Ledger, Behind> restore(std::string_view snapshot, std::uint64_t index, std::uint32_t knows = kNewestVersion);
  std::string snapshot() const;

  // An entry that this program cannot read is refused with ErrorCode::damaged: nothing is changed by it, and nothing is applied any
  // more (behind()). Touched jobs are added to touched(). `log_elapsed`: of the entry.
  Applied apply(std::uint64_t index, std::string_view payload, Duration log_elapsed = {});
  // An entry that is the log's own business.
  void skip(std::uint64_t index) {
    if (!behind_) state_.applied = index;
  }
  const std::optional<Behind>& behind() const { return behind_; }
  // A snapshot that could not be restored stands before everything else.
  void stop(Behind behind) { behind_ = std::move(behind); }
  // A number that differs where the state does, of all that a snapshot holds.
  std::uint64_t hash() const;

  const LedgerState& state() const { return state_; }
  const std::deque<LedgerEvent>& events() const { return events_; }
  const JobRecord* find(JobId id) const;
  // The newest job of that name that is not forgotten.
  const JobRecord* find(std::string_view name) const;
  // Did that host report since the history began (recover-quorum)? Before, what it has under leases, or anything that the new
  // history does not know of, is its own.
  bool heard(const NodeId& host) const;
  // Hosts that are not to be given tasks of the job now: it was refused there, or its user's jobs fail there. See Refusal.
  Refusals refusals(const JobRecord& job, Duration elapsed) const;
  // Elapsed time at `now` of a host whose boot id is `boot_id`.
  Duration elapsed_at(Instant now) const;

  // Jobs changed since the last call.
  std::set<JobId> take_touched();
  // Jobs whose signalBeforeDeadline became due.
  std::set<JobId> take_signalled();
  // Was a host drained, or is one no more, since the last call?
  bool take_drains() { return std::exchange(drains_, false); }
  // Jobs that the last calls removed: their files can go.
  std::set<JobId> take_forgotten();

  // For --break in the simulator: the named rule is not kept. Empty in production.
  BrokenRule broken_rule{};
  // The newest version that this program knows. Another one only in tests of upgrades.
  std::uint32_t knows = kNewestVersion;

 private:
  friend class JobTransition;
  Applied apply_read(const Command& command, std::uint64_t index, Duration log_elapsed);
  // `unmeasured`: the log's time since the entry before.
  Applied dispatch(const Command& command, std::uint64_t index, Duration unmeasured);
  const JobRecord* made_by(std::uint64_t index) const;
  Applied apply_request(const Command& command, std::uint64_t index, Duration unmeasured);
  Applied apply_coordinator(const CoordinatorStarted& c, const Command& command, Duration unmeasured);
  Applied apply_submit(const SubmitJob& c, std::uint64_t index, WallTime wall);
  Applied apply_action(const JobAction& c, WallTime wall);
  Applied act(const JobAction& c, WallTime wall);
  Applied apply_begin(const BeginGeneration& c, bool extend, WallTime wall);
  Applied apply_report(const Report& c, WallTime wall);
  Applied apply_finish(const FinishJob& c, WallTime wall);
  Applied apply_checkpoint(const CheckpointSeen& c, WallTime wall);
  void note_stage_failure(const JobRecord& job, const NodeId& host, const std::string& reason);
  void note_staged(const JobRecord& job, const NodeId& host);
  void note_hosts(JobRecord& job, const BeginGeneration& c, bool extend);
  void note_restore_point(JobRecord& job, bool scratch_asked);
  void note_begun(JobRecord& job);
  Applied apply_forget(const ForgetJob& c, WallTime wall);
  Applied apply_waits(const JobWaits& c, WallTime wall);
  Applied apply_signal(const SignalJob& c);
  Applied apply_host_lost(const HostLost& c, std::uint64_t index, WallTime wall);
  Applied apply_still(const JobStill& c, WallTime wall);  // job_still.cpp
  // ledger_drain.cpp
  Applied apply_drain(const DrainHost& c, std::uint64_t index, WallTime wall);
  Applied apply_move(const MoveJob& c, WallTime wall);
  Applied apply_preempt(const PreemptJob& c, WallTime wall);
  Applied apply_version(const RaiseVersion& c, WallTime wall);
  // That somebody's word changed something: the event audit.VERB, behind those of what came of it. Where nothing changed there is none.
  void audit(WallTime wall, const std::optional<Asker>& asker, JobId job, const std::string& verb, std::string object, std::string reason,
             std::vector<EventField> details);
  void drop_oldest_finished(WallTime wall);
  Status room_for_spec(const SubmitJob& c, const job::JobSpec& spec, WallTime wall);
  void forget(JobId id, WallTime wall);
  void add_event(WallTime wall, JobId job, std::string type, std::string object, std::string reason,
                 std::vector<EventField> details);
  void use_ports(const TaskPlacement& place);
  bool taken(const BeginGeneration& c) const;

  raft::RequestWindow window_;
  LedgerState state_;  // its `events` stay empty: they live in events_ until a snapshot
  std::deque<LedgerEvent> events_;
  std::map<std::string, JobId, std::less<>> names_, requests_;
  std::set<std::pair<std::string, JobId>> winding_;  // those whose name a newer job got before they had ended
  std::set<JobId> touched_, forgotten_, signalled_;
  bool drains_ = false;
  std::optional<Behind> behind_;
};

}  // namespace dtrain::cluster
