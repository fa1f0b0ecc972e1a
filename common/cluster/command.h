// The content of the log: decisions and observations, each a Command. Applying the same commands in the same order
// gives the same ledger, byte for byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/member_id.h"
#include "common/base/result.h"
#include "common/cluster/state.h"
#include "common/cluster/versions.h"
#include "common/wire/codec.h"

namespace dtrain::cluster {

enum class CommandType : unsigned char {
  coordinator_started,
  submit,
  action,
  begin_generation,
  extend_generation,
  report,
  finish,
  checkpoint,
  forget,
  waits,
  signal,
  host_lost,
  drain_host,
  move_job,
  preempt_job,
  job_still,
  events_told,
  raise_version
};
constexpr CommandType enum_last(CommandType) { return CommandType::raise_version; }
// The version of the ledger that introduced a type of command.
constexpr std::uint32_t since_version(CommandType) { return kFirstVersion; }

// Identifies a user's request, whoever proposes it and however often (raft/request_window.h).
struct RequestStamp {
  std::uint64_t high = 0, low = 0;  // its id
  std::uint64_t minted = 0;
  MemberId id() const { return {high, low}; }
  template <class V>
  void fields(V& v) {
    v("h", high);
    v("l", low);
    v("m", minted);
  }
};

struct Command {
  std::uint64_t epoch = 0;  // epoch of the coordinator that proposed it
  Instant at{};             // by that coordinator's clock: only differences within one boot are used
  WallTime wall{};
  CommandType type = CommandType::report;
  std::string body;  // the encoded struct of `type`
  std::optional<RequestStamp> request;
  std::uint32_t needs = kFirstVersion;  // the version of the ledger that is needed to apply it
  template <class V>
  void fields(V& v) {
    v("n", needs);
    v("q", request);
    v("e", epoch);
    v("at", at);
    v("w", wall);
    v("t", type);
    v("b", body);
  }
};

// Nobody knows what a majority had decided that was lost for good. So a history that recover-quorum began gives ids and
// generations beyond all that can have been given before, because something with the old ones may still lie, or run, on a
// host. The offsets exceed the entries of any log, and the generations of any job, that the survivor may have missed.
inline constexpr JobId kJobsOfHistory = 1'000'000'000;
inline constexpr Generation kGenerationsOfHistory = 1'000'000;

// First entry of each coordinator. Elapsed time continues by the clock if boot_id is the same, else from where it stood.
struct CoordinatorStarted {
  NodeId node;
  std::string node_name;
  std::string boot_id;
  // A job's id is job_base plus the index of its entry; job_base grows by kJobsOfHistory with each history. The
  // command carries it, instead of deriving it from the epoch, so that entries from before the release that
  // introduced it apply as they did.
  JobId job_base = 0;
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("node_name", node_name);
    v("boot_id", boot_id);
    v("job_base", job_base);
  }
};

// Who asked for a change, for the history (Ledger::audit). Unset in commands of agents from before the release that
// introduced it, which apply as they did.
struct Asker {
  std::string user;  // "" when the uid has no name there
  std::uint32_t uid = 0;
  std::string at;  // name of the host whose agent was asked
  template <class V>
  void fields(V& v) {
    v("user", user);
    v("uid", uid);
    v("at", at);
  }
};

struct SubmitJob {
  std::string spec;  // encoded job::JobSpec
  job::User user;
  std::string request_id;
  bool replace = false;
  NodeId package_host;  // a host that had the package at the submit and is asked for it first; "": not known
  std::optional<Asker> asker = {};
  template <class V>
  void fields(V& v) {
    v("spec", spec);
    v("user", user);
    v("request_id", request_id);
    v("replace", replace);
    v("package_host", package_host);
    v("asker", asker);
  }
};

