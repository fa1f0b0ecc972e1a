// What the log carries: decisions and observations, each a Command. Applying the same commands in the same
// order gives the same ledger, byte for byte.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
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
constexpr CommandType enum_last(CommandType) {
  return CommandType::raise_version;
}
// The version of the ledger that a type of command came with.
constexpr std::uint32_t since_version(CommandType) {
  return kFirstVersion;
}

// Names a user's request, whoever proposes it and however often (raft/request_window.h).
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
  std::uint64_t epoch = 0;  // of the coordinator that proposed it
  Instant at{};             // that coordinator's clock: only differences within one boot count
  WallTime wall{};
  CommandType type = CommandType::report;
  std::string body;  // the encoded struct of `type`
  std::optional<RequestStamp> request;
  std::uint32_t needs = kFirstVersion;  // the version of the ledger that all of it belongs to
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

// What a majority that was lost for good had decided nobody knows: a history that recover-quorum began gives ids and numbers that are
// beyond all that can have been given, for what has the old ones may still lie, or run, on a host. More than any log had entries, and
// any job generations, that the survivor's did not have.
inline constexpr JobId kJobsOfHistory = 1'000'000'000;
inline constexpr Generation kGenerationsOfHistory = 1'000'000;

// First entry of each coordinator: elapsed time goes on where boot_id is the same, else from where it stood.
struct CoordinatorStarted {
  NodeId node;
  std::string node_name;
  std::string boot_id;
  // A job's id is that and the index of its entry; only grows, by kJobsOfHistory for each history. Told, and not taken from the epoch of
  // the command, so that entries of before a release that knew it apply as they did.
  JobId job_base = 0;
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("node_name", node_name);
    v("boot_id", boot_id);
    v("job_base", job_base);
  }
};

// Who asked for a change, for the history (Ledger::audit). Unset in commands of agents before a release that knew it: these apply as
// they did.
struct Asker {
  std::string user;  // "" when the uid has no name there
  std::uint32_t uid = 0;
  std::string at;    // name of the host whose agent was asked
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
  NodeId package_host;  // that had the package when it was submitted, and is asked for it first; "": not known
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
constexpr ActionKind enum_last(ActionKind) {
  return ActionKind::rerun;
}
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
  NodeId package_host;         // restart: that has the package
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

// The next generation of a job (extend: more tasks of the current one). Refused at apply when the job moved
// on.
struct BeginGeneration {
  JobId job = 0;
  Generation generation = 0;
  std::vector<TaskPlacement> placements;
  std::optional<job::Restore> restore;
  std::string restore_digest;
  std::string message;  // "no checkpoint yet: from scratch", ...
  std::uint64_t restore_place = 0;  // of the files that were verified (transfer/checkpoint.h)
  // Of roles that begin with fewer tasks than wanted: how many. All others begin whole. (extend: empty.)
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

// What a host saw of its tasks. Fenced: an observation of another generation than the job's newest changes
// nothing.
// It is sent again until it is applied: `life` and `sequence` tell a repetition.
struct Report {
  NodeId node;
  std::vector<TaskObservation> tasks;
  std::uint64_t life = 0;      // of the host's agent; 0: not numbered
  std::uint64_t sequence = 0;  // counts the reports of that life, from 1
  std::string node_name;       // for people; "": of the coordinator's host, which was the only one before
  std::uint64_t back = 0;      // not 0: nothing that HostLost of that index took away is left on the host
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

// The coordinator's word that a host is away for longer than its stateless tasks are waited for: these are lost, and begun
// elsewhere. What must not run twice waits for the host's return, for the end of its lease (all that the
// ledger knew to have one there at index `leases_over` are over), or for an operator's word that the host is `gone`.
struct HostLost {
  NodeId node;
  std::string node_name;
  bool gone = false;
  std::uint64_t leases_over = 0;  // 0: none is known to be
  bool ordered = false;           // its agent said goodbye, or was seen to have ended while the host was up: no fault of a job
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("node_name", node_name);
    v("gone", gone);
    v("leases_over", leases_over);
    v("ordered", ordered);
  }
};

// A user's word that a host is to be given nothing and what runs there is to go elsewhere (on), or that this is over. Repeating
// it is no error.
struct DrainHost {
  NodeId node;
  std::string name;    // for people
  std::string reason, by;
  bool on = true;
  Duration within{0};  // after that, what has not moved is ended all the same; 0: never
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

// The coordinator's verdict on a job with tasks on a drained host: there are places for it elsewhere (held by the coordinator),
// or it `stays`, and why.
struct MoveJob {
  JobId job = 0;
  Generation generation = 0;
  NodeId node;
  bool forced = false;  // the drain's deadline has passed: it is ended there, wherever it may go on
  std::string stays;    // not empty: it is not moved
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("generation", generation);
    v("node", node);
    v("forced", forced);
    v("stays", stays);
  }
};

// The coordinator's verdict that a running job makes room for one of higher priority that waits: it ends with its stop grace and
// waits again. Refused at apply when either moved on.
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

// The coordinator's own verdict on a job: a deadline passed, nothing to restore.
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
  NodeId host;                           // where it was seen, judged, moved or deleted; "": wherever it is
  std::optional<Generation> generation;  // that wrote it, where it is not in the ledger yet; unset: the job's newest
  std::string unrecognised = {};         // not empty: no checkpoint, but files in no format that is known; nothing else counts
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

// A finished job's time to live is over, or a deleted job's last process is gone.
struct ForgetJob {
  JobId job = 0;
  template <class V>
  void fields(V& v) {
    v("job", job);
  }
};

// signalBeforeDeadline is due: the hosts are told once.
struct SignalJob {
  JobId job = 0;
  template <class V>
  void fields(V& v) {
    v("job", job);
  }
};

// Why a job cannot go on now; shown, and an event.
struct JobWaits {
  JobId job = 0;
  std::string reason;
  bool for_restore = false;  // for a host that has its newest checkpoint: timing.restoreWait counts from the first such word
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("reason", reason);
    v("for_restore", for_restore);
  }
};

// The coordinator's word that a task of the job, on a host that it does not hear of, has had no lease for so long that it must be
// frozen; or, `because` empty, that all have one again.
struct JobStill {
  JobId job = 0;
  Generation generation = 0;
  std::string because;
  NodeId host = {};  // where
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("generation", generation);
    v("because", because);
    v("host", host);
  }
};

// Events up to this number are told (node/history.h).
struct EventsTold {
  std::uint64_t seq = 0;
  template <class V>
  void fields(V& v) {
    v("seq", seq);
  }
};

// The programs of all members that have a copy know this version. A lower one than the ledger has changes nothing.
struct RaiseVersion {
  std::uint32_t to = kFirstVersion;
  template <class V>
  void fields(V& v) {
    v("to", to);
  }
};

// The version that a command with this body needs. ErrorCode::damaged where this program cannot decode it: the body is wrong, or of a
// version that is not known here. Such a command must not be proposed, for nobody could apply it.
Result<std::uint32_t> version_needed(CommandType type, std::string_view body);

template <class T>
std::string make_command(CommandType type, std::uint64_t epoch, Now now, const T& body) {
  std::string encoded = wire::encode(body);
  const std::uint32_t needs = version_needed(type, encoded).value_or(kFirstVersion);
  return wire::encode(Command{epoch, now.boot, now.wall, type, std::move(encoded), {}, needs});
}
}  // namespace dtrain::cluster
