// What a cluster shows of itself. Field names are the JSON keys of docs/contract.md: the client prints these structs
// with the same fields() that encode them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/wire/since.h"

namespace dtrain::wire {

struct ExitView {  // JSON: {"code":N} or {"signal":"SIGKILL"}; the client prints one of the two
  std::optional<std::int32_t> code;
  std::optional<std::string> signal;
  std::optional<std::string> cause;
  template <class V>
  void fields(V& v) {
    v("code", code);
    v("signal", signal);
    v("cause", cause);
  }
};

// Ranks of the job that a task has: RANK of the first, and how many.
struct RanksView {
  std::uint32_t first = 0, count = 0;
  template <class V>
  void fields(V& v) {
    v("first", first);
    v("count", count);
  }
};

struct TaskView {
  std::string task, role;
  std::uint32_t index = 0;
  std::string state, node;
  std::int32_t pid = 0;  // 0: none
  std::string address;
  std::uint32_t attempt = 0;
  std::optional<ExitView> exit;   // of the last attempt that ended
  std::vector<std::string> gpus;  // PCI addresses
  std::optional<std::string> started_at;
  std::string status;  // last STATUS=
  std::string reason;
  bool ready = false;
  std::optional<RanksView> ranks;  // nullopt: it is none, or its framework numbers none
  std::vector<std::int32_t> pids;  // of its ranks, in order, as far as the answering host runs it; 0: it has ended
  template <class V>
  void fields(V& v) {
    v("task", task);
    v("role", role);
    v("index", index);
    v("state", state);
    v("node", node);
    v("pid", pid);
    v("address", address);
    v("attempt", attempt);
    v("exit", exit);
    v("gpus", gpus);
    v("started_at", started_at);
    v("status", status);
    v("reason", reason);
    v("ready", ready);
    v("ranks", ranks, Since{3});
    v("pids", pids, Since{3});
  }
};

struct RoleView {
  std::uint32_t desired = 0, ready = 0, running = 0, succeeded = 0, failed = 0;
  template <class V>
  void fields(V& v) {
    v("desired", desired);
    v("ready", ready);
    v("running", running);
    v("succeeded", succeeded);
    v("failed", failed);
  }
};

// Whether a job trains, as far as the ledger knows.
struct ProgressView {
  bool value = false;  // false: not begun, or over, or something that it needs is frozen, gone or unreachable
  std::string since;   // when `value` changed; RFC 3339
  std::string why;     // why it does not train; "": it does, or it is over
  template <class V>
  void fields(V& v) {
    v("value", value);
    v("since", since);
    v("why", why);
  }
};

struct JobView {
  std::string name, state, framework;
  std::uint32_t generation = 0, restarts = 0;
  std::map<std::string, RoleView> roles;
  std::int64_t age_s = 0;
  std::string reason;
  std::uint64_t id = 0;
  std::string user;
  std::map<std::string, std::string> labels;
  std::int64_t duration_s = 0;  // of this run: from its submit, rerun or resume to its end, or to now
  ProgressView progressing;
  template <class V>
  void fields(V& v) {
    v("name", name);
    v("state", state);
    v("framework", framework);
    v("generation", generation);
    v("restarts", restarts);
    v("roles", roles);
    v("age_s", age_s);
    v("reason", reason);
    v("id", id);
    v("user", user);
    v("labels", labels);
    v("duration_s", duration_s);
    v("progressing", progressing);
  }
};

struct RestoredView {
  std::string path;
  std::int64_t step = 0;
  template <class V>
  void fields(V& v) {
    v("path", path);
    v("step", step);
  }
};
struct ConditionView {
  std::string type;
  bool status = false;
  std::string time, reason;
  std::int64_t age_s = 0;  // since it was last reached
  template <class V>
  void fields(V& v) {
    v("type", type);
    v("status", status);
    v("time", time);
    v("reason", reason);
    v("age_s", age_s);
  }
};
struct FaultView {
  std::string task, node, time, cause;  // cause: what a person should read first: "signal SIGKILL", "exit code 3", ...
  std::uint32_t generation = 0, attempt = 0;
  std::optional<ExitView> exit;
  std::string stderr_tail;
  std::uint32_t rank = 0;    // of a task with ranks: one more than the one that failed within its task; else 0
  std::string error, stack;  // the exception that the rank recorded, and where it was raised; "": it recorded none
  template <class V>
  void fields(V& v) {
    v("task", task);
    v("node", node);
    v("time", time);
    v("cause", cause);
    v("generation", generation);
    v("attempt", attempt);
    v("exit", exit);
    v("stderr_tail", stderr_tail);
    v("rank", rank, Since{3});
    v("error", error, Since{3});
    v("stack", stack, Since{3});
  }
};
struct CheckpointView {
  std::string path;
  std::int64_t step = 0;
  std::uint32_t generation = 0;
  std::string state;  // complete | verified | damaged | quarantined | deleted; in shares of several hosts: together | incomplete
  std::uint64_t bytes = 0;
  std::string time, defect, digest;
  template <class V>
  void fields(V& v) {
    v("path", path);
    v("step", step);
    v("generation", generation);
    v("state", state);
    v("bytes", bytes);
    v("time", time);
    v("defect", defect);
    v("digest", digest);
  }
};

struct EventView {
  std::uint64_t seq = 0;
  std::string time, type, object, reason, message;
  std::uint64_t local = 0;  // not 0: this node's own event; seq is that of the history's newest before it
  template <class V>
  void fields(V& v) {
    v("seq", seq);
    v("time", time);
    v("type", type);
    v("object", object);
    v("reason", reason);
    v("message", message);
    v("local", local);
  }
};

struct JobDescription {
  JobView job;  // the client prints its keys at the top level
  std::vector<TaskView> tasks;
  std::string spec;  // encoded job::JobSpec
  std::vector<ConditionView> conditions;
  std::optional<RestoredView> restored;
  std::optional<FaultView> first_fault;
  std::string waiting_for;
  std::vector<EventView> events;  // the newest few
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("tasks", tasks);
    v("spec", spec);
    v("conditions", conditions);
    v("restored", restored);
    v("first_fault", first_fault);
    v("waiting_for", waiting_for);
    v("events", events);
  }
};

