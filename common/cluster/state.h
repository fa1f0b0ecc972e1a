// The ledger's records. Pure data; only Ledger::apply writes them. All times that decide anything are elapsed time of
// the cluster (Duration since its first entry, see Ledger); WallTime is for people.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/time.h"
#include "common/job/cluster_spec.h"
#include "common/job/exit.h"
#include "common/job/job_spec.h"
#include "common/job/observation.h"
#include "common/transfer/checkpoint.h"

namespace dtrain::cluster {

enum class JobState : unsigned char {
  pending,
  placed,
  staging,
  starting,
  running,
  restarting,
  recovering,
  suspended,
  succeeded,
  failed,
  cancelled
};
constexpr JobState enum_last(JobState) { return JobState::cancelled; }
std::string_view to_string(JobState s);
inline bool is_final(JobState s) { return s >= JobState::succeeded; }

using job::TaskState;

// The place of one task of a generation.
struct TaskPlacement {
  TaskId task;
  NodeId node;
  job::TaskAddress address;
  std::vector<std::uint32_t> gpus;  // indices on that host
  template <class V>
  void fields(V& v) {
    v("task", task);
    v("node", node);
    v("address", address);
    v("gpus", gpus);
  }
};

struct TaskRecord {
  TaskPlacement place;
  TaskState state = TaskState::waiting;
  AttemptNumber first_attempt = 1;  // of this generation
  AttemptNumber attempt = 0;        // the highest known to have started (0: none)
  AttemptNumber exit_attempt = 0;   // the newest attempt whose exit is in `exit`
  std::int32_t pid = 0;             // while an attempt runs
  WallTime started{};
  Duration started_elapsed{0};
  std::optional<job::Exit> exit;
  bool reached_running = false;  // in this generation
  bool ready = false;            // READY=1, in this generation
  bool completed = false;        // succeeded for good: not run again in later generations, except with its gang
  bool ended = false;            // the host reported that nothing of this assignment runs or will run
  bool lost = false;             // ended because its host is away or drained (HostLost, MoveJob); a place elsewhere is wanted
  bool moving = false;           // being stopped, to begin on another host (MoveJob)
  bool reached_staged = false;   // in this generation
  // newest attempt that may have begun: the first after the barrier, later ones by restarts_are_granted()
  AttemptNumber granted_attempt = 0;
  std::uint32_t consecutive_failures = 0;
  AttemptNumber restart_attempt = 0;  // a user asked to end this attempt and start the next, which costs no budget
  std::vector<Duration> failures;     // times of failures within the threshold's window; at most its count
  bool given_up = false;              // failed for good while its job goes on without it (a dynamic worker)
  bool left_running = false;          // ran when its job ended under cleanPodPolicy None
  std::string reason;
  std::uint64_t placed = 0;          // index of the entry that placed it there
  Duration lease{0};                 // the longest lease that this assignment ever had; 0: its host may run it without one
  std::uint64_t leased = 0;          // index of the report that first named a lease
  bool lease_frozen = false;         // by its host's report
  Duration stood_still{0};           // by its host's report, see TaskObservation
  AttemptNumber spared_attempt = 0;  // newest attempt whose exit counts in no budget: its job stood still, or its host ended it
  bool process_stopped = false;      // by its host's report, see TaskObservation
  template <class V>
  void fields(V& v) {
    v("place", place);
    v("state", state);
    v("given_up", given_up);
    v("left_running", left_running);
    v("first_attempt", first_attempt);
    v("attempt", attempt);
    v("exit_attempt", exit_attempt);
    v("pid", pid);
    v("started", started);
    v("started_elapsed", started_elapsed);
    v("exit", exit);
    v("reached_running", reached_running);
    v("ready", ready);
    v("completed", completed);
    v("ended", ended);
    v("lost", lost);
    v("moving", moving);
    v("reached_staged", reached_staged);
    v("granted_attempt", granted_attempt);
    v("consecutive_failures", consecutive_failures);
    v("restart_attempt", restart_attempt);
    v("failures", failures);
    v("reason", reason);
    v("placed", placed);
    v("lease", lease);
    v("leased", leased);
    v("lease_frozen", lease_frozen);
    v("stood_still", stood_still);
    v("spared_attempt", spared_attempt);
    v("process_stopped", process_stopped, wire::Since{3});
  }
};

// shares: no host has all of it; `complete` of its info says whether all of them together do.
enum class CheckpointState : unsigned char { complete, verified, damaged, quarantined, deleted, shares };
constexpr CheckpointState enum_last(CheckpointState) { return CheckpointState::shares; }
constexpr std::uint32_t since_version(CheckpointState state) { return state == CheckpointState::shares ? 3 : 1; }

// A host that has a checkpoint.
struct CheckpointPlace {
  NodeId host;
  std::uint64_t place = 0;       // CheckpointInfo::place on that host
  transfer::Shares shares = {};  // state `shares`: what of it that host has
  bool verified = false;         // that share is, every byte of it
  template <class V>
  void fields(V& v) {
    v("host", host);
    v("place", place);
    v("shares", shares, wire::Since{3});
    v("verified", verified, wire::Since{3});
  }
};

// One entry of a job's lineage. Order: generation, then step.
struct CheckpointRecord {
  transfer::CheckpointInfo info;
  Generation generation = 0;      // the one that wrote it (0: before the job began)
  std::int64_t parent_step = -1;  // the step that its generation restored (-1: from scratch)
  CheckpointState state = CheckpointState::complete;
  WallTime seen{};
  std::vector<CheckpointPlace> places;  // as hosts reported; at most limits::kCheckpointPlaces (kShareHosts), further ones are not noted
  template <class V>
  void fields(V& v) {
    v("info", info);
    v("generation", generation);
    v("parent_step", parent_step);
    v("state", state);
    v("seen", seen);
    v("places", places);
  }
};
inline bool is_good(CheckpointState s) { return s == CheckpointState::complete || s == CheckpointState::verified; }

// All of it is, as far as hosts reported, on some host or on several together.
inline bool is_whole(const CheckpointRecord& r) {
  return is_good(r.state) || (r.state == CheckpointState::shares && r.info.complete && !r.places.empty());
}

// Every byte of it was checked, whether one host has it or several have it together.
inline bool is_verified(const CheckpointRecord& r) {
  return r.state == CheckpointState::verified ||
         (r.state == CheckpointState::shares && is_whole(r) && std::ranges::all_of(r.places, &CheckpointPlace::verified));
}
// Shares of it are removed because of checkpoint.keep; what hosts still have is no checkpoint any more.
inline bool is_half_removed(const CheckpointRecord& r) { return r.state == CheckpointState::deleted && !r.places.empty(); }

// Where a generation began: what earlier generations wrote beyond that step is a branch that was left behind.
struct RestorePoint {
  Generation generation = 0;
  std::int64_t step = -1;  // -1: from scratch
  template <class V>
  void fields(V& v) {
    v("generation", generation);
    v("step", step);
  }
};

struct Fault {
  TaskId task;
  NodeId node;
  Generation generation = 0;
  AttemptNumber attempt = 0;
  WallTime at{};
  job::Exit exit;
  template <class V>
  void fields(V& v) {
    v("task", task);
    v("node", node);
    v("generation", generation);
    v("attempt", attempt);
    v("at", at);
    v("exit", exit);
  }
};

struct Condition {
  JobState type = JobState::pending;
  bool status = false;
  WallTime at{};
  std::string reason;
  template <class V>
  void fields(V& v) {
    v("type", type);
    v("status", status);
    v("at", at);
    v("reason", reason);
  }
};

// A host on which a job could not begin: it gets no tasks of this job until `until`. After a failed prolog, or a
// failure that only the job's user can mend, that is kRefusedFor at once; else it begins with kRefusedFirst and
// doubles with each failure, up to kRefusedFor.
inline constexpr Duration kRefusedFor = 5min;
inline constexpr Duration kRefusedFirst = 1s;
inline constexpr std::size_t kRefusalBytes = 300;  // of its reason; the rest is cut off
struct Refusal {
  Duration until{0};
  std::string reason;
  std::uint32_t times = 0;  // failures there without a success in between
  bool for_good = false;    // nothing changes there by itself: the user must mend it (no such directory)
  bool avoided = false;     // another job of the same user failed there; `reason` names it
  JobId job = 0;            // the job whose generation last failed there: further failing tasks of that generation do not count
  Generation generation = 0;
  template <class V>
  void fields(V& v) {
    v("until", until);
    v("reason", reason);
    v("times", times);
    v("for_good", for_good);
    v("avoided", avoided);
    v("job", job);
    v("generation", generation);
  }
};
using Refusals = std::map<NodeId, Refusal>;
// The refusals whose time is not over.
Refusals in_force(const Refusals& refusals, Duration elapsed);
// So many generations in a row that began and then lost a port to another process cost no budget. Further ones do,
// because a job that can give a port away can also feign such a loss.
inline constexpr std::uint32_t kFreePortsLost = 3;

// How long a host is avoided after so many failures in a row, if `first` is the time after the first.
Duration refused_for(std::uint32_t times, Duration first, Duration most);

// Other tasks that fail within this time before or after a task's ordered end, or the loss of its host, are taken to
// fail because of that.
inline constexpr Duration kConsequence = 60s;

// What users or the rules want of a job.
enum class Goal : unsigned char { run, suspend, end };
constexpr Goal enum_last(Goal) { return Goal::end; }

// The job that this one makes room for, or made room for when it last ended.
struct Preempted {
  JobId by = 0;  // 0: for nobody
  std::string name;
  template <class V>
  void fields(V& v) {
    v("by", by);
    v("name", name);
  }
};

// Why the current generation is being stopped before a next one begins.
enum class Halt : unsigned char { none, recovery, replace, requested, scale, rerun };
constexpr Halt enum_last(Halt) { return Halt::rerun; }

struct JobRecord {
  JobId id = 0;
  job::JobSpec spec;
  std::string submitted_spec;  // encoded, as submitted: scale changes `spec`, while "same content" is decided by this
  job::User user;
  std::string request_id;
  NodeId package_host;  // the host that the package came from; "": not known
  WallTime created{};
  Duration created_elapsed{0};

