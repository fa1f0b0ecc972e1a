// What the world tells Node. Each asynchronous effect (effect.h) has exactly one completion event here,
// failures included; the rest arrives unasked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "common/cluster/formation.h"
#include "common/gossip/membership.h"
#include "common/node/access.h"
#include "common/node/alternative.h"
#include "common/node/disk_room.h"
#include "common/node/examination.h"
#include "common/node/gpu_sample.h"
#include "common/node/host_facts.h"
#include "common/node/host_health.h"
#include "common/raft/log_entry.h"
#include "common/task/cpu_choice.h"
#include "common/task/shim_spec.h"
#include "common/transfer/checkpoint.h"
#include "common/wire/log_message.h"
#include "common/wire/relay.h"

namespace dtrain::node {

// Identifies an open control connection; never reused within one life of the agent.
using ConnectionId = std::uint64_t;
// Those of the control socket are below; these are no sockets.
inline constexpr ConnectionId kFirstOwn = 1ull << 61;      // what this node asks other hosts itself (OpenRelay): answers are RelayAnswered
inline constexpr ConnectionId kFirstPart = 1ull << 62;     // a client's request at one of several hosts (OpenRelay)
inline constexpr ConnectionId kFirstRelayed = 1ull << 63;  // opened by another agent, for a client of it (AcceptRelay)
inline bool is_own(ConnectionId connection) { return connection >= kFirstOwn && connection < kFirstPart; }
inline bool is_part(ConnectionId connection) { return connection >= kFirstPart && connection < kFirstRelayed; }
inline bool is_relayed(ConnectionId connection) { return connection >= kFirstRelayed; }

// Who is at the other end of a control connection, as the kernel says (SO_PEERCRED); of a relayed one, as the agent says to
// which they are connected.
struct Caller {
  std::string user;  // "" when the uid has no name
  std::uint32_t uid = 0;
  std::uint64_t applied = 0;  // of a relayed one: an answer needs a ledger that has this entry
  std::string at = {};        // of a relayed one: name of the host that they are connected to; "": this one
};

// ---- first event of a life: what the disk and the machine say
struct NodeFacts {
  NodeId id;
  std::string name;
  std::string boot_id;
  std::string address;  // advertised
  std::string task_address;
  std::string task_interface;
  std::uint64_t cpu_millis = 0;    // after reserve
  std::uint64_t memory_bytes = 0;  // after reserve
  using Gpu = node::Gpu;
  std::vector<Gpu> gpus;
  std::map<std::string, std::string> labels;
  std::string topology;  // for people: packages, NUMA nodes, cores, GPUs, one line each; at most 2 KiB; may be empty
  std::uint32_t packages = 0, numa_nodes = 0;
  std::vector<task::HostCpu> cpus;  // that tasks get for themselves; empty: none do
  std::string unfit;     // why the host is given no new tasks, by its health check (host_health.h) or epilogs (host_hooks.h); "": it is fit
};
// This node's place among others, as the disk and the command line say it.
struct MemberStart {
  bool network = false;        // membership begins with NetworkUp; false: at once, and nobody is ever heard
  bool holds_ledger = true;    // this node founded the cluster; else it is a member that answers from what it hears
  gossip::MemberRecord record; // what the last life kept; a founder's names its cluster
  bool found = false;          // a new cluster, `new_cluster_id`
  MemberId new_cluster_id;
  wire::Endpoint endpoint;     // advertised
  std::string key_print;       // of the cluster key that serves; "": plain
  std::vector<std::string> seeds;
  std::string waiting_for;     // while no cluster admitted it: for what it waits, for people
  // Of a machine that is to begin a cluster with others: their names in `seeds`, this one included (check_founders() holds),
  // and which of them it is. None: it takes no part.
  std::vector<std::string> founders;
  std::string founder;
  cluster::formation::Record formation;  // what it has promised them, ever
};
struct Started {
  std::uint64_t life = 0;  // counts the starts of this agent on this data directory
  NodeFacts facts;
  raft::Stored replica;                             // of the log
  std::map<std::string, std::string> task_records;  // as Persist put them
  std::vector<task::FoundShim> shims;               // every assignment directory on this host
  MemberStart members;
};

// ---- storage
struct Persisted {
  std::uint64_t ticket = 0;
};
struct PersistFailed {
  std::uint64_t ticket = 0;
  Error error;
};  // Node stops deciding; the tasks run on

// ---- control
struct ConnectionOpened {
  ConnectionId connection = 0;
  Caller caller;
};
struct Request {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  std::string body;
};  // wire/control.h
struct ConnectionClosed {
  ConnectionId connection = 0;
};
struct BlobWritten {
  ConnectionId connection = 0;
  std::uint64_t request = 0;
  Result<std::string> digest;
};
struct BlobFound {
  std::string digest;
  Result<bool> there;
};

// ---- tasks (completions of Stage, LaunchShim, StartAttempt, Freeze, Thaw, EndShim, RemoveJobFiles)
struct Staged {
  AssignmentId id;
  Result<std::string> work_dir;
  bool lacks_package = false;  // that is why it failed: this host has no such blob
  std::string host_refused = {};  // likewise: job::TaskObservation::host_refused. Of its prolog by Node itself (host_hooks.h)
};
struct ShimUp {
  AssignmentId id;
  Status result;
};
struct AttemptStarted {
  AssignmentId id;
  AttemptNumber attempt = 0;
  std::int32_t pid = 0;
  WallTime at{};
};
struct AttemptRefused {
  AssignmentId id;
  AttemptNumber attempt = 0;
  Error error;
};  // did not start; nothing runs
struct AttemptExited {
  AssignmentId id;
  AttemptNumber attempt = 0;
  task::Exit exit;
};  // its whole tree is gone
struct ShimGone {
  AssignmentId id;
  bool expected = false;
};  // the shim ended: asked to (EndShim) or died
struct FreezeDone {
  AssignmentId id;
  bool frozen = false;
  Status result;
};
struct JobFilesRemoved {
  JobId job = 0;
  Status result;
};
// unasked
// The shim of an exclusive task asks whether it is still its assignment's: docs/leases.md. -> AnswerLease, or nothing.
struct LeaseAsked {
  AssignmentId id;
  AttemptNumber attempt = 0;
  std::uint64_t nonce = 0;
};
// Its lease ran out, and it stands still; or a new one came, and it runs again.
struct LeaseFroze {
  AssignmentId id;
  AttemptNumber attempt = 0;
  bool frozen = false;
};
struct Notified {  // sd_notify datagram of a task
  AssignmentId id;
  AttemptNumber attempt = 0;
  bool ready = false, watchdog = false, stopping = false;
  std::optional<std::string> status;
};

// ---- checkpoints
struct CheckpointsScanned {  // of ScanCheckpoints, or unasked for a watched directory that changed
  JobId job = 0;
  std::uint64_t token = 0;                              // 0: unasked
  Result<std::vector<transfer::CheckpointInfo>> found;  // newest step first
  std::string unrecognised = {};                        // unasked: what else lies there, in no format that is known; "": nothing
};
struct CheckpointVerified {
  JobId job = 0;
  std::uint64_t token = 0;
  std::string path;
  Status result;
};
struct CheckpointQuarantined {
  JobId job = 0;
  std::uint64_t token = 0;
  std::string path;
  Result<std::string> moved_to;
};
struct CheckpointWritten {
  ConnectionId writer = 0;
  Status result;  // damaged: what came is not what it should be
};

// ---- hooks
inline constexpr const char* kHookTimeLimit = "time limit";  // cause of the exit of one that took too long
struct HookEnded {
  std::uint64_t token = 0;
  task::Exit exit;
};

// ---- doctor
struct Examined {
  std::uint64_t token = 0;
  Examination seen;
  std::optional<Error> error{};  // set: the host could not be examined, and `seen` means nothing; the message is the cause alone
};

// ---- other agents
struct NetworkUp {};  // the links are open, the host's tasks adopted: membership begins
struct Gossiped {
  gossip::Input input;
};  // what the links saw and received
// From another member, about the log; `header` is checked, the sender authenticated.
struct LogReceived {
  wire::PeerHeader header;
  wire::LogMessage message;
};
// From another founder; `header` is checked, the sender authenticated.
struct FormationReceived {
  wire::PeerHeader header;
  wire::FormationReport report;
};
// From another member, about a stream that the agent does not know; `header` is checked, the sender authenticated.
struct RelayReceived {
  wire::PeerHeader header;
  wire::RelayMessage message;
};
struct RelayEnded {  // of OpenRelay
  ConnectionId part = 0;
  enum class How : unsigned char {
    done,     // its last answer came
    refused,  // that was an error, in `error`
    lost,     // there is none: why, in `error` (the message is the cause alone)
  } how{};
  Error error;
};
// Of OpenRelay whose connection is this node's own (is_own): one message of the other host, an error included.
struct RelayAnswered {
  ConnectionId connection = 0;
  std::string message;  // an encoded wire::Message, under the number of OpenRelay's request
};
struct MembersSaved {
  std::uint64_t ticket = 0;  // of the newest SaveMembers that this covers; older ones with it
  Status result;
};
struct Reconfigured {
  std::map<std::string, std::string> labels;
  std::string key_print;
  Access access;
  Caller by = {};             // whose signal it was
  bool health_check = false;  // there is one
};  // SIGHUP

// ---- hardware, unasked
struct GpusSampled {  // how the GPUs are: about once a minute
  std::vector<GpuSample> gpus;
};
struct GpuFaulted {  // the kernel's log says it, at once
  GpuFault fault;
};

struct GpuHolder {
  std::string pci;      // of the GPU
  std::int32_t pid = 0;
  std::uint32_t uid = 0;  // the real one
  std::string program;  // its name as the kernel has it, for people
  Instant began{};      // the process
  bool in_task = false;  // of this host, whichever
};
struct GpuHoldersFound {
  std::uint64_t token = 0;
  Result<std::vector<GpuHolder>> holders;
};

struct HostChecked {  // a run of the health check ended, or has to be told of
  HostCheck check;
};

struct DiskLooked {  // at a file system that tasks need
  DiskSeen seen;
};

struct Tick {};      // deadline() was reached
struct Stopping {};  // SIGTERM: say goodbye; tasks run on

using EventAlternatives =
    std::variant<Started, Persisted, PersistFailed, ConnectionOpened, Request, ConnectionClosed, BlobWritten, BlobFound,
                 Staged, ShimUp, AttemptStarted, AttemptRefused, AttemptExited, ShimGone, FreezeDone, JobFilesRemoved,
                 LeaseAsked, LeaseFroze, Notified, CheckpointsScanned, CheckpointVerified, CheckpointQuarantined,
                 CheckpointWritten, HookEnded, NetworkUp, Gossiped, LogReceived, FormationReceived, RelayReceived,
                 RelayEnded, RelayAnswered, MembersSaved, Reconfigured, GpusSampled, GpuFaulted, Tick, Stopping, Examined,
                 HostChecked, GpuHoldersFound, DiskLooked>;

// One of these. How it is made, copied, moved and destroyed is out of line (event.cpp): alternative.h says why.
struct Event : EventAlternatives {
  template <AlternativeOf<EventAlternatives> T>
  Event(T&& alternative) : Event(Alternative::among<EventAlternatives>(std::forward<T>(alternative))) {}
  Event(const Event&);
  Event(Event&&) noexcept;
  Event& operator=(const Event&);
  Event& operator=(Event&&) noexcept;
  ~Event();

 private:
  explicit Event(const Alternative& alternative);
};

}  // namespace dtrain::node