struct GpuView {
  std::uint32_t index = 0;
  std::string pci, vendor, model, uuid;
  std::uint64_t memory_bytes = 0;
  std::int32_t numa = -1;
  bool healthy = true, pretended = false;
  std::string reason;                // why it is not healthy
  std::int32_t group = -1;           // equal for GPUs that NVLink or XGMI joins; -1: joined with none
  std::vector<std::string> bridges;  // PCI addresses of the bridges above it, the root's first
  std::vector<std::string> nics;     // the nearest network devices
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("pci", pci);
    v("vendor", vendor);
    v("model", model);
    v("uuid", uuid);
    v("memory_bytes", memory_bytes);
    v("numa", numa);
    v("healthy", healthy);
    v("pretended", pretended);
    v("reason", reason);
    v("group", group);
    v("bridges", bridges);
    v("nics", nics);
  }
};
struct GpusView {
  std::uint32_t total = 0, free = 0;
  std::vector<GpuView> devices;
  template <class V>
  void fields(V& v) {
    v("total", total);
    v("free", free);
    v("devices", devices);
  }
};
struct GpuCountView {
  std::uint32_t total = 0, free = 0;
  template <class V>
  void fields(V& v) {
    v("total", total);
    v("free", free);
  }
};
struct CpusView {  // the client prints whole or decimal CPUs
  std::uint64_t total_millis = 0, free_millis = 0;
  template <class V>
  void fields(V& v) {
    v("total_millis", total_millis);
    v("free_millis", free_millis);
  }
};
struct MemoryView {
  std::uint64_t total_bytes = 0, free_bytes = 0;
  template <class V>
  void fields(V& v) {
    v("total_bytes", total_bytes);
    v("free_bytes", free_bytes);
  }
};
// A job that still has tasks on a drained host.
struct DrainedJobView {
  std::string job;
  std::uint32_t tasks = 0;  // on the host
  std::string why;          // why they are still there
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("tasks", tasks);
    v("why", why);
  }
};
struct DrainView {
  std::string reason, by, since;
  std::optional<std::int64_t> deadline_s;  // from now; negative: it has passed
  std::uint32_t tasks = 0;                 // on the host that have not ended
  std::vector<DrainedJobView> jobs;        // at most kDrainedJobsShown, and only in the answer about a single node
  template <class V>
  void fields(V& v) {
    v("reason", reason);
    v("by", by);
    v("since", since);
    v("deadline_s", deadline_s);
    v("tasks", tasks);
    v("jobs", jobs);
  }
};
inline constexpr std::size_t kDrainedJobsShown = 100;
struct NodeView {
  std::string name, id, address, state;
  std::uint64_t incarnation = 0;
  std::string role;
  bool schedulable = true;
  GpusView gpus;
  CpusView cpus;
  MemoryView memory;
  std::map<std::string, std::string> labels;
  std::string version, boot_id, key_print, task_address;  // "": not known
  std::uint64_t life = 0;                                 // starts of the agent on its data directory
  std::string topology;              // packages, NUMA nodes, cores, GPUs, one line each; only in the answer about a single node
  std::optional<DrainView> drained;  // nullopt: it is not
  std::uint32_t packages = 0, numa_nodes = 0;
  std::string unfit;  // why the host takes no new tasks (health check, epilog, held GPUs); "": it takes them
  template <class V>
  void fields(V& v) {
    v("name", name);
    v("id", id);
    v("address", address);
    v("state", state);
    v("incarnation", incarnation);
    v("role", role);
    v("schedulable", schedulable);
    v("gpus", gpus);
    v("cpus", cpus);
    v("memory", memory);
    v("labels", labels);
    v("version", version);
    v("boot_id", boot_id);
    v("key_print", key_print);
    v("task_address", task_address);
    v("life", life);
    v("topology", topology);
    v("drained", drained);
    v("packages", packages);
    v("numa_nodes", numa_nodes);
    v("unfit", unfit);
  }
};

