// What a user asked for: the validated form of a job file (format: docs/job-file.md). Pure data; manifest.h has the
// parser and the rules, job_yaml.h turns a spec back into text. Every field holds its effective value: the parser
// fills in defaults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/time.h"
#include "common/job/frameworks.h"
#include "common/transfer/checkpoint.h"
#include "common/wire/since.h"

namespace dtrain::job {

enum class RestartPolicy : unsigned char { on_failure, never, always, exit_code };
constexpr RestartPolicy enum_last(RestartPolicy) { return RestartPolicy::exit_code; }

enum class OnDisconnect : unsigned char { by_class, replace, freeze, keep };  // by_class: freeze when exclusive
constexpr OnDisconnect enum_last(OnDisconnect) { return OnDisconnect::keep; }
// What the two of them ask for was not done before that.
constexpr std::uint32_t since_version(OnDisconnect when) { return when == OnDisconnect::replace || when == OnDisconnect::freeze ? 2 : 1; }

enum class AvoidGpuHosts : unsigned char { no, prefer, require };
constexpr AvoidGpuHosts enum_last(AvoidGpuHosts) { return AvoidGpuHosts::require; }

enum class CleanPodPolicy : unsigned char { running, all, none };
constexpr CleanPodPolicy enum_last(CleanPodPolicy) { return CleanPodPolicy::none; }

enum class OnPsFailure : unsigned char { halt, freeze };
constexpr OnPsFailure enum_last(OnPsFailure) { return OnPsFailure::freeze; }

enum class SuccessPolicy : unsigned char { by_framework, all_workers };
constexpr SuccessPolicy enum_last(SuccessPolicy) { return SuccessPolicy::all_workers; }

enum class EvaluatorInCluster : unsigned char { self, never, always };
constexpr EvaluatorInCluster enum_last(EvaluatorInCluster) { return EvaluatorInCluster::always; }

enum class Placement : unsigned char { pack, spread };
constexpr Placement enum_last(Placement) { return Placement::spread; }

enum class StartAfter : unsigned char { running, ready, succeeded };
constexpr StartAfter enum_last(StartAfter) { return StartAfter::succeeded; }

enum class SignalTo : unsigned char { all, main };
constexpr SignalTo enum_last(SignalTo) { return SignalTo::main; }

struct Resources {
  std::uint64_t cpu_millis = 0;    // 0: reserves nothing, limits nothing
  std::uint64_t memory_bytes = 0;  // 0: reserves nothing, limits nothing; otherwise a hard limit
  std::uint32_t gpus = 0;
  std::string gpu_model;  // "" any
  template <class V>
  void fields(V& v) {
    v("cpu_millis", cpu_millis);
    v("memory_bytes", memory_bytes);
    v("gpus", gpus);
    v("gpu_model", gpu_model);
  }
};

// Exit codes from `first` to `last`.
struct ExitCodes {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  template <class V>
  void fields(V& v) {
    v("first", first);
    v("last", last);
  }
};

// What differs for the tasks of a role from index `first` to `last`.
struct RoleOverride {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::vector<std::string> command;        // in place of the role's; empty: the role's
  std::map<std::string, std::string> env;  // added to the role's
  template <class V>
  void fields(V& v) {
    v("first", first);
    v("last", last);
    v("command", command);
    v("env", env);
  }
};

struct RoleSpec {
  std::uint32_t replicas = 1;
  std::uint32_t min_replicas = 0;          // equals replicas unless the job may shrink
  std::vector<std::string> command;        // templates not yet rendered
  std::map<std::string, std::string> env;  // added to the job's
  Resources resources;
  std::map<std::string, std::string> node_selector;
  std::string anti_affinity = "none";  // none | host | a label's name
  AvoidGpuHosts avoid_gpu_hosts = AvoidGpuHosts::no;
  RestartPolicy restart_policy = RestartPolicy::on_failure;
  std::map<std::string, StartAfter> start_after;  // by role: the state that it must have reached; defaults are filled in
  OnDisconnect on_disconnect = OnDisconnect::by_class;
  bool exclusive = false;  // every task of the role; for one task ask is_exclusive()
  bool notify = false;     // ready means READY=1 was sent
  Duration watchdog{0};    // 0: off
  std::int32_t stop_signal = 15;
  SignalTo signal_to = SignalTo::all;        // which of a task's processes get the stop signal and the signal before the deadline
  Duration start_timeout{0};                 // a task that is not Running (with notify: ready) by then is killed; 0: off
  std::vector<std::string> warm;             // what a standby imports: {"auto"}, {"none"} or modules; empty: as the framework has it
  std::uint32_t nproc_per_node = 0;          // processes (ranks) that each task runs; 0: one, which is not told of ranks within its task
  std::string work_dir = {};                 // "": the job's
  std::vector<ExitCodes> retry_codes = {};   // restartPolicy ExitCode restarts after these; empty: after 128 and above
  Duration run_timeout{0};                   // an attempt that runs for so long is killed; 0: off
  std::vector<RoleOverride> overrides = {};  // by index, which do not overlap
  std::string image = {};                    // the tasks run in this image (container_engine.h); "": on the host itself
  template <class V>
  void fields(V& v) {
    v("replicas", replicas);
    v("min_replicas", min_replicas);
    v("command", command);
    v("env", env);
    v("resources", resources);
    v("node_selector", node_selector);
    v("anti_affinity", anti_affinity);
    v("avoid_gpu_hosts", avoid_gpu_hosts);
    v("restart_policy", restart_policy);
    v("start_after", start_after);
    v("on_disconnect", on_disconnect);
    v("exclusive", exclusive);
    v("notify", notify);
    v("watchdog", watchdog);
    v("stop_signal", stop_signal);
    v("signal_to", signal_to);
    v("start_timeout", start_timeout);
    v("nproc_per_node", nproc_per_node, wire::Since{3});
    v("warm", warm, wire::Since{3});
    v("work_dir", work_dir, wire::Since{3});
    v("retry_codes", retry_codes, wire::Since{3});
    v("run_timeout", run_timeout, wire::Since{3});
    v("overrides", overrides, wire::Since{3});
    v("image", image, wire::Since{3});
  }
};

// The formats that are looked for, as stored and sent: 0 for all, else one more than the number of the only one. Words: names.h.
enum class CheckpointFormat : unsigned char {};
CheckpointFormat enum_last(CheckpointFormat);
constexpr std::uint32_t since_version(CheckpointFormat format) {
  return format == CheckpointFormat{} ? 1 : since_version(transfer::FormatId(static_cast<unsigned>(format) - 1));
}
constexpr CheckpointFormat only(transfer::FormatId format) { return CheckpointFormat(static_cast<unsigned>(format) + 1); }

struct CheckpointSpec {
  std::string dir;  // absolute
  CheckpointFormat format{};
  std::uint32_t keep = 0;  // 0: unset, nothing is ever deleted
  std::uint32_t replicas = 1;
  std::string restore = "auto";  // auto | never | an absolute path
  template <class V>
  void fields(V& v) {
    v("dir", dir);
    v("format", format);
    v("keep", keep);
    v("replicas", replicas);
    v("restore", restore);
  }
};

struct RestartBackoff {
  Duration first = 0s;
  Duration initial = 100ms;
  Duration max = 60s;
  Duration reset_after = 10min;
  bool jitter = true;  // off when given as one duration
  template <class V>
  void fields(V& v) {
    v("first", first);
    v("initial", initial);
    v("max", max);
    v("reset_after", reset_after);
    v("jitter", jitter);
  }
};

struct FailureThreshold {
  std::uint32_t count = 5;  // 0: off
  Duration within = 6h;
  template <class V>
  void fields(V& v) {
    v("count", count);
    v("within", within);
  }
};

struct SignalBeforeDeadline {
  std::int32_t signal = 0;
  Duration before{0};
  template <class V>
  void fields(V& v) {
    v("signal", signal);
    v("before", before);
  }
};

inline constexpr std::uint32_t kAllPercent = 100;
inline constexpr Duration kWaitForUnlessSaid = 10min, kGrowAfterUnlessSaid = 1min;

struct Policy {
  std::optional<std::uint32_t> backoff_limit;  // restarts in one run; unset: only the failure threshold limits them
  RestartBackoff restart_backoff;
  FailureThreshold failure_threshold;  // per task
  OnPsFailure on_ps_failure = OnPsFailure::halt;
  std::optional<Duration> active_deadline;
  std::optional<Duration> ttl_after_finished;
  CleanPodPolicy clean_pod_policy = CleanPodPolicy::running;
  SuccessPolicy success_policy = SuccessPolicy::by_framework;
  EvaluatorInCluster evaluator_in_cluster = EvaluatorInCluster::self;
  bool enable_dynamic_worker = false;
  Placement placement = Placement::pack;
  std::int32_t priority = 0;
  Duration expected{0};
  bool gang = true;
  Duration stop_grace_period = 30s;
  std::optional<SignalBeforeDeadline> signal_before_deadline;
  bool collective = false;                        // no task continues without the others, whatever the framework says; evaluators excepted
  std::map<std::string, Duration> wait_for = {};  // roles that the job's success waits for, and for how long at most
  // for so long there must be room for all tasks of a job that shrank before it begins again with them; zero: it never does by itself;
  // unset: kGrowAfterUnlessSaid where there is a checkpoint to restore, else never
  std::optional<Duration> grow_after;
  std::uint32_t success_percent = 0;  // how many of the tasks that count for the job's success have to succeed, rounded up; 0: all
  template <class V>
  void fields(V& v) {
    v("backoff_limit", backoff_limit);
    v("restart_backoff", restart_backoff);
    v("failure_threshold", failure_threshold);
    v("on_ps_failure", on_ps_failure);
    v("active_deadline", active_deadline);
    v("ttl_after_finished", ttl_after_finished);
    v("clean_pod_policy", clean_pod_policy);
    v("success_policy", success_policy);
    v("evaluator_in_cluster", evaluator_in_cluster);
    v("enable_dynamic_worker", enable_dynamic_worker);
    v("placement", placement);
    v("priority", priority);
    v("expected", expected);
    v("gang", gang);
    v("stop_grace_period", stop_grace_period);
    v("signal_before_deadline", signal_before_deadline);
    v("wait_for", wait_for);
    v("collective", collective, wire::Since{3});
    v("grow_after", grow_after, wire::Since{3});
    v("success_percent", success_percent, wire::Since{3});
  }
};
// `gang: false` was read before that, and did nothing.
constexpr std::uint32_t since_version(const Policy& policy) { return policy.gang ? 1 : 2; }

struct NotifyHook {
  std::vector<std::string> command;  // empty: none
  std::vector<std::string> on;       // job states
  template <class V>
  void fields(V& v) {
    v("command", command);
    v("on", on);
  }
};

// Space for what the ledger appends to generate_name: the job's id in decimal.
inline constexpr std::size_t kGeneratedSuffixBytes = 20;

struct JobSpec {
  std::string name;  // empty only while generate_name is to be filled in by the ledger
  std::string generate_name;
  std::map<std::string, std::string> labels;
  Framework framework = kFrameworkUnlessSaid;
  std::string package_digest;  // BLAKE2b-256 hex of the package's tar; "": no package
  std::string work_dir = ".";  // inside the package's copy, or absolute
  std::map<std::string, std::string> env;
  std::vector<std::string> require_paths;
  std::map<std::string, RoleSpec> roles;
  std::optional<CheckpointSpec> checkpoint;
  Policy policy;
  NotifyHook notify;
  bool suspend = false;
  std::string package_content;                      // as package_digest, but without the times of its files; "": from an older client
  std::map<std::string, std::string> options = {};  // the framework's own (FrameworkRules::options)
  std::vector<std::string> make_dirs = {};          // absolute: hosts make them for the job's user if they are missing
  std::string rehearsal;                            // only in tests of an upgrade (wire::kRehearsal)
  template <class V>
  void fields(V& v) {
    v("name", name);
    v("generate_name", generate_name);
    v("labels", labels);
    v("framework", framework);
    v("package_digest", package_digest);
    v("work_dir", work_dir);
    v("env", env);
    v("require_paths", require_paths);
    v("roles", roles);
    v("checkpoint", checkpoint);
    v("policy", policy);
    v("notify", notify);
    v("suspend", suspend);
    v("package_content", package_content);
    v("options", options, wire::Since{3});
    v("make_dirs", make_dirs, wire::Since{3});
    v("rehearsal", rehearsal, wire::kRehearsal);
  }
};

// Later for templates that programs of earlier versions would leave as they stand, on the hosts that they run on.
std::uint32_t since_version(const JobSpec& spec);

// True if two submitted specs (encoded) are equal but for the times of the package's files.
bool same_content(const std::string& a, const std::string& b);

bool looks_for(const CheckpointSpec& spec, transfer::FormatId format);

std::string_view to_string(Framework f);
std::uint32_t total_replicas(const JobSpec& spec);
bool has_role(const JobSpec& spec, std::string_view role);

// What the role says of the task with this index alone; null: nothing.
const RoleOverride* override_of(const RoleSpec& role, std::uint32_t index);

// Calls `visit` for each map of variables: the job's, its roles' and their overrides'.
template <class Spec, class Visit>
void for_each_env(Spec& spec, Visit visit) {
  visit(spec.env);
  for (auto& [name, role] : spec.roles) {
    visit(role.env);
    for (auto& differs : role.overrides) visit(differs.env);
  }
}

// The command of the role's task with this index.
const std::vector<std::string>& command_of(const RoleSpec& role, std::uint32_t index);

// Where its tasks start: the role's, or the job's.
const std::string& work_dir_of(const JobSpec& spec, const std::string& role);

// The first image that a role names, by the roles' names; "": none does.
std::string image_of(const JobSpec& spec);

// True if the tasks of this role are ranks of a collective job: by the framework, or with policy.collective all but evaluators.
bool is_rank_role(const JobSpec& spec, std::string_view role);

// True if every rank must restart when one dies (torch DDP, MPI, MultiWorkerMirrored, JAX): a framework of ranks, policy.collective,
// or a tensorflow job without parameter servers and with more than one replica of chief, master and worker together.
bool is_collective(const JobSpec& spec);

// True if two instances of this task at once would damage the training, so that it runs under a lease: every task of
// a role with `exclusive` (the parser sets it for ps, chief, master and evaluator of a tensorflow job), and task 0 of
// the role that stands in as leader (worker-0 of a tensorflow job without chief and master), which one flag for the
// whole role cannot say.
bool is_exclusive(const JobSpec& spec, const TaskId& task);

// True if a death means recovery (halt, new generation, restore) rather than a restart in place: ps, chief, master,
// and every rank of a collective job. Evaluators are never ranks: they restart in place.
bool is_stateful(const JobSpec& spec, const TaskId& task);

// True if the task runs under a lease (docs/leases.md) in a cluster of several hosts: a second instance begins only
// when the first cannot run any more. Exempt are tasks that their user wants to keep running while the host is cut
// off (onDisconnect: keep).
bool wants_lease(const JobSpec& spec, const TaskId& task);

// True where another instance of the task is begun only once the first cannot run any more: it is exclusive, or stateful unless its user
// would rather have it replaced at once (onDisconnect: replace), or its user says so (freeze).
bool must_not_run_twice(const JobSpec& spec, const TaskId& task);

// The task whose success is the job's: chief, else master, else (tensorflow) worker 0. nullopt: every task of every
// role but ps and evaluator must succeed (generic, or successPolicy AllWorkers where it is the workers).
std::optional<TaskId> deciding_task(const JobSpec& spec);

}  // namespace dtrain::job
