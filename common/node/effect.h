// What Node wants done. Effects are values; the agent performs them in order, the simulator pretends to. An
// asynchronous effect is answered with exactly one event, which is named after ->.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/job/job_spec.h"
#include "common/node/alternative.h"
#include "common/node/disk_room.h"
#include "common/node/event.h"
#include "common/raft/log_entry.h"
#include "common/task/shim_spec.h"
#include "common/transfer/checkpoint.h"
#include "common/wire/control.h"

namespace dtrain::node {

// One atomic, durable commit, in the order of the fields (raft::Persist explains most of them). -> Persisted | PersistFailed
struct Persist {
  std::uint64_t ticket = 0;
  bool forget_log = false;               // drop hard state, snapshot and entries before what follows
  std::optional<std::string> formation;  // an encoded cluster::formation::Record; replaces the older one
  std::optional<raft::HardState> hard;
  std::optional<raft::StoredSnapshot> snapshot;  // replaces older ones; entries up to its index are dropped
  bool reset_log = false;                        // with a snapshot: all entries are dropped
  std::optional<std::uint64_t> truncate_from;    // entries from this index on are dropped
  std::vector<raft::LogEntry> append;
  std::map<std::string, std::string> put_task_records;  // by names that Node chooses (host_hooks.h, gpu_reclaim.h)
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
  bool own = false;    // this node's own connection writes, which fetches the blob from another host; false: a client
};

// Drops what a connection wrote of an unfinished upload. No completion
struct DropBlob {
  ConnectionId connection = 0;
};
// Asks whether a blob is on this host's disk. The blob then counts as used, so that a full cache does not remove it
// next. -> BlobFound
struct FindBlob {
  std::string digest;
};
// Sends the bytes of a blob from `offset` on. The agent sends the wire::BlobChunk replies itself and ends them with
// last = true.
struct SendBlob {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  std::string digest;
  std::uint64_t offset = 0;
};

// Opens a stream between a file or process and a connection; Node only permits it. The agent sends the wire::LogChunk
// / wire::ExecOutput replies itself and ends them with last = true.
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
// The job continued or ended: the open OpenLog of this connection and request has these sources now.
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
  std::string query;     // encoded wire::ExecRequest
  bool in_task = false;  // the program becomes a part of the task, and ends with it at the latest
};

// ---- requests at other hosts. The agent moves the bytes (common/relay); Node decides which requests are passed on.
struct RelayPeer {
  wire::Endpoint to;
  MemberId member;
  wire::PeerHeader header;  // its type is to be filled in
};
// Opens a client's request, or a part of it, at another host or at this one. Its answers are passed on to the client, or are RelayAnswered.
// -> RelayEnded
struct OpenRelay {
  ConnectionId part = 0;        // chosen by Node; a part at this host answers on this connection, as its request 1
  ConnectionId connection = 0;  // the client's, or this node's own
  bool own = false;             // this node's own
  std::uint64_t request = 0;
  bool whole = false;             // this part is the whole request: its last answer, too, goes to the client
  std::optional<RelayPeer> peer;  // unset: this host
  wire::RelayOpen open;
  std::string query;  // an encoded wire::Message, its request 1
};
// Nothing more of the part is wanted; no RelayEnded follows.
struct CloseRelay {
  ConnectionId part = 0;
};
// Makes another agent's stream a connection, which then yields Request and ConnectionClosed.
struct AcceptRelay {
  ConnectionId connection = 0;  // chosen by Node
  RelayPeer peer;
  std::uint64_t stream = 0;
  std::uint64_t allowed = 0;
};
// Sends one message about a stream; it may be lost.
struct SendRelay {
  RelayPeer peer;
  wire::RelayMessage message;
};

