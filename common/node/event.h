// What the world tells Node. Each asynchronous effect (effect.h) has exactly one completion event here, failures
// included; the other events arrive unasked.
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
#include "common/job/observation.h"
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

// Identifies an open connection: a client's, a stream's, or one of this node's own; never reused (connections.h). 0: none.
using ConnectionId = std::uint64_t;

// The user at the other end of a control connection, as the kernel says (SO_PEERCRED); for a relayed connection, as
// the agent says that the client is connected to.
struct Caller {
  std::string user;  // "" when the uid has no name
  std::uint32_t uid = 0;
  std::uint64_t applied = 0;                // relayed only: the answer needs a ledger that has the entry of this index
  std::string at = {};                      // relayed only: name of the host that the client is connected to; "": this host
  std::optional<MemberId> relayed_by = {};  // the agent that passes on what the client asks; unset: the client is connected to this one
  std::optional<AssignmentId> inside = {};  // the task that the client is a process of, as the agent says that it is connected to
};

// ---- the first event of a life: what the disk and the machine say
struct NodeFacts {
  NodeId id;
  std::string name;
  std::string boot_id;
  std::string address;  // advertised
  std::string task_address;
  std::string task_interface;
  std::uint64_t cpu_millis = 0;    // without resources.reserve
  std::uint64_t memory_bytes = 0;  // without resources.reserve
  using Gpu = node::Gpu;
  std::vector<Gpu> gpus;
  std::map<std::string, std::string> labels;
  std::string topology;  // for people: packages, NUMA nodes, cores, GPUs, one line each; at most 2 KiB; may be empty
  std::uint32_t packages = 0, numa_nodes = 0;
  std::vector<task::HostCpu> cpus;  // that tasks may have for themselves; empty: none
  // why the host gets no new tasks, by its health check (host_health.h) or epilogs (host_hooks.h); "": it is fit
  std::string unfit;
  bool unchecked = false;  // because of its health check, which has not ended yet, and of nothing else
  // What tasks with an image run in: the name of a container engine (common/job/container_engine.h); job::kImagesOnHost: on the host
  // itself;
  // "": the host takes no such tasks
  std::string images;
  std::string image_program;  // that engine's, absolute
};
// This node's place in a cluster, by its disk and its command line.
struct MemberStart {
  bool network = false;         // true: membership begins with NetworkUp; false: at once, and no other member is ever heard
  bool holds_ledger = true;     // this node founded the cluster; false: it is a member that answers from what it hears
  gossip::MemberRecord record;  // what the last life kept; a founder's record names its cluster
  bool found = false;           // found a new cluster, with id `new_cluster_id`
  MemberId new_cluster_id;
  wire::Endpoint endpoint;  // advertised
  std::string key_print;    // fingerprint of the cluster key in use; "": messages are not encrypted
  std::vector<std::string> seeds;
  std::string waiting_for;  // what this node waits for until a cluster admits it, for people
  // Of a founder: the founders' names in `seeds`, its own included (check_founders() holds), and its own name. Empty:
  // this machine is no founder.
  std::vector<std::string> founders;
  std::string founder;
  cluster::formation::Record formation;  // what this founder has ever promised the others
};
struct Started {
  std::uint64_t life = 0;  // number of starts of this agent on this data directory
  NodeFacts facts;
  raft::Stored replica;                             // the log as stored
  std::map<std::string, std::string> task_records;  // as stored by Persist
  std::vector<task::FoundShim> shims;               // one for each assignment directory on this host
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
  bool lacks_package = false;  // it failed because this host does not have the package's blob
  // not "": it failed because this host refuses the job (job::TaskObservation::host_refused). Node itself fills this
  // in for a prolog (host_hooks.h)
  std::string host_refused = {};
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
};  // the attempt did not start, and nothing of it runs
struct AttemptExited {
  AssignmentId id;
  AttemptNumber attempt = 0;
  task::Exit exit;
};  // the attempt's whole process tree is gone
struct ShimGone {
  AssignmentId id;
  bool expected = false;
};  // the shim ended, because it was asked to (EndShim) or because it died
struct FreezeDone {
  AssignmentId id;
  bool frozen = false;
  Status result;
};
struct JobFilesRemoved {
  JobId job = 0;
  Status result;
};
// ---- unasked
//
// The shim of an exclusive task asks whether the assignment is still its own (docs/leases.md). -> AnswerLease, or nothing.
struct LeaseAsked {
  AssignmentId id;
  AttemptNumber attempt = 0;
  std::uint64_t nonce = 0;
};
// News of a task's standby (docs/warm-standby.md): it waits, it became the attempt, or it cannot. A launch without one is as good.
struct StandbyReport {
  using News = job::StandbyNews;
  AssignmentId id;
  News news = News::none;
  std::string cause;  // of its failure
};
// The task's lease ran out and the task is frozen, or a new lease came and the task runs again.
struct LeaseFroze {
  AssignmentId id;
  AttemptNumber attempt = 0;
  bool frozen = false;
};
// The processes of a running attempt: of one with ranks each rank's, 0 if it has ended; and the one that somebody stopped.
struct StoppedProcess {
  std::uint32_t rank = 0;  // one more than the rank; 0: the task has none
  std::int32_t pid = 0;
  WallTime since{};
};
struct ProcessesSeen {
  AssignmentId id;
  AttemptNumber attempt = 0;
  std::vector<std::int32_t> pids;
  std::optional<StoppedProcess> stopped;
};
struct Notified {  // sd_notify datagram of a task
  AssignmentId id;
  AttemptNumber attempt = 0;
  bool ready = false, watchdog = false, stopping = false;
  std::optional<std::string> status;
};