  JobState state = JobState::pending;
  std::string reason;
  Goal goal = Goal::run;
  bool deleting = false;       // forget it once nothing of it runs
  bool replaced = false;       // deleting, and its name belongs to a newer job already
  std::string delete_request;  // the request that began it; the same request sent again changes nothing

  Generation generation = 0;         // the newest; 0: none yet
  Halt halt = Halt::none;            // the generation is being stopped
  bool graceful = false;             // by stop signal and grace; false: killed at once
  bool needs_generation = true;      // the next generation begins once the old one has ended
  Duration not_before{0};            // back-off of recoveries and placements
  std::uint32_t stage_failures = 0;  // of generations in a row
  std::uint32_t ports_lost = 0;      // generations in a row that had begun and lost a port to another process
  bool was_running = false;          // this run has been Running once

  std::map<TaskId, TaskRecord> tasks;            // of the newest generation
  std::map<TaskId, AttemptNumber> former_tasks;  // tasks scaled away: their logs remain, and their attempts are counted on

  std::uint32_t restarts = 0;           // in this run, in place and recoveries
  std::uint32_t budget_spent = 0;       // those of `restarts` that count against backoffLimit
  std::uint32_t recoveries_in_row = 0;  // without a healthy period between them
  std::optional<Duration> run_started;  // first placement of this run (anew after a resume)
  Duration all_running_since{0};
  std::optional<Duration> finished_elapsed;
  WallTime finished{};