// ---- tasks
//
// Prepares the host: checks that the user and the required paths exist, makes the directories that the job names, makes the job's working
// copy (extracted from the package once per job) and the start directory, and tests the port by binding it. -> Staged (with the start
// directory)
struct Stage {
  AssignmentId id;
  std::string job_name;
  task::User user;
  std::string package_digest;  // "": none, the working copy is an empty directory
  std::string work_dir;        // job::work_dir_of()
  std::vector<std::string> require_paths;
  std::string address;
  std::uint16_t port = 0;
  bool fresh = true;  // false: the job's copy exists from an earlier generation and is kept as it is
  std::vector<std::string> make_dirs = {};
  std::string image = {};  // the task runs in it, so that an absolute working directory may be one of the image; "": on the host
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
  Duration grace{0};  // processes that outlive the main process are left alone for so long; 0: they are killed at once
};                    // no completion; signalling a dead target is no error
struct KillTask {
  AssignmentId id;
};  // SIGKILL to every process; AttemptExited follows
struct FreezeTask {
  AssignmentId id;
  bool freeze = true;
};  // -> FreezeDone
// The coordinator's answer to LeaseAsked. Not granted: the assignment belongs to another host or to nobody; the shim kills
// what runs, and AttemptExited follows. The shim ignores an answer with a lower `epoch` than it has seen. No completion
struct AnswerLease {
  AssignmentId id;
  std::uint64_t nonce = 0;
  bool granted = false;
  std::uint64_t epoch = 0;
};
// The assignment was launched without a lease (in a cluster of one host) and needs one from now on, the first within
// `lease`. No completion
struct RequireLease {
  AssignmentId id;
  Duration lease{};
};
struct EndShim {
  AssignmentId id;
};  // kills what is left, ends the shim -> ShimGone{expected}
// Which files of an ended job this host removes; each value includes the one before it.
enum class JobFiles : unsigned char { temporary, copy, logs };
constexpr JobFiles enum_last(JobFiles) { return JobFiles::logs; }
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
  std::string below = {};  // a directory below which no symbolic link is followed on the way to spec.dir; "": they are
};                         // -> CheckpointsScanned
struct VerifyCheckpoint {
  JobId job = 0;
  std::uint64_t token = 0;
  transfer::CheckpointInfo info;
  task::User user;
  std::string below;  // as of ScanCheckpoints
};                    // deep -> CheckpointVerified
// Nobody waits for that verification any more: if it is not over, it is now. Error{unavailable}
struct EndVerification {
  JobId job = 0;
  std::uint64_t token = 0;
};
struct QuarantineCheckpoint {
  JobId job = 0;
  std::uint64_t token = 0;
  transfer::CheckpointInfo info;
  task::User user;
  std::string dir;  // checkpoint.dir, which may be the checkpoint itself and is then not renamed
};                  // renamed -> CheckpointQuarantined
struct DeleteCheckpoint {
  JobId job = 0;
  transfer::CheckpointInfo info;
  task::User user;
  std::string dir;  // checkpoint.dir, as above
};                  // for checkpoint.keep; no completion

// Sends the bytes of a checkpoint's files from `offset` on. The agent sends the replies itself
// (wire::GetCheckpointRequest) and ends them with last = true.
struct SendCheckpoint {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  transfer::CheckpointInfo info;
  task::User user;
  std::uint64_t offset = 0;
  std::string below;  // as of ScanCheckpoints
};
// Writes one piece of a checkpoint that another host has. With `last` the whole is verified and moved to `info.path`.
// -> CheckpointWritten when `last`, or at the first failure
struct WriteCheckpoint {
  ConnectionId writer = 0;
  transfer::CheckpointInfo info;
  task::User user;
  std::vector<wire::CheckpointFiles::File> files;  // with the first piece
  std::uint64_t offset = 0;
  std::string bytes;
  bool last = false;
  std::string dir;  // checkpoint.dir: if it is the checkpoint itself, the files are written into it instead of beside it
};
// Drops what a writer wrote of an unfinished checkpoint. No completion
struct DropCheckpoint {
  ConnectionId writer = 0;
};