struct ClusterIdView {
  std::string name, id;
  template <class V>
  void fields(V& v) {
    v("name", name);
    v("id", id);
  }
};
struct CoordinatorView {
  std::string node;
  std::uint64_t epoch = 0;
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("epoch", epoch);
  }
};
struct QuorumView {
  std::vector<std::string> voters;
  bool healthy = false;
  std::uint64_t history = 0;  // number of the cluster's history; 0: not known here
  std::string next;           // without a majority, or with two histories: what to know and do; else ""
  template <class V>
  void fields(V& v) {
    v("voters", voters);
    v("healthy", healthy);
    v("history", history);
    v("next", next);
  }
};
// How far the log of a member reaches, by its own statement.
struct LogReachView {
  std::string node, state, role;
  std::uint64_t history = 0, term = 0, index = 0;  // 0: it did not say; it does only while it has no leader
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("state", state);
    v("role", role);
    v("history", history);
    v("term", term);
    v("index", index);
  }
};
// What recover-quorum would do, or did.
struct RecoveryView {
  std::string node;                                // the survivor
  std::uint64_t history = 0, term = 0, index = 0;  // the history that ends, and how far the survivor's log reaches in it
  std::vector<std::string> lost;                   // voters that are not up
  std::vector<LogReachView> others;
  std::uint64_t new_history = 0, epoch = 0;  // 0: nothing was done
  template <class V>
  void fields(V& v) {
    v("node", node);
    v("history", history);
    v("term", term);
    v("index", index);
    v("lost", lost);
    v("others", others);
    v("new_history", new_history);
    v("epoch", epoch);
  }
};
struct NodeCountsView {
  std::uint32_t alive = 0, suspect = 0, down = 0, dead = 0, left = 0;
  template <class V>
  void fields(V& v) {
    v("alive", alive);
    v("suspect", suspect);
    v("down", down);
    v("dead", dead);
    v("left", left);
  }
};
// What the answering node's membership dropped or repeated since its agent's start.
struct MembershipView {
  std::map<std::string, std::uint64_t> drops;  // messages of peers, by reason (wire::Drop), including reasons without any
  std::uint64_t probe_failures = 0, refutes = 0, rumours_dropped = 0;
  std::uint32_t health = 0;  // 0: healthy; otherwise this node judges others more slowly
  template <class V>
  void fields(V& v) {
    v("drops", drops);
    v("probe_failures", probe_failures);
    v("refutes", refutes);
    v("rumours_dropped", rumours_dropped);
    v("health", health);
  }
};
struct StatusView {
  ClusterIdView cluster;
  std::optional<CoordinatorView> coordinator;
  QuorumView quorum;
  NodeCountsView nodes;
  GpuCountView gpus;
  std::map<std::string, std::uint32_t> jobs;  // state -> count; empty where `ledger` is false
  bool stale = false;
  bool ledger = true;       // the answering node has a copy of the ledger
  std::string waiting_for;  // what it waits for while it belongs to no cluster
  MembershipView membership;
  std::map<std::string, std::string> drained;  // drained hosts, with the reason
  std::map<std::string, std::string> unfit;    // hosts in service that take no new tasks (health check, disk, epilog), with the reason
  template <class V>
  void fields(V& v) {
    v("cluster", cluster);
    v("coordinator", coordinator);
    v("quorum", quorum);
    v("nodes", nodes);
    v("gpus", gpus);
    v("jobs", jobs);
    v("stale", stale);
    v("ledger", ledger);
    v("waiting_for", waiting_for);
    v("membership", membership);
    v("drained", drained);
    v("unfit", unfit);
  }
};

// What one task was or would be given, for cluster-spec and plan.
struct TaskSpecView {
  std::string task, node, address;
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;
  std::string work_dir;
  std::vector<std::string> gpus;
  std::optional<RanksView> ranks;  // as in TaskView
  template <class V>
  void fields(V& v) {
    v("task", task);
    v("node", node);
    v("address", address);
    v("argv", argv);
    v("env", env);
    v("work_dir", work_dir);
    v("gpus", gpus);
    v("ranks", ranks, Since{3});
  }
};

}  // namespace dtrain::wire