enum class ActionKind : unsigned char { cancel, suspend, resume, restart, scale, remove, rerun };
constexpr ActionKind enum_last(ActionKind) { return ActionKind::rerun; }
struct JobAction {
  ActionKind kind = ActionKind::cancel;
  JobId job = 0;
  std::string user;            // who asked, for the history
  std::optional<TaskId> task;  // restart
  std::string role;            // scale
  std::uint32_t replicas = 0;  // scale
  bool force = false;          // remove
  bool from_scratch = false;   // restart
  std::string package_digest;  // restart
  NodeId package_host;         // restart: a host that has the package
  std::string request_id;      // rerun
  std::optional<Asker> asker = {};
  template <class V>
  void fields(V& v) {
    v("kind", kind);
    v("job", job);
    v("user", user);
    v("task", task);
    v("role", role);
    v("replicas", replicas);
    v("force", force);
    v("from_scratch", from_scratch);
    v("package_digest", package_digest);
    v("package_host", package_host);
    v("request_id", request_id);
    v("asker", asker);
  }
};

// Begins the next generation of a job (extend: adds tasks to the current one). Refused at apply if the job has changed meanwhile.
struct BeginGeneration {
  JobId job = 0;
  Generation generation = 0;
  std::vector<TaskPlacement> placements;
  std::optional<job::Restore> restore;
  std::string restore_digest;
  std::string message;              // "no checkpoint yet: from scratch", ...
  std::uint64_t restore_place = 0;  // place of the files that were verified (transfer/checkpoint.h)
  // Roles that begin with fewer tasks than wanted, with their number; all others begin with all tasks. (extend: empty.)
  std::map<std::string, std::uint32_t> sizes;
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("generation", generation);
    v("placements", placements);
    v("restore", restore);
    v("restore_digest", restore_digest);
    v("message", message);
    v("restore_place", restore_place);
    v("sizes", sizes);
  }
};

using job::TaskObservation;

// What a host observed of its tasks. Fenced: an observation of another generation than the job's newest changes
// nothing. A report is sent again until it is applied; `life` and `sequence` identify a repetition.
struct HostReport {
  NodeId node;
  std::vector<TaskObservation> tasks;
  std::uint64_t life = 0;      // of the host's agent; 0: the report has no number
  std::uint64_t sequence = 0;  // number of the report in that life, from 1
  std::string node_name;       // for people; "": the coordinator's host (reports of old agents)
  std::uint64_t back = 0;      // not 0: nothing that the HostLost of that index took away is left on the host
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("tasks", tasks);
    v("life", life);
    v("sequence", sequence);
    v("node_name", node_name);
    v("back", back);
  }
};

// The coordinator's decision that a host has been away for longer than its stateless tasks are waited for: these are
// lost, and begun elsewhere. Tasks that must not run twice wait for the host's return, for the end of their leases (all
// leases that the ledger knew of at index `leases_over` are over), or for an operator who says that the host is `gone`.
struct HostLost {
  NodeId node;
  std::string node_name;
  bool gone = false;
  std::uint64_t leases_over = 0;  // 0: no lease is known to be over
  bool ordered = false;           // its agent said that it stops, or was seen to have ended while the host was up: no fault of a job
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("node_name", node_name);
    v("gone", gone);
    v("leases_over", leases_over);
    v("ordered", ordered);
  }
};

// A user's order to give a host no new tasks and to move its tasks elsewhere (on), or to end that. Repeating it is no error.
struct DrainHost {
  NodeId node;
  std::string name;  // for people
  std::string reason, by;
  bool on = true;
  Duration within{0};  // after this time, what has not moved is ended; 0: never
  std::optional<Asker> asker = {};
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("name", name);
    v("reason", reason);
    v("by", by);
    v("on", on);
    v("within", within);
    v("asker", asker);
  }
};

// The coordinator's decision about a job with tasks on a drained host: places elsewhere are held for it, or it
// `stays`, with the reason.
struct MoveJob {
  JobId job = 0;
  Generation generation = 0;
  NodeId node;
  bool forced = false;  // the drain's deadline has passed: the job is ended there, with or without a place elsewhere
  std::string stays;    // not empty: why the job is not moved
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("generation", generation);
    v("node", node);
    v("forced", forced);
    v("stays", stays);
  }
};

