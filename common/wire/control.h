// The conversation of dtrainctl with an agent, over the control socket.
//
// Frame: 4 bytes little-endian length of what follows (at most limits::kControlFrameBytes), then one encoded Message.
// A client numbers its requests from 1; every reply carries the number. A request has one or more replies; the one
// with last = true ends it. Several requests may be open on one connection. A field is never reused or retyped;
// unknown message types answer Error{invalid}.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/limits.h"
#include "common/wire/codec.h"
#include "common/wire/doctor.h"
#include "common/wire/manifest_settings.h"
#include "common/wire/view.h"

namespace dtrain::wire {

inline constexpr std::uint32_t kControlFormat = 1;

// Every type of message, in the order of the numbers that are sent: a new one comes last, so that none ever changes. REPLY is an answer;
// REQUEST has a row beside its handler, which says who may ask it and where (common/node/verbs.h); BY_AGENT is a request that dtraind's
// connections take before it reaches Node (agent/dtraind/control.cpp).
// clang-format off
#define DTRAIN_MESSAGE_TYPES(REPLY, REQUEST, BY_AGENT)                                                                \
  /* replies */                                                                                                       \
  REPLY(error)                /* ErrorReply */                                                                        \
  REPLY(ok)                   /* Empty */                                                                             \
  REPLY(submitted)            /* SubmitReply */                                                                       \
  REPLY(jobs)                 /* JobsReply */                                                                         \
  REPLY(tasks)                /* TasksReply */                                                                        \
  REPLY(description)          /* JobDescription */                                                                    \
  REPLY(nodes)                /* NodesReply */                                                                        \
  REPLY(status)               /* StatusView */                                                                        \
  REPLY(events)               /* EventsReply */                                                                       \
  REPLY(task_specs)           /* TaskSpecsReply */                                                                    \
  REPLY(checkpoints)          /* CheckpointsReply */                                                                  \
  REPLY(update)               /* JobUpdate */                                                                         \
  REPLY(log_chunk)            /* LogChunk */                                                                          \
  REPLY(exec_output)          /* ExecOutput */                                                                        \
  REPLY(blob)                 /* BlobReply */                                                                         \
  REPLY(version)              /* VersionReply */                                                                      \
  /* requests */                                                                                                      \
  REQUEST(submit)             /* SubmitRequest      -> submitted */                                                   \
  REQUEST(query_jobs)         /* JobsRequest        -> jobs */                                                        \
  REQUEST(query_tasks)        /* JobName            -> tasks */                                                       \
  REQUEST(describe_job)       /* JobName            -> description */                                                 \
  REQUEST(query_nodes)        /* NodeName           -> nodes */                                                       \
  REQUEST(query_status)       /* JobName            -> status, or description where a job is named */                 \
  REQUEST(query_events)       /* EventsRequest      -> events ... (last = false while following) */                   \
  REQUEST(query_task_specs)   /* TaskSpecsRequest   -> task_specs */                                                  \
  REQUEST(plan)               /* SubmitRequest      -> task_specs (starts nothing) */                                 \
  REQUEST(action)             /* ActionRequest      -> ok | submitted (rerun) */                                      \
  REQUEST(watch)              /* WatchRequest       -> update ... until the condition holds or the client goes */     \
  REQUEST(logs)               /* LogsRequest        -> log_chunk ... */                                               \
  REQUEST(exec)               /* ExecRequest        -> exec_output ... */                                             \
  BY_AGENT(exec_input)        /* ExecInput          (no reply; names the exec's request number) */                    \
  REQUEST(query_checkpoints)  /* CheckpointsRequest -> checkpoints */                                                 \
  BY_AGENT(has_blob)          /* BlobRequest        -> blob */                                                        \
  REQUEST(put_blob)           /* PutBlobRequest     -> blob after the last chunk; ok after each other */              \
  REQUEST(query_version)      /* Empty              -> version */                                                     \
  REQUEST(cancel_request)     /* CancelRequest      (no reply: ends a watch, log, or events stream) */                \
  REQUEST(leave)              /* LeaveRequest       -> ok, once it is durable */                                      \
  REQUEST(form)               /* FormRequest        -> ok */                                                          \
  REQUEST(drain)              /* DrainRequest       -> ok */                                                          \
  REQUEST(recover_quorum)     /* RecoverRequest     -> recovery */                                                    \
  REPLY(recovery)             /* RecoveryView */                                                                      \
  /* between agents only (docs/packages.md) */                                                                        \
  REQUEST(get_blob)           /* GetBlobRequest     -> blob_chunk ... */                                              \
  REPLY(blob_chunk)           /* BlobChunk */                                                                         \
  REQUEST(keep_blob)          /* KeepBlobRequest    -> blob, once it is on the disk there */                          \
  /* between agents only (docs/checkpoints.md) */                                                                     \
  REQUEST(ask_checkpoint)     /* CheckpointQuestion -> checkpoint_answer */                                           \
  REPLY(checkpoint_answer)    /* CheckpointAnswer */                                                                  \
  REQUEST(get_checkpoint)     /* GetCheckpointRequest -> checkpoint_files, blob_chunk ... */                          \
  REPLY(checkpoint_files)     /* CheckpointFiles */                                                                   \
  /* from clients, and between agents */                                                                              \
  REQUEST(query_doctor)       /* Empty              -> doctor */                                                      \
  REPLY(doctor)               /* DoctorReply */                                                                       \
  REQUEST(query_manifests)    /* Empty              -> manifests */                                                   \
  REPLY(manifests)            /* ManifestSettings */                                                                  \
  REQUEST(launch)             /* ExecRequest        -> exec_output ... (only from inside a task, in its own job: docs/launching.md) */

#define DTRAIN_NUMBERED(name) name,
enum class MessageType : unsigned char { none, DTRAIN_MESSAGE_TYPES(DTRAIN_NUMBERED, DTRAIN_NUMBERED, DTRAIN_NUMBERED) };
#undef DTRAIN_NUMBERED
#define DTRAIN_COUNTED(name) +1
constexpr MessageType enum_last(MessageType) { return MessageType{DTRAIN_MESSAGE_TYPES(DTRAIN_COUNTED, DTRAIN_COUNTED, DTRAIN_COUNTED)}; }
#undef DTRAIN_COUNTED

struct Message {
  std::uint32_t format = kControlFormat;
  MessageType type = MessageType::none;
  std::uint64_t request = 0;
  bool last = true;
  std::string payload;       // encoded struct of `type`
  template <class V> void fields(V& v) {
    v("f", format); v("t", type); v("r", request); v("l", last); v("p", payload);
  }
};

struct Empty {
  template <class V> void fields(V&) {}
};
struct JobName {
  std::string job;           // "" all, where that makes sense
  template <class V> void fields(V& v) { v("job", job); }
};
struct NodeName {
  std::string node;          // "" all
  template <class V> void fields(V& v) { v("node", node); }
};

// A failure: one or more errors, as the contract's {"errors":[...]}.
struct ErrorItem {
  ErrorCode code = ErrorCode::internal;
  std::string kind;          // "unknown-key", ... for a job file; otherwise the name of the error code
  std::string file;
  std::uint32_t line = 0;
  std::string path, message, next;
  template <class V> void fields(V& v) {
    v("code", code); v("kind", kind); v("file", file); v("line", line); v("path", path); v("message", message);
    v("next", next);
  }
};
struct ErrorReply {
  std::vector<ErrorItem> errors;
  template <class V> void fields(V& v) { v("errors", errors); }
};

struct SubmitRequest {
  std::string spec;          // encoded job::JobSpec
  std::string request_id;    // the same id submitted again is the same job
  bool replace = false;      // replace a finished job of that name
  template <class V> void fields(V& v) { v("spec", spec); v("request_id", request_id); v("replace", replace); }
};
struct SubmitReply {
  std::string name;
  std::uint64_t id = 0;
  std::uint32_t generation = 0;
  bool unchanged = false;
  std::vector<std::string> warnings;
  template <class V> void fields(V& v) {
    v("name", name); v("id", id); v("generation", generation); v("unchanged", unchanged); v("warnings", warnings);
  }
};

struct JobsRequest {
  std::string job;                                  // "" all
  std::map<std::string, std::string> labels;        // all must match
  std::string user, state;                          // "" any
  std::uint64_t after = 0;                          // only jobs with a larger id
  template <class V> void fields(V& v) {
    v("job", job); v("labels", labels); v("user", user); v("state", state); v("after", after);
  }
};
struct JobsReply {
  std::vector<JobView> jobs;                        // by id
  bool stale = false;
  bool more = false;                                // there are more: ask again after the last of these
  template <class V> void fields(V& v) { v("jobs", jobs); v("stale", stale); v("more", more); }
};
struct TasksReply {
  std::vector<TaskView> tasks;
  bool stale = false;
  template <class V> void fields(V& v) { v("tasks", tasks); v("stale", stale); }
};
struct NodesReply {
  std::vector<NodeView> nodes;
  bool stale = false;
  template <class V> void fields(V& v) { v("nodes", nodes); v("stale", stale); }
};

struct EventsRequest {
  std::string job;           // "" the whole cluster
  std::uint64_t after = 0;   // only events with a larger seq
  bool follow = false;
  std::uint64_t after_local = 0;  // only this node's own events with a larger `local`
  template <class V> void fields(V& v) { v("job", job); v("after", after); v("follow", follow); v("after_local", after_local); }
};
struct EventsReply {
  std::vector<EventView> events;
  bool more = false;                                // this answer is full: ask again after the last of these
  template <class V> void fields(V& v) { v("events", events); v("more", more); }
};

struct TaskSpecsRequest {
  std::string job, task;     // task "": all
  template <class V> void fields(V& v) { v("job", job); v("task", task); }
};
struct TaskSpecsReply {
  std::vector<TaskSpecView> tasks;
  std::vector<std::string> warnings;
  std::string waiting_for;   // plan: why the job could not be placed now; "": it could
  template <class V> void fields(V& v) { v("tasks", tasks); v("warnings", warnings); v("waiting_for", waiting_for); }
};

enum class Action : unsigned char { cancel, suspend, resume, restart, scale, remove, rerun };
constexpr Action enum_last(Action) { return Action::rerun; }
struct ActionRequest {
  Action action = Action::cancel;
  std::string job;
  std::string task;                  // restart: one task; "" the job
  std::string role;                  // scale
  std::uint32_t replicas = 0;        // scale
  bool force = false;                // remove a running job
  bool from_scratch = false;         // restart without a checkpoint
  std::string package_digest;        // restart with another package
  std::string request_id;
  template <class V> void fields(V& v) {
    v("action", action); v("job", job); v("task", task); v("role", role); v("replicas", replicas); v("force", force);
    v("from_scratch", from_scratch); v("package_digest", package_digest); v("request_id", request_id);
  }
};

// One job's progress, sent at changes (coalesced); the first and the last update at once. gone = true if the job is deleted meanwhile.
struct WatchRequest {
  std::string job;
  std::uint64_t id = 0;              // 0: the job that has the name now
  std::uint32_t interval_ms = 100;   // the shortest time between updates
  template <class V> void fields(V& v) { v("job", job); v("id", id); v("interval_ms", interval_ms); }
};
struct JobUpdate {
  JobView job;
  std::vector<TaskView> tasks;
  std::vector<EventView> events;     // new since the previous update
  bool final = false;                // the job and every task of it reached a final state
  bool gone = false;
  std::vector<std::string> passed;   // every state reached in this run, in order of first reaching
  std::string waiting_for;           // as in JobDescription
  std::optional<RestoredView> restored;
  template <class V> void fields(V& v) {
    v("job", job); v("tasks", tasks); v("events", events); v("final", final); v("gone", gone); v("passed", passed);
    v("waiting_for", waiting_for); v("restored", restored);
  }
};

struct LogsRequest {
  std::string job, task;             // task "": the whole job
  bool follow = false;
  bool previous = false;             // the attempt before the latest
  bool all_attempts = false;
  std::uint32_t attempt = 0;         // 0: latest
  std::int64_t tail = -1;            // lines; -1: all
  std::int64_t since_ms = 0;         // wall clock, ms since the epoch; 0: all
  bool stderr_only = false;
  std::uint32_t rank = 0;            // one more than the rank within its task whose output is wanted; 0: all
  template <class V> void fields(V& v) {
    v("job", job); v("task", task); v("follow", follow); v("previous", previous); v("all_attempts", all_attempts);
    v("attempt", attempt); v("tail", tail); v("since_ms", since_ms); v("stderr_only", stderr_only);
    v("rank", rank, Since{3});
  }
};
struct LogChunk {
  std::string task;
  std::uint32_t generation = 0, attempt = 0;
  bool is_stderr = false;
  std::int64_t time_ms = 0;          // wall clock of arrival
  std::string bytes;
  std::string note;                  // for the client's stderr: "worker-1: attempt 2 begins"
  // only in the log of a whole job: the last line is unfinished, such as a progress bar that carriage returns rewrite
  bool open = false;
  std::uint32_t rank = 0;            // as in LogsRequest; 0: the task has no ranks
  template <class V> void fields(V& v) {
    v("task", task); v("generation", generation); v("attempt", attempt); v("is_stderr", is_stderr);
    v("time_ms", time_ms); v("bytes", bytes); v("note", note); v("open", open); v("rank", rank, Since{3});
  }
};

struct ExecRequest {
  std::string job, task;
  std::vector<std::string> command;
  bool terminal = false;
  std::uint32_t rows = 24, columns = 80;
  std::string term;                  // TERM
  std::uint32_t rank = 0;            // as in LogsRequest, of the rank whose surroundings it gets; 0: the task's first
  template <class V> void fields(V& v) {
    v("job", job); v("task", task); v("command", command); v("terminal", terminal); v("rows", rows);
    v("columns", columns); v("term", term); v("rank", rank, Since{3});
  }
};
struct ExecInput {
  std::uint64_t exec = 0;            // request number of the exec
  std::string bytes;
  bool end = false;                  // stdin closed
  std::uint32_t rows = 0, columns = 0;  // new window size, when not 0
  std::int32_t signal = 0;
  template <class V> void fields(V& v) {
    v("exec", exec); v("bytes", bytes); v("end", end); v("rows", rows); v("columns", columns); v("signal", signal);
  }
};
struct ExecOutput {
  std::string bytes;
  bool is_stderr = false;
  std::optional<ExitView> exit;      // set in the last one
  template <class V> void fields(V& v) { v("bytes", bytes); v("is_stderr", is_stderr); v("exit", exit); }
};

struct CheckpointsRequest {
  std::string job;
  bool verify = false;               // deep, now
  template <class V> void fields(V& v) { v("job", job); v("verify", verify); }
};
struct CheckpointsReply {
  std::vector<CheckpointView> checkpoints;
  std::string unrecognised;          // files in the directory in no known format; "": none were seen
  template <class V> void fields(V& v) { v("checkpoints", checkpoints); v("unrecognised", unrecognised); }
};

struct BlobRequest {
  std::string digest;
  template <class V> void fields(V& v) { v("digest", digest); }
};
struct PutBlobRequest {
  std::string digest;                // of the whole
  std::uint64_t offset = 0;
  std::string bytes;                 // at most limits::kBlobChunkBytes
  bool last = false;
  template <class V> void fields(V& v) { v("digest", digest); v("offset", offset); v("bytes", bytes); v("last", last); }
};
struct BlobReply {
  bool present = false;
  template <class V> void fields(V& v) { v("present", present); }
};
// The bytes of a blob from `offset` on.
struct GetBlobRequest {
  std::string digest;
  std::uint64_t offset = 0;
  template <class V> void fields(V& v) { v("digest", digest); v("offset", offset); }
};
struct BlobChunk {
  std::uint64_t offset = 0;          // of the first byte, in the blob
  std::string bytes;                 // the message that says `last` may have none
  template <class V> void fields(V& v) { v("offset", offset); v("bytes", bytes); }
};
// Asks an agent to keep a copy of a blob, and to fetch it if it is missing.
struct KeepBlobRequest {
  std::string digest;
  std::string host;                  // NodeId of a host that has it
  template <class V> void fields(V& v) { v("digest", digest); v("host", host); }
};
enum class CheckpointAsk : unsigned char { scan, verify, quarantine, fetch };
constexpr CheckpointAsk enum_last(CheckpointAsk) { return CheckpointAsk::fetch; }
// Asks a host about the checkpoints of a job on its own disk. The host answers by its own copy of the ledger.
struct CheckpointQuestion {
  CheckpointAsk ask = CheckpointAsk::scan;
  std::uint64_t job = 0;
  std::string dir;                   // scan: the directory; "": the job's. fetch: the NodeId of the host that has it
  std::string info;                  // verify, quarantine, fetch: an encoded transfer::CheckpointInfo
  template <class V> void fields(V& v) { v("ask", ask); v("job", job); v("dir", dir); v("info", info); }
};
struct CheckpointAnswer {
  std::string found;                 // of a scan: an encoded std::vector<transfer::CheckpointInfo>, newest step first
  std::string moved_to;              // of a quarantine
  template <class V> void fields(V& v) { v("found", found); v("moved_to", moved_to); }
};
// The bytes of a checkpoint's files, one after the other, from `offset` on; a list of the files comes first.
struct GetCheckpointRequest {
  std::uint64_t job = 0;
  std::string info;                  // an encoded transfer::CheckpointInfo
  std::uint64_t offset = 0;
  template <class V> void fields(V& v) { v("job", job); v("info", info); v("offset", offset); }
};
struct CheckpointFiles {
  struct File {
    std::string name;                // relative to the directory that holds the checkpoint's files
    std::uint64_t size = 0;
    template <class V> void fields(V& v) { v("name", name); v("size", size); }
    bool operator==(const File&) const = default;
  };
  std::vector<File> files;
  template <class V> void fields(V& v) { v("files", files); }
};
struct VersionReply {
  std::string version;
  std::string node;
  template <class V> void fields(V& v) { v("version", version); v("node", node); }
};
// A node leaves its cluster for good.
struct LeaveRequest {
  std::string node;          // "": this node; otherwise one that is down or dead, by name or id
  template <class V> void fields(V& v) { v("node", node); }
};
// Names founders that will not come: the others form the cluster without them.
struct FormRequest {
  std::vector<std::string> without;  // as `join` names them
  template <class V> void fields(V& v) { v("without", without); }
};
// Drains a host, so that it gets no tasks and its tasks go elsewhere, or ends that. Repeating it is no error.
inline constexpr std::size_t kDrainReasonBytes = 1'000;
struct DrainRequest {
  std::string node;          // a name or an id
  std::string reason;        // for people
  bool on = true;
  std::int64_t deadline_ms = 0;  // from now on; then tasks that have not moved are ended; 0: never
  template <class V> void fields(V& v) { v("node", node); v("reason", reason); v("on", on); v("deadline_ms", deadline_ms); }
};
// This node's log is to begin a new history of the cluster, because a majority of the voters is lost for good.
struct RecoverRequest {
  bool go = false;           // false: only say what it would do, or why it may not
  bool force = false;        // do so even if another survivor's log reaches further
  template <class V> void fields(V& v) { v("go", go); v("force", force); }
};
struct CancelRequest {
  std::uint64_t request_to_end = 0;
  template <class V> void fields(V& v) { v("request_to_end", request_to_end); }
};

template <class T>
Message make_message(MessageType type, std::uint64_t request, const T& payload, bool last = true) {
  Message m;
  m.type = type;
  m.request = request;
  m.last = last;
  m.payload = encode(payload);
  return m;
}

// An ErrorReply of one Error.
ErrorReply error_reply(const Error& e);
std::string to_string(ErrorCode code);  // "invalid", "not-found", ...

// Puts the length in front, so that the result can be written to a stream socket.
std::string frame(const Message& m);

// Splits a byte stream into messages. Feed what arrived, then call next() until it returns nullopt. A length above
// the limit, or a frame that does not decode, is an error after which the stream is unusable.
class Deframer {
 public:
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  Result<std::optional<Message>> next();
  std::size_t buffered() const { return buffer_.size() - start_; }

 private:
  std::string buffer_;
  std::size_t start_ = 0;
};

}  // namespace dtrain::wire
