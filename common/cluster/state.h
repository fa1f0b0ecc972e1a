// What the ledger knows. Pure records; only Ledger::apply writes them. All times that decide anything are
// elapsed time of the cluster (Duration since its first entry, see Ledger); WallTime is for people.
#pragma once

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
constexpr JobState enum_last(JobState) {
  return JobState::cancelled;
}
std::string_view to_string(JobState s);
inline bool is_final(JobState s) {
  return s >= JobState::succeeded;
}

using job::TaskState;

// Where one task of a generation was put.
struct TaskPlacement {
  TaskId task;
  NodeId node;
  job::TaskAddress address;
  std::vector<std::uint32_t> gpus;  // indices on the node
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
  AttemptNumber attempt = 0;        // highest known to have started (0: none ever)
  AttemptNumber exit_attempt = 0;   // the newest attempt whose exit is in `exit`
  std::int32_t pid = 0;             // while an attempt runs
  WallTime started{};
  Duration started_elapsed{0};
  std::optional<job::Exit> exit;
  bool reached_running = false;  // in this generation
  bool ready = false;            // READY=1, in this generation
  bool completed = false;        // succeeded for good: never run again, also not in later generations
  bool ended = false;            // the host said: nothing of this assignment runs or will run
  bool lost = false;             // ended, because its host is away or drained (HostLost, MoveJob); a place elsewhere is wanted
  bool moving = false;           // is being stopped, to be begun on another host (MoveJob)
  bool reached_staged = false;   // in this generation
  AttemptNumber granted_attempt = 0;  // newest that may have begun: the first since the barrier, later ones as in restarts_are_granted()
  std::uint32_t consecutive_failures = 0;
  AttemptNumber restart_attempt = 0;  // a user asked to end this attempt and start the next: costs no budget
  std::vector<Duration> failures;     // when, within the threshold's window; at most its count
  bool given_up = false;             // failed for good while its job goes on without it (a dynamic worker)
  bool left_running = false;          // ran when its job ended under cleanPodPolicy None
  std::string reason;
  std::uint64_t placed = 0;           // index of the entry that put it there
  Duration lease{0};                  // the longest under which this assignment ever ran; 0: its host may run it without one
  std::uint64_t leased = 0;           // index of the report that first named one
  bool lease_frozen = false;          // its host said so
  Duration stood_still{0};            // as its host says, see TaskObservation
  AttemptNumber spared_attempt = 0;   // newest whose exit counts in no budget: its job stood still, or its host ended it
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
  }
};

enum class CheckpointState : unsigned char { complete, verified, damaged, quarantined, deleted };
constexpr CheckpointState enum_last(CheckpointState) {
  return CheckpointState::deleted;
}

// A host that has a checkpoint.
struct CheckpointPlace {
  NodeId host;
  std::uint64_t place = 0;  // CheckpointInfo::place there
  template <class V>
  void fields(V& v) {
    v("host", host);
    v("place", place);
  }
};

// One entry of a job's lineage. Order: generation, then step.
struct CheckpointRecord {
  transfer::CheckpointInfo info;
  Generation generation = 0;      // that wrote it (0: before the job began)
  std::int64_t parent_step = -1;  // what its generation restored (-1: from scratch)
  CheckpointState state = CheckpointState::complete;
  WallTime seen{};
  std::vector<CheckpointPlace> places;  // as hosts told; limits::kCheckpointPlaces at most, further ones are not noted
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
inline bool is_good(CheckpointState s) {
  return s == CheckpointState::complete || s == CheckpointState::verified;
}

// Where a generation began: what earlier ones wrote beyond that step is a branch that was left behind.
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

// A host on which a job could not be begun: it is given no tasks of this job until then. After a prolog that failed, or what only the
// job's user can mend, that is kRefusedFor at once; else it begins with kRefusedFirst and doubles with each failure, up to that.
inline constexpr Duration kRefusedFor = 5min;
inline constexpr Duration kRefusedFirst = 1s;
inline constexpr std::size_t kRefusalBytes = 300;  // of its reason; the rest is cut off
struct Refusal {
  Duration until{0};
  std::string reason;
  std::uint32_t times = 0;  // that it failed there, without a success between
  bool for_good = false;    // nothing changes there by itself: the user must mend it (no such directory)
  bool avoided = false;     // another job of the same user failed there, which `reason` names
  JobId job = 0;            // whose generation failed there last: its further tasks are no further failure
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
// Those that are not over.
Refusals in_force(const Refusals& refusals, Duration elapsed);
// So many generations in a row that began, and lost a port to somebody else, cost no budget: who may give a port away can feign one.
inline constexpr std::uint32_t kFreePortsLost = 3;

// For how long a host is avoided after so many failures in a row, with `first` after the first of them.
Duration refused_for(std::uint32_t times, Duration first, Duration most);

// So long before and after a task's ordered end, or the loss of its host, others that fail are taken to die of that.
inline constexpr Duration kConsequence = 60s;

// What the people or the rules want of a job.
enum class Goal : unsigned char { run, suspend, end };
constexpr Goal enum_last(Goal) {
  return Goal::end;
}

// For whom a job makes room, or made room when it ended last.
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
constexpr Halt enum_last(Halt) {
  return Halt::rerun;
}

struct JobRecord {
  JobId id = 0;
  job::JobSpec spec;
  std::string
      submitted_spec;  // as submitted, encoded: scale changes `spec`, "same content" is decided on this
  job::User user;
  std::string request_id;
  NodeId package_host;  // where the package came from; "": not known
  WallTime created{};
  Duration created_elapsed{0};