// The coordinator's decision that a running job makes room for a waiting one of higher priority: it ends with its
// stop grace and waits again. Refused at apply if either has changed meanwhile.
struct PreemptJob {
  JobId job = 0;
  Generation generation = 0;
  JobId by = 0;
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("generation", generation);
    v("by", by);
  }
};

// The coordinator's decision to end a job: a deadline passed, or there is nothing to restore.
struct FinishJob {
  JobId job = 0;
  JobState state = JobState::failed;
  std::string reason;
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("state", state);
    v("reason", reason);
  }
};

struct CheckpointSeen {
  JobId job = 0;
  transfer::CheckpointInfo info;
  CheckpointState state = CheckpointState::complete;
  std::string message;
  NodeId host;                           // host where it was seen, verified, moved or deleted; "": all hosts that have it
  std::optional<Generation> generation;  // the generation that wrote it, if it is not in the ledger yet; unset: the job's newest
  std::string unrecognised = {};         // not empty: there is no checkpoint but files in no known format; all other fields mean nothing
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("info", info);
    v("state", state);
    v("message", message);
    v("host", host);
    v("generation", generation);
    v("unrecognised", unrecognised);
  }
};

// Removes a job whose time to live is over, or a deleted job whose last process is gone.
struct ForgetJob {
  JobId job = 0;
  template <class V>
  void fields(V& v) {
    v("job", job);
  }
};

// signalBeforeDeadline is due: the hosts are told once to send it.
struct SignalJob {
  JobId job = 0;
  template <class V>
  void fields(V& v) {
    v("job", job);
  }
};

// Why a job cannot continue now; shown to users, and an event.
struct JobWaits {
  JobId job = 0;
  std::string reason;
  bool for_restore = false;  // it waits for a host that has its newest checkpoint: timing.restoreWait counts from the first such command
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("reason", reason);
    v("for_restore", for_restore);
  }
};

// The coordinator's statement that a task of the job, on a host that is not heard, has had no lease for so long that
// it must be frozen; or, with `because` empty, that all have leases again.
struct JobStill {
  JobId job = 0;
  Generation generation = 0;
  std::string because;
  NodeId host = {};  // host of that task
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("generation", generation);
    v("because", because);
    v("host", host);
  }
};

// Events up to this number are logged and their hooks run (node/history.h).
struct EventsTold {
  std::uint64_t seq = 0;
  template <class V>
  void fields(V& v) {
    v("seq", seq);
  }
};

// Raises the ledger's version, since the programs of all members with a copy know it. A lower version than the
// ledger's changes nothing.
struct RaiseVersion {
  std::uint32_t to = kFirstVersion;
  template <class V>
  void fields(V& v) {
    v("to", to);
  }
};

// The version that a command with this body needs. ErrorCode::damaged if this program cannot decode the body, because
// it is malformed or of an unknown version. Such a command must not be proposed, because nobody could apply it.
Result<std::uint32_t> version_needed(CommandType type, std::string_view body);
// The same for a submission, with the job's description that it holds decoded already, or not.
std::uint32_t version_of_submit(const SubmitJob& body, const job::JobSpec& spec);
Result<std::uint32_t> version_of_submit(const SubmitJob& body);

// The same as version_needed(), without another look at the encoded body of a command that this program has made.
template <class T>
Result<std::uint32_t> version_of(CommandType type, const T& body) {
  if constexpr (std::is_same_v<T, SubmitJob>) return version_of_submit(body);
  std::uint32_t version = std::max(wire::needed_version(body), since_version(type));
  if constexpr (std::is_same_v<T, RaiseVersion>) version = std::max(version, body.to);
  return version;
}

template <class T>
std::string make_command(CommandType type, std::uint64_t epoch, Now now, const T& body) {
  const std::uint32_t needs = version_of(type, body).value_or(kFirstVersion);
  return wire::encode(Command{epoch, now.boot, now.wall, type, wire::encode(body), {}, needs});
}
}  // namespace dtrain::cluster