// ---- checkpoints
struct CheckpointsScanned {  // the answer to ScanCheckpoints, or unasked because a watched directory changed
  JobId job = 0;
  std::uint64_t token = 0;                              // 0: unasked
  Result<std::vector<transfer::CheckpointInfo>> found;  // newest step first
  std::string unrecognised = {};                        // what else lies there in no known format, or unfinished; "": nothing
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
  Status result;  // ErrorCode::damaged: the files are not what they should be
};

// ---- hooks
struct HookEnded {
  std::uint64_t token = 0;
  task::Exit exit;
  bool timed_out = false;  // it took too long and was killed
};
// Unasked, and none after its HookEnded: the newest whole line that a running command of the container engine (RunHook::of_images) wrote
// to its stdout, in printable ASCII, as the agent last read it.
struct HookProgress {
  std::uint64_t token = 0;
  std::string line;
};

// ---- doctor
struct Examined {
  std::uint64_t token = 0;
  Examination seen;
  std::optional<Error> error{};  // the host could not be examined and `seen` means nothing; the message holds the cause alone
};

// ---- other agents
struct NetworkUp {};  // the links are open and the host's tasks are adopted: membership begins
struct Gossiped {
  gossip::Input input;
};  // what the links saw or received
// A message about the log from another member. `header` is checked and the sender authenticated.
struct LogReceived {
  wire::PeerHeader header;
  wire::LogMessage message;
};
// A message from another founder. `header` is checked and the sender authenticated.
struct FormationReceived {
  wire::PeerHeader header;
  wire::FormationReport report;
};
// A message from another member about a stream that the agent does not know. `header` is checked and the sender authenticated.
struct RelayReceived {
  wire::PeerHeader header;
  wire::RelayMessage message;
};
struct RelayEnded {  // the completion of OpenRelay
  ConnectionId part = 0;
  enum class How : unsigned char {
    done,     // the part's last answer came
    refused,  // the last answer was an error, which `error` holds
    lost,     // there is no last answer; the message of `error` holds the cause alone
  } how{};
  Error error;
};
// One message of the other host, an error included, for an OpenRelay whose connection is this node's own (OpenRelay::own).
struct RelayAnswered {
  ConnectionId connection = 0;
  std::string message;  // an encoded wire::Message, under the number of OpenRelay's request
};
struct MembersSaved {
  std::uint64_t ticket = 0;  // of the newest SaveMembers that this completes; it completes older ones, too
  Status result;
};
struct Reconfigured {
  std::map<std::string, std::string> labels;
  std::string key_print;
  Access access;
  Caller by = {};             // who sent the signal
  bool health_check = false;  // a health check is configured
};                            // SIGHUP

// ---- hardware, unasked
struct GpusSampled {  // the state of the GPUs, about once a minute
  std::vector<GpuSample> gpus;
};
struct GpuFaulted {  // a fault that the kernel's log reports, as soon as it does
  GpuFault fault;
};

struct GpuHolder {
  std::string pci;  // of the GPU
  std::int32_t pid = 0;
  std::uint32_t uid = 0;  // the real one
  std::string program;    // the name that the kernel has for it, for people
  Instant began{};        // start of the process
  bool in_task = false;   // it belongs to a task of this host
};
struct GpuHoldersFound {
  std::uint64_t token = 0;
  Result<std::vector<GpuHolder>> holders;
};

struct HostChecked {  // the health check ended, or its run so far has something to report
  HostCheck check;
};

struct DiskLooked {  // the agent looked at a file system that tasks need
  DiskSeen seen;
};

struct Tick {};      // deadline() was reached
struct Stopping {};  // SIGTERM: this node takes leave of the others; tasks run on

using EventAlternatives =
    std::variant<Started, Persisted, PersistFailed, ConnectionOpened, Request, ConnectionClosed, BlobWritten, BlobFound, Staged, ShimUp,
                 AttemptStarted, AttemptRefused, AttemptExited, ShimGone, FreezeDone, JobFilesRemoved, LeaseAsked, LeaseFroze,
                 StandbyReport, ProcessesSeen, Notified, CheckpointsScanned, CheckpointVerified, CheckpointQuarantined, CheckpointWritten,
                 HookEnded, NetworkUp, Gossiped, LogReceived, FormationReceived, RelayReceived, RelayEnded, RelayAnswered, MembersSaved,
                 Reconfigured, GpusSampled, GpuFaulted, Tick, Stopping, Examined, HostChecked, GpuHoldersFound, DiskLooked, HookProgress>;

// One of the alternatives. It is made, copied, moved and destroyed out of line (event.cpp); alternative.h says why.
struct Event : EventAlternatives {
  template <AlternativeOf<EventAlternatives> T>
  Event(T&& alternative) : Event(Alternative::among<EventAlternatives>(std::forward<T>(alternative))) {}
  Event(const Event&);
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  ~Event();

 private:
  explicit Event(const Alternative& alternative);
};

}  // namespace dtrain::node