  std::vector<CheckpointRecord> checkpoints;
  bool committed_once = false;  // a complete checkpoint of this job was seen
  std::optional<job::Restore> restored;
  std::string restored_digest;
  std::uint32_t fruitless_restores = 0;  // consecutive failures of generations restored from restored_digest without progress
  bool from_scratch = false;             // a user asked that the next generation restore nothing
  // restore points of generations, without those that a later generation which began makes needless
  std::vector<RestorePoint> lineage;
  bool unbegun = false;              // nothing of the newest generation has started yet, so it has left nothing behind
  std::map<NodeId, Generation> ran;  // by host: the newest generation with tasks there
  // by host of the newest generation: the one before its tasks came there; missing: there was none
  std::map<NodeId, Generation> ran_before;
  std::uint64_t restored_place = 0;             // place of the files of `restored` that were verified
  std::optional<Duration> restore_waits_since;  // since when its newest checkpoint is only on hosts that are away (timing.restoreWait)

  Preempted preempted;            // set until the job has a place again
  std::uint32_t preemptions = 0;  // in this run

  bool leave_running = false;  // cleanPodPolicy None: tasks that run at the end are left alone until delete
  bool signalled = false;      // signalBeforeDeadline was sent in this run
  std::optional<Fault> first_fault;
  std::vector<Condition> conditions;
  std::vector<JobState> passed;  // states reached in this run, in order of first reaching
  std::uint64_t version = 0;     // bumped by every change (not compared across nodes)

  // A job stands still while a task of it is frozen for want of a lease, or must be: restarts wait, and nothing is counted.
  std::string must_be_frozen;           // the task that must be frozen, by the coordinator's statement, and why; "": none
  std::optional<Duration> still_since;  // since when it stands still; unset: it does not
  Duration still_to{0};                 // time that it stood still before this is added to run_started

  // By role that runs with fewer tasks than wanted (shrink.h): the size that is wanted.
  std::map<std::string, std::uint32_t> shrunk;

  std::uint64_t history = 0;  // the one in which it was submitted, or its newest generation began; see history_of()

  Refusals refused_by;  // in this run; expired ones are dropped. Bounded by the hosts of its generations