// ---- hooks
struct RunHook {
  std::uint64_t token = 0;
  std::vector<std::string> command;
  std::map<std::string, std::string> env;
  std::optional<task::User> user;  // unset: the agent's own user; such a hook never waits for hooks of other users
  Duration limit{0};               // after this the hook is killed; 0: the agent's limit for notify commands
  JobId job = 0;                   // the job whose notify command this is; else 0
  // It is a command of the container engine: it has its user's home and runtime directory, and resources for an image; it is killed once
  // less than that is free where the user's images are; and what it writes to its stdout is HookProgress.
  std::optional<KeepFree> of_images = {};
  bool leaves = false;  // a process that it leaves behind stays, beyond the end of the agent: the engine's for all containers of the user
};                      // -> HookEnded
// The job is gone: its notify commands that run or wait are ended. Their HookEnded are the only completion
struct EndHooks {
  JobId job = 0;
  std::uint64_t token = 0;  // not 0: this one alone
};

// ---- GPUs
//
// Asks which processes have the device nodes of these GPUs open. -> GpuHoldersFound
struct FindGpuHolders {
  std::uint64_t token = 0;
  std::vector<task::OwnGpu> gpus;
};

// ---- doctor
//
// Looks at this host and at the connections to these members. Nothing else waits for it. -> Examined
struct Examine {
  std::uint64_t token = 0;
  std::vector<ExamPeer> peers;
};

// ---- other agents (common/gossip/membership.h)
struct SaveMembers {
  std::uint64_t ticket = 0;
  std::string record;  // gossip::MemberRecord::encode(); the newest counts
};                     // -> MembersSaved, one for all SaveMembers before the write
// Sends a message about the log to another member, at the address where membership last saw it. It may be lost.
struct SendLog {
  wire::Endpoint to;
  MemberId member;
  wire::PeerHeader header;  // its type is to be filled in
  wire::LogMessage message;
};
// Sends a message to another founder (cluster/formation.h) by the name that `join` has for it. Every address that the
// name resolves to gets it. It may be lost.
struct SendFormation {
  std::string founder;
  wire::PeerHeader header;  // its type is to be filled in
  wire::FormationReport report;
};
struct KnowMember {
  wire::Identity identity;  // its node key may connect from now on
};
struct EnterCluster {
  MemberId cluster;  // messages of other clusters are dropped from now on
};

using EffectAlternatives =
    std::variant<Persist, Reply, CloseConnection, WriteBlob, DropBlob, FindBlob, SendBlob, OpenLog, UpdateLog, OpenExec, OpenRelay,
                 CloseRelay, AcceptRelay, SendRelay, Stage, LaunchShim, StartAttempt, SignalTask, KillTask, FreezeTask, AnswerLease,
                 RequireLease, EndShim, RemoveJobFiles, WatchCheckpoints, ScanCheckpoints, VerifyCheckpoint, EndVerification,
                 QuarantineCheckpoint, DeleteCheckpoint, SendCheckpoint, WriteCheckpoint, DropCheckpoint, RunHook, EndHooks, FindGpuHolders,
                 gossip::Send, gossip::KeepLinks, gossip::CheckGone, gossip::ResolveSeeds, SaveMembers, SendLog, SendFormation, KnowMember,
                 EnterCluster, Examine>;

// One of the alternatives. It is made, copied, moved and destroyed out of line (effect.cpp); alternative.h says why.
struct Effect : EffectAlternatives {
  template <AlternativeOf<EffectAlternatives> T>
  Effect(T&& alternative) : Effect(Alternative::among<EffectAlternatives>(std::forward<T>(alternative))) {}
  Effect(const Effect&);
  Effect(Effect&&) noexcept;
  Effect& operator=(Effect&&) noexcept;
  ~Effect();

 private:
  explicit Effect(const Alternative& alternative);
};

}  // namespace dtrain::node
