// What Node wants done. Effects are values; the agent performs them in order, the simulator pretends to.
// Asynchronous ones answer with exactly one event each (named behind ->).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/job/job_spec.h"
#include "common/node/alternative.h"
#include "common/node/event.h"
#include "common/raft/log_entry.h"
#include "common/task/shim_spec.h"
#include "common/transfer/checkpoint.h"
#include "common/wire/control.h"

namespace dtrain::node {

// One atomic, durable commit, in the order of the fields (raft::Persist says what most of them mean). -> Persisted |
// PersistFailed
struct Persist {
  std::uint64_t ticket = 0;
  bool forget_log = false;               // hard state, snapshot and entries are dropped before what follows
  std::optional<std::string> formation;  // an encoded cluster::formation::Record; replaces the older one
  std::optional<raft::HardState> hard;
  std::optional<raft::StoredSnapshot> snapshot;  // replaces older ones; entries up to its index are dropped
  bool reset_log = false;                        // with a snapshot: all entries are dropped
  std::optional<std::uint64_t> truncate_from;    // entries from this index on are dropped
  std::vector<raft::LogEntry> append;
  std::map<std::string, std::string> put_task_records;  // by names of Node's own (host_hooks.h, gpu_reclaim.h)
  std::vector<std::string> erase_task_records;
};

// Sends one frame to a client. `last` ends the request (a request has one or more replies).
struct Reply {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  bool last = true;
  std::string body;  // wire/control.h
};
struct CloseConnection {
  ConnectionId connection = 0;
};

// One chunk of an upload. -> BlobWritten when `last`, or at the first failure
struct WriteBlob {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  std::uint64_t offset = 0;
  std::string bytes;
  bool last = false;
  std::string digest;  // expected, BLAKE2b-256 hex
};

// What such a connection wrote and did not finish is dropped. No completion
struct DropBlob {
  ConnectionId connection = 0;
};
// Is it on this host's disk? It counts as used then, and is not the next to go when the cache is full. -> BlobFound
struct FindBlob {
  std::string digest;
};
// The bytes of a blob from `offset` on, as wire::BlobChunk replies of the agent; it ends them with last = true.
struct SendBlob {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  std::string digest;
  std::uint64_t offset = 0;
};

// Streams handled by the agent between a file or process and the connection; Node only decides that it may
// be. The agent sends wire::LogChunk / wire::ExecOutput replies itself and ends them with last = true.
struct LogSource {
  AssignmentId id;
};
struct OpenLog {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  std::string query;                  // encoded wire::LogsRequest
  std::vector<AssignmentId> sources;  // in order of generation, then task
  bool ended = false;                 // nothing more will come: do not follow
};
// The job went on or ended: follow these too. Sent while an OpenLog of that connection/request is open.
struct UpdateLog {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  std::vector<AssignmentId> sources;
  bool ended = false;
};
struct OpenExec {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  AssignmentId id;
  std::string query;  // encoded wire::ExecRequest
};

// ---- requests at other hosts. The agent moves the bytes (common/relay), Node decides that they may be moved.
struct RelayPeer {
  wire::Endpoint to;
  MemberId member;
  wire::PeerHeader header;  // without a type
};
// A client's request, or a part of it, at another host or at this one: its answers go on to the client. -> RelayEnded
struct OpenRelay {
  ConnectionId part = 0;       // chosen by Node. A part at this host answers on this connection, its request 1
  ConnectionId connection = 0; // the client's
  std::uint64_t request = 0;
  bool whole = false;          // it is the whole request: its last answer goes to the client, too
  std::optional<RelayPeer> peer;  // none: this host
  wire::RelayOpen open;
  std::string query;           // an encoded wire::Message, its request 1
};
// Nothing more of it is wanted; no RelayEnded follows.
struct CloseRelay {
  ConnectionId part = 0;
};
// Another agent's stream becomes a connection. What comes by it: Request, ConnectionClosed
struct AcceptRelay {
  ConnectionId connection = 0;  // chosen by Node
  RelayPeer peer;
  std::uint64_t stream = 0;
  std::uint64_t allowed = 0;
};
// Lost like any message.
struct SendRelay {
  RelayPeer peer;
  wire::RelayMessage message;
};

// ---- tasks
// Prepares the host: user exists, required paths, job's working copy (extracted from the package once per
// job), the start directory, a bind test of the port. -> Staged (with the start directory)
struct Stage {
  AssignmentId id;
  std::string job_name;
  task::User user;
  std::string package_digest;  // "" none: a fresh directory
  std::string work_dir;        // JobSpec::work_dir
  std::vector<std::string> require_paths;
  std::string address;
  std::uint16_t port = 0;
  bool fresh = true;  // false: the job's copy exists from an earlier generation and is kept as it is
};
struct LaunchShim {
  task::ShimSpec spec;
};  // -> ShimUp
struct StartAttempt {
  AssignmentId id;
  AttemptNumber attempt = 0;
};  // -> AttemptStarted (under a lease: when it was granted) | AttemptRefused; later AttemptExited
struct SignalTask {
  AssignmentId id;
  std::int32_t signal = 0;
  bool whole_tree = false;
  Duration grace{0};  // what outlives its main process is left alone that long; 0: it is killed then
};  // no completion; a dead target is no error
struct KillTask {
  AssignmentId id;
};  // SIGKILL to every process; AttemptExited follows
struct FreezeTask {
  AssignmentId id;
  bool freeze = true;
};  // -> FreezeDone
// The coordinator's answer to LeaseAsked. Not granted: the assignment is another's, or nobody's; what runs is killed as
// it is, and AttemptExited follows. A lower `epoch` than the shim has seen is ignored there. No completion
struct AnswerLease {
  AssignmentId id;
  std::uint64_t nonce = 0;
  bool granted = false;
  std::uint64_t epoch = 0;
};
// It was launched without a lease (a cluster of one host): from now on it needs one, the first within `lease`. No completion
struct RequireLease {
  AssignmentId id;
  Duration lease{};
};
struct EndShim {
  AssignmentId id;
};  // kills what is left, ends the shim -> ShimGone{expected}
// What is removed of an ended job on this host; each includes the one before.
enum class JobFiles : unsigned char { temporary, copy, logs };
constexpr JobFiles enum_last(JobFiles) {
  return JobFiles::logs;
}
struct RemoveJobFiles {
  JobId job = 0;
  JobFiles files = JobFiles::temporary;
};  // -> JobFilesRemoved

// ---- checkpoints
struct WatchCheckpoints {
  JobId job = 0;
  job::CheckpointSpec spec;
  task::User user;
  bool on = true;
};  // changes -> CheckpointsScanned{token 0}
struct ScanCheckpoints {
  JobId job = 0;
  std::uint64_t token = 0;
  job::CheckpointSpec spec;
  task::User user;
};  // -> CheckpointsScanned
struct VerifyCheckpoint {
  JobId job = 0;
  std::uint64_t token = 0;
  transfer::CheckpointInfo info;
  task::User user;
};  // deep -> CheckpointVerified
struct QuarantineCheckpoint {
  JobId job = 0;
  std::uint64_t token = 0;
  transfer::CheckpointInfo info;
  task::User user;
  std::string dir;  // checkpoint.dir: it may be the checkpoint itself, and is not renamed then
};  // renamed -> CheckpointQuarantined
struct DeleteCheckpoint {
  JobId job = 0;
  transfer::CheckpointInfo info;
  task::User user;
  std::string dir;  // likewise
};  // checkpoint.keep; no completion

// The bytes of its files from `offset` on, as replies of the agent (wire::GetCheckpointRequest); it ends them with last = true.
struct SendCheckpoint {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  transfer::CheckpointInfo info;
  task::User user;
  std::uint64_t offset = 0;
};
// One piece of a checkpoint that another host has: to `info.path` when `last` came and all of it verifies.
// -> CheckpointWritten when `last`, or at the first failure
struct WriteCheckpoint {
  ConnectionId writer = 0;
  transfer::CheckpointInfo info;
  task::User user;
  std::vector<wire::CheckpointFiles::File> files;  // with the first piece
  std::uint64_t offset = 0;
  std::string bytes;
  bool last = false;
  std::string dir;  // checkpoint.dir: it may be the checkpoint itself, and is written into then, not beside
};
// What it wrote and did not finish is dropped. No completion
struct DropCheckpoint {
  ConnectionId writer = 0;
};

// ---- hooks
struct RunHook {
  std::uint64_t token = 0;
  std::vector<std::string> command;
  std::map<std::string, std::string> env;
  std::optional<task::User> user;  // unset: the agent's own. Such a one never waits for those of users
  Duration limit{0};               // then it is killed; 0: the agent's for notify commands
  JobId job = 0;                   // of a notify command
};  // -> HookEnded
// The job is gone: those of its notify commands that run or wait are ended, too. No completion but theirs
struct EndHooks {
  JobId job = 0;
};

// ---- GPUs
// Which processes have opened the device nodes of these? -> GpuHoldersFound
struct FindGpuHolders {
  std::uint64_t token = 0;
  std::vector<task::OwnGpu> gpus;
};

// ---- doctor
// Looks at this host, and at the way to these members. Never waited for by anything else. -> Examined
struct Examine {
  std::uint64_t token = 0;
  std::vector<ExamPeer> peers;
};

// ---- other agents (common/gossip/membership.h)
struct SaveMembers {
  std::uint64_t ticket = 0;
  std::string record;  // gossip::MemberRecord::encode(); the newest counts
};                     // -> MembersSaved, one for all that were asked before it was written
// To another member, about the log; lost like any message. Goes where membership last saw that member.
struct SendLog {
  wire::Endpoint to;
  MemberId member;
  wire::PeerHeader header;  // without a type
  wire::LogMessage message;
};
// To another founder (cluster/formation.h), by the name that `join` has for it; lost like any message. Every address that
// the name stands for now gets it.
struct SendFormation {
  std::string founder;
  wire::PeerHeader header;  // without a type
  wire::FormationReport report;
};
struct KnowMember {
  wire::Identity identity;  // its node key may connect from now on
};
struct EnterCluster {
  MemberId cluster;  // other clusters' messages are dropped from now on
};

using EffectAlternatives =
    std::variant<Persist, Reply, CloseConnection, WriteBlob, DropBlob, FindBlob, SendBlob, OpenLog, UpdateLog, OpenExec,
                 OpenRelay, CloseRelay, AcceptRelay, SendRelay, Stage, LaunchShim, StartAttempt, SignalTask, KillTask,
                 FreezeTask, AnswerLease, RequireLease, EndShim, RemoveJobFiles, WatchCheckpoints, ScanCheckpoints,
                 VerifyCheckpoint, QuarantineCheckpoint, DeleteCheckpoint, SendCheckpoint, WriteCheckpoint, DropCheckpoint,
                 RunHook, EndHooks, FindGpuHolders, gossip::Send, gossip::KeepLinks, gossip::CheckGone, gossip::ResolveSeeds,
                 SaveMembers, SendLog, SendFormation, KnowMember, EnterCluster, Examine>;

// One of these. How it is made, copied, moved and destroyed is out of line (effect.cpp): alternative.h says why.
struct Effect : EffectAlternatives {
  template <AlternativeOf<EffectAlternatives> T>
  Effect(T&& alternative) : Effect(Alternative::among<EffectAlternatives>(std::forward<T>(alternative))) {}
  Effect(const Effect&);
  Effect(Effect&&) noexcept;
  Effect& operator=(const Effect&);
  Effect& operator=(Effect&&) noexcept;
  ~Effect();

 private:
  explicit Effect(const Alternative& alternative);
};

}  // namespace dtrain::node