  // An exit because of another task's ordered end, or of the loss of its host, is a consequence (kConsequence) and costs nothing.
  std::optional<Duration> disturbed;  // when such an end was last reported
  std::optional<Duration> charged;    // when a recovery was last counted against its budget
  std::vector<Duration> charges;      // times of exits that were counted against its budget, within kConsequence; without losses of hosts
  // A task of the job has failed for good, but its cause may be something elsewhere that is yet to be reported. The coordinator decides.
  std::optional<Duration> doubted;
  std::string doubt;  // the reason with which it would fail

  NodeId waits_for_host;      // a host that is away and may run what must not run twice; "": none
  NodeId frozen_on;           // the host of the task in `must_be_frozen`; "": none
  bool progressing = false;   // it trains, as far as the ledger knows; false for final jobs
  WallTime progress_since{};  // when `progressing` changed
  JobId follows = 0;          // the previous job of that name, which has not ended yet: nothing of this job begins before; 0: none
  std::optional<Duration> evaluators_until;  // it has succeeded except for roles of policy.waitFor, which are waited for until then

  std::string unrecognised;  // files in no known format that a host saw in the checkpoint directory; "": none

  template <class V>
  void fields(V& v) {
    v("id", id);
    v("spec", spec);
    v("submitted_spec", submitted_spec);
    v("user", user);
    v("request_id", request_id);
    v("package_host", package_host);
    v("created", created);
    v("created_elapsed", created_elapsed);
    v("state", state);
    v("reason", reason);
    v("goal", goal);
    v("deleting", deleting);
    v("delete_request", delete_request);
    v("replaced", replaced);
    v("generation", generation);
    v("halt", halt);
    v("graceful", graceful);
    v("needs_generation", needs_generation);
    v("not_before", not_before);
    v("stage_failures", stage_failures);
    v("ports_lost", ports_lost);
    v("was_running", was_running);
    v("tasks", tasks);
    v("former_tasks", former_tasks);
    v("restarts", restarts);
    v("budget_spent", budget_spent);
    v("recoveries_in_row", recoveries_in_row);
    v("run_started", run_started);
    v("all_running_since", all_running_since);
    v("finished_elapsed", finished_elapsed);
    v("finished", finished);
    v("checkpoints", checkpoints);
    v("committed_once", committed_once);
    v("restored", restored);
    v("restored_digest", restored_digest);
    v("fruitless_restores", fruitless_restores);
    v("from_scratch", from_scratch);
    v("preempted", preempted);
    v("preemptions", preemptions);
    v("leave_running", leave_running);
    v("signalled", signalled);
    v("first_fault", first_fault);
    v("conditions", conditions);
    v("passed", passed);
    v("version", version);
    v("must_be_frozen", must_be_frozen);
    v("still_since", still_since);
    v("still_to", still_to);
    v("lineage", lineage);
    v("ran", ran);
    v("ran_before", ran_before);
    v("restore_waits_since", restore_waits_since);
    v("restored_place", restored_place);
    v("shrunk", shrunk);
    v("history", history);
    v("refused_by", refused_by);
    v("unbegun", unbegun);
    v("unrecognised", unrecognised);
    v("disturbed", disturbed);
    v("charged", charged);
    v("charges", charges);
    v("doubted", doubted);
    v("doubt", doubt);
    v("waits_for_host", waits_for_host);
    v("frozen_on", frozen_on);
    v("progressing", progressing);
    v("progress_since", progress_since);
    v("follows", follows);
    v("evaluators_until", evaluators_until);
  }

  // True if a checkpoint of that generation and step was left behind.
  bool is_stale(Generation generation, std::int64_t step) const;
  bool nothing_runs() const;  // every task of the newest generation ended, or there is none
};

// If a job with a backoffLimit has tasks on several hosts, the ledger counts each restart before it begins, so that their sum
// never exceeds the budget, however late hosts hear of each other. Otherwise the host restarts at once and reports afterwards.
bool restarts_are_granted(const JobRecord& job);

struct EventField {
  std::string key, value;
  template <class V>
  void fields(V& v) {
    v("k", key);
    v("v", value);
  }
};
struct LedgerEvent {
  std::uint64_t seq = 0;
  WallTime at{};
  JobId job = 0;  // 0: the event concerns the cluster
  std::string type, object, reason;
  std::vector<EventField> details;  // generation=2 node=n1 ...
  template <class V>
  void fields(V& v) {
    v("seq", seq);
    v("at", at);
    v("job", job);
    v("type", type);
    v("object", object);
    v("reason", reason);
    v("details", details);
  }
};

}  // namespace dtrain::cluster