  JobState state = JobState::pending;
  std::string reason;
  Goal goal = Goal::run;
  bool deleting = false;  // forget it once nothing of it runs
  bool replaced = false;  // deleting, and its name belongs to a newer job already
  std::string delete_request;  // that began it: the same one sent again asks for nothing more

  Generation generation = 0;         // newest; 0: none yet
  Halt halt = Halt::none;            // the generation is being stopped
  bool graceful = false;             // by stop signal and grace; else killed at once
  bool needs_generation = true;      // once all of the old is ended, begin the next
  Duration not_before{0};            // back-off of recoveries and placements
  std::uint32_t stage_failures = 0;  // in a row
  std::uint32_t ports_lost = 0;      // likewise: of generations that had begun, for a port of theirs was somebody else's
  bool was_running = false;          // this run has been Running once

  std::map<TaskId, TaskRecord> tasks;            // of the newest generation
  std::map<TaskId, AttemptNumber> former_tasks;  // scaled away: their logs remain, their attempts count on

  std::uint32_t restarts = 0;           // of this run: in place + recoveries
  std::uint32_t budget_spent = 0;       // of them, those that count against backoffLimit
  std::uint32_t recoveries_in_row = 0;  // without a healthy period between
  std::optional<Duration> run_started;  // first placement of this run (anew after a resume)
  Duration all_running_since{0};
  std::optional<Duration> finished_elapsed;
  WallTime finished{};

  std::vector<CheckpointRecord> checkpoints;
  bool committed_once = false;  // a complete checkpoint of this job was seen
  std::optional<job::Restore> restored;
  std::string restored_digest;
  std::uint32_t fruitless_restores =
      0;  // failures in a row of generations restored from restored_digest without progress
  bool from_scratch = false;  // asked for by a user: the next generation restores nothing
  std::vector<RestorePoint> lineage;         // of generations; only those that no later one which began makes needless
  bool unbegun = false;                      // nothing of the newest generation was started yet: it has left nothing behind
  std::map<NodeId, Generation> ran;          // the newest generation with tasks on that host
  std::map<NodeId, Generation> ran_before;   // of the newest generation's hosts: the one before its tasks came there; none: not there
  std::uint64_t restored_place = 0;          // of the files of `restored` that were verified
  std::optional<Duration> restore_waits_since;  // its newest checkpoint is on hosts that are away (timing.restoreWait)

  Preempted preempted;            // until it has a place again
  std::uint32_t preemptions = 0;  // of this run

  bool leave_running = false;  // cleanPodPolicy None: what runs at the end is left alone until delete
  bool signalled = false;      // signalBeforeDeadline was sent in this run
  std::optional<Fault> first_fault;
  std::vector<Condition> conditions;
  std::vector<JobState> passed;  // states reached in this run, in order of first reaching
  std::uint64_t version = 0;     // bumped by every change (not compared across nodes)

  // It stands still while a task of it is frozen for want of a lease, or must be: restarts wait, and nothing is counted.
  std::string must_be_frozen;           // the coordinator's word that one is, and which; "": none
  std::optional<Duration> still_since;  // unset: it does not
  Duration still_to{0};                 // what it stood still before that is added to run_started

  // Of roles that run with fewer tasks than wanted (shrink.h): what is wanted.
  std::map<std::string, std::uint32_t> shrunk;

  std::uint64_t history = 0;  // in which it was submitted, or its newest generation began; see history_of()

  Refusals refused_by;  // in this run; those that are long over are dropped. Bounded by the hosts of its generations

  // What dies of another task's end that was ordered, or of the loss of its host, is a consequence (kConsequence): it costs nothing.
  std::optional<Duration> disturbed;  // when such an end was heard of last
  std::optional<Duration> charged;    // when a recovery was counted against its budget last
  std::vector<Duration> charges;      // when exits were counted against its budget, within kConsequence; losses of hosts are not in it
  // A task of it has failed for good, and what it may have died of elsewhere could be heard of yet. The coordinator decides.
  std::optional<Duration> doubted;
  std::string doubt;                  // how it is to be failed

  NodeId waits_for_host;      // that is away, and may run what must not run twice; "": none
  NodeId frozen_on;           // of `must_be_frozen`: the host whose leased tasks must be; "": none
  bool progressing = false;   // it trains, as far as the ledger knows; final jobs do not
  WallTime progress_since{};  // when that changed
  JobId follows = 0;          // the job of that name before it, which has not ended yet: nothing of this one begins before; 0: none
  std::optional<Duration> evaluators_until;  // it has succeeded but for roles of policy.waitFor, which are waited for until then

  std::string unrecognised;  // what a host saw in the checkpoint directory in no format that is known; "": nothing

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

  // Was it left behind, if that generation wrote it?
  bool is_stale(Generation generation, std::int64_t step) const;
  bool nothing_runs() const;  // every task of the newest generation ended, or there is none
};

// Where a job with a backoffLimit has tasks on several hosts, each restart is counted by the ledger before it begins: their sum
// never exceeds the budget, whoever hears of whom how late. Elsewhere the host restarts at once and tells.
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
  JobId job = 0;  // 0: of the cluster
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
