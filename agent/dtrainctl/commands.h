// The verbs: the options that the command line sets, and the function that does the work and returns the exit code.
// cli.cpp fills in the options.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/dtrainctl/session.h"

namespace dtrain::ctl {

// A job file and the values filled into it.
struct FileOptions {
  std::string file;                                       // "-": stdin
  std::vector<std::pair<std::string, std::string>> sets;  // --set PATH=V
  std::map<std::string, std::string> params;              // --param K=V
  std::string app_config;                                 // of an application of Slider; "": none
  std::string package;                                    // the package of each of its jobs; "": that of the file
};

struct SubmitOptions {
  FileOptions file;
  bool dry_run = false, replace = false;
};
int cmd_submit(Session& session, const SubmitOptions& options);
int cmd_plan(Session& session, const FileOptions& options);
int cmd_convert(Session& session, const FileOptions& options);  // prints the job files that it means

struct RunOptions {
  FileOptions file;  // file "": the job is made from the fields below
  std::uint32_t ps = 0, workers = 1, gpus = 0, hosts = 0;
  std::optional<std::string> cpus, nproc;  // of each worker and the chief, as in a job file
  bool chief = false;
  std::string name, framework;   // "": chosen by dtrainctl
  std::vector<std::string> env;  // NAME=VALUE, or NAME alone: as it is here
  std::vector<std::string> command;
  bool replace = false, detach = false, cancel_on_exit = false;
  bool raw = false;  // tasks' escape sequences reach the terminal unchanged
};
int cmd_run(Session& session, const RunOptions& options);

struct JobsOptions {
  std::map<std::string, std::string> labels;
  std::string user, state;
  bool watch = false;
};
int cmd_jobs(Session& session, const JobsOptions& options);

struct NamedOptions {
  std::string name;  // a job or a node; "": all
  bool watch = false;
};
int cmd_describe_job(Session& session, const NamedOptions& options);
int cmd_describe_node(Session& session, const NamedOptions& options);
int cmd_tasks(Session& session, const NamedOptions& options);
int cmd_status(Session& session, const NamedOptions& options);
int cmd_nodes(Session& session, const NamedOptions& options);
int cmd_topology(Session& session, const NamedOptions& options);
// name "": this node leaves its cluster for good; otherwise a node that is down or dead is forgotten.
int cmd_leave(Session& session, const NamedOptions& options);
struct DrainOptions {
  wire::DrainRequest request;
  bool wait = false;  // wait until the host has no tasks
};
int cmd_drain(Session& session, const DrainOptions& options);  // and undrain
// Lets the founders that are there begin without the named ones.
int cmd_form(Session& session, const std::vector<std::string>& without);

struct RecoverOptions {
  bool yes = false, force = false;
};
// Lets this node's log begin a new history of the cluster.
int cmd_recover_quorum(Session& session, const RecoverOptions& options);

struct WaitOptions {
  std::string job, target;  // target: a job state, Finished, deleted
};
int cmd_wait(Session& session, const WaitOptions& options);

struct LogsOptions {
  wire::LogsRequest request;
  bool timestamps = false, raw = false;
};
int cmd_logs(Session& session, const LogsOptions& options);

struct EventsOptions {
  std::string job;
  bool follow = false;
};
int cmd_events(Session& session, const EventsOptions& options);

struct TaskSpecsOptions {
  std::string job, task;
};
int cmd_cluster_spec(Session& session, const TaskSpecsOptions& options);

struct ActionOptions {
  wire::ActionRequest request;
  std::vector<std::pair<std::string, std::uint32_t>> scale;  // role, replicas
  std::string package_dir;                                   // restart --package
  bool no_wait = false;                                      // delete: do not wait until the name is free
};
int cmd_action(Session& session, const ActionOptions& options);

struct CheckpointsOptions {
  std::string job;
  bool verify = false;
};
int cmd_checkpoints(Session& session, const CheckpointsOptions& options);
int cmd_verify(Session& session, const std::string& path);

inline constexpr int kNotLaunched = 255;  // as ssh exits where it is not the command's own code
struct ExecOptions {
  std::string job, task;
  std::vector<std::string> command;
  std::uint32_t rank = 0;  // as wire::ExecRequest::rank
  bool launches = false;   // as a part of the task, from inside another task of the job (dtrain-rsh)
};
int cmd_exec(Session& session, const ExecOptions& options);

int cmd_version(Session& session);

struct DoctorOptions {
  std::string config;  // of the agent; "": the default file, where it exists
};
int cmd_doctor(Session& session, const DoctorOptions& options);

struct KeygenOptions {
  std::string file;
  bool add = false;  // append a pair to an existing file; for a client: fetch the cluster's present keys
  bool client = false;
  std::string cluster_key = "/etc/dtrain/cluster.key";  // from which a client's key is made
};
int cmd_keygen(Session& session, const KeygenOptions& options);

// Shell completion: the scripts call `dtrainctl completion names KIND` for names while somebody types.
struct VerbSummary {
  std::string name, help;
  std::vector<std::string> options;  // "--follow", "-f"
  std::vector<std::string> valued;   // those that take a value
  std::string first, second;         // what the positional arguments are: job, task, node, file, ""
};
int cmd_completion(Session& session, const std::string& what, const std::string& kind, const std::string& job,
                   const std::vector<VerbSummary>& verbs, const std::vector<std::string>& globals);

// Repeats `look` every kWatchPause until it fails or the user ends the program. On a terminal the screen is redrawn,
// elsewhere an answer is printed again when it changed. `look` prints to the given session.
int watch_screen(Session& session, const std::function<int(Session&)>& look);

}  // namespace dtrain::ctl
