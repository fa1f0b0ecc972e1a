// What the world tells Node. Each asynchronous effect (effect.h) has exactly one completion event here,
// failures included; the rest arrives unasked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "common/gossip/membership.h"
#include "common/node/host_facts.h"
#include "common/raft/log_entry.h"
#include "common/task/shim_spec.h"
#include "common/transfer/checkpoint.h"

namespace dtrain::node {

// Identifies an open control connection; never reused within one life of the agent.
using ConnectionId = std::uint64_t;

// Who is at the other end of a control connection, as the kernel says (SO_PEERCRED).
struct Caller {
  std::string user;  // "" when the uid has no name
  std::uint32_t uid = 0;
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
};
struct Started {
  std::uint64_t life = 0;  // counts the starts of this agent on this data directory
  NodeFacts facts;
  std::optional<raft::StoredSnapshot> snapshot;     // newest
  std::vector<raft::LogEntry> log;                  // entries behind the snapshot, in order
  std::map<std::string, std::string> task_records;  // AssignmentId::text() -> encoded record
  std::vector<task::FoundShim> shims;               // every assignment directory on this host
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

// ---- tasks (completions of Stage, LaunchShim, StartAttempt, Freeze, Thaw, EndShim, RemoveJobFiles)
struct Staged {
  AssignmentId id;
  Result<std::string> work_dir;
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

// ---- hooks
struct HookEnded {
  std::uint64_t token = 0;
  task::Exit exit;
};

// ---- other agents: what the links saw and received
struct Gossiped {
  gossip::Input input;
};

struct Tick {};      // deadline() was reached
struct Stopping {};  // SIGTERM: say goodbye; tasks run on

using Event = std::variant<Started, Persisted, PersistFailed, ConnectionOpened, Request, ConnectionClosed,
                           BlobWritten, Staged, ShimUp, AttemptStarted, AttemptRefused, AttemptExited,
                           ShimGone, FreezeDone, JobFilesRemoved, Notified, CheckpointsScanned,
                           CheckpointVerified, CheckpointQuarantined, HookEnded, Gossiped, Tick, Stopping>;

}  // namespace dtrain::node
