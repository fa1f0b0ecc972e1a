// TrainJob of Kubeflow's trainer: what runs is in its runtime, of which this file knows those that the trainer brings along. Sources:
// manifests/base/runtimes and pkg/runtime/framework/plugins/{torch,jax,mpi} of its releases 2.0 and 2.1.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>

#include "common/base/limits.h"
#include "common/job/framework.h"
#include "common/job/kube_job.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

constexpr const char* kNode = "node";
constexpr std::uint32_t kRetriesOfJob = 6;  // of the Job that a JobSet makes
constexpr std::uint64_t kMilliOfCpu = 1000;

// The first target is the role that runs the trainer's command; those after it wait for processes of its mpirun.
struct Target {
  std::string_view job, role;  // as podTemplateOverrides call it; of the job
};
constexpr std::array kNodes{Target{kNode, kNode}};
constexpr std::array kNodesAsWorkers{Target{kNode, "worker"}};
constexpr std::array kLauncherAndNodes{Target{"launcher", "launcher"}, Target{kNode, "worker"}};

struct Runtime {
  std::string_view name;
  Framework framework;
  std::span<const Target> targets = kNodes;
  std::uint32_t nodes = 1;      // unless the job says otherwise
  bool launcher_works = false;  // it is one of the nodes
  void (*variables)(RoleSpec& node) = [](RoleSpec&) {};
};

// The script of the first node starts XGBoost's tracker; a node has a worker for each of its GPUs.
void add_tracker_of_nodes(RoleSpec& node) {
  node.env["DMLC_TRACKER_URI"] = "{ip:worker:0}";
  node.env["DMLC_TRACKER_PORT"] = "{env:MASTER_PORT}";
  node.env["DMLC_TASK_ID"] = "{task.index}";
  node.env["DMLC_NUM_WORKER"] = std::to_string(node.replicas * std::max(node.resources.gpus, 1u));
}

constexpr std::array kRuntimes{
    Runtime{"torch-distributed", Framework::pytorch},
    Runtime{"jax-distributed", Framework::jax},
    Runtime{.name = "xgboost-distributed", .framework = Framework::xgboost, .targets = kNodesAsWorkers, .variables = add_tracker_of_nodes},
    Runtime{"deepspeed-distributed", Framework::mpi, kLauncherAndNodes, 1, true},
    Runtime{"mlx-distributed", Framework::mpi, kLauncherAndNodes, 1, true},
    Runtime{"mpi-distributed", Framework::mpi, kLauncherAndNodes, 2},
};

// What stands at the end of these keys; all beside them is named.
KubeFields below(KubeFields fields, std::span<const std::string_view> keys) {
  if (keys.empty()) return fields;
  KubeFields next = fields.map(keys.front());
  fields.skip({"metadata"});
  fields.rest();
  return below(next, keys.subspan(1));
}

constexpr std::array kWhereJobsAre{std::string_view("template"), std::string_view("spec")};  // of a runtime

// Which tasks a policy of a runtime is for.
Runtime read_policy_of_runtime(KubeFields policy, KubeJob& job) {
  Runtime out{.name = {}, .framework = Framework::generic};
  if (policy.entries().empty()) return out;
  out.nodes = static_cast<std::uint32_t>(policy.number("numNodes", 1, limits::kTasksPerJob).value_or(1));
  for (const std::string key : {"torch", "jax", "xgboost"})
    if (policy.take(key) != nullptr) {
      const std::uint32_t nodes = out.nodes;
      out = *std::ranges::find(kRuntimes, key + "-distributed", &Runtime::name);
      out.nodes = nodes;
      policy.map(key).rest();
    }
  for (const std::string_view key : {"mpi", "flux"})
    if (policy.take(key) != nullptr)
      job.notes.refuse("unsupported", policy.path(key), "of the runtimes in a file this version reads those of torch, jax and xgboost",
                       "name the runtime deepspeed-distributed or mpi-distributed, or write an MPIJob");
  policy.rest();
  return out;
}

// A runtime of the file itself: its pod is the task's, as far as the TrainJob does not say otherwise.
Runtime read_runtime_of_file(const KubeRuntime& found, KubeJob& job) {
  KubeNotes notes{found.places.for_same_places(), found.places.for_same_places()};
  KubeJob part{job.settings, notes, job.spec, kNode, job.name_space};
  KubeFields spec(found.spec, "spec", notes);
  const Runtime runtime = read_policy_of_runtime(spec.map("mlPolicy"), part);
  const std::string role(runtime.targets.front().role);
  part.idle.insert(role);         // its command may be the TrainJob's
  spec.skip({"podGroupPolicy"});  // tasks begin together
  spec.skip({"mlPolicy"});
  KubeFields set = below(spec, kWhereJobsAre);
  set.skip({"network"});
  const auto jobs = set.list("replicatedJobs");
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    KubeFields one(jobs[i], item_path(set.path("replicatedJobs"), i), notes);
    if (one.text("name").value_or("") != runtime.targets.front().job) {
      notes.refuse("unsupported", one.path(), "is not run by this version, which runs the job " + std::string(runtime.targets.front().job),
                   "fetch data and model by a job of its own, or by the task's command");
      continue;
    }
    one.skip({"groupName", "replicas"});
    KubeFields of_job = below(one, kWhereJobsAre);
    of_job.skip({"completionMode", "completions", "parallelism"});  // numNodes
    read_pod_template(of_job.take("template"), of_job.path("template"), role, part);
    of_job.rest();
  }
  set.rest();
  job.roles = std::move(part.roles);
  job.graces = std::move(part.graces);
  std::erase_if(job.roles[role].words, [](const KubeText& word) { return word.path.empty(); });
  job.notes.errors.add_all(notes.errors.take());
  job.notes.ignored.add_all(notes.ignored.take());
  return runtime;
}

// Of the command and the arguments of a runtime those count that the TrainJob does not give.
void read_trainer(KubeFields& trainer, const std::string& role, KubeJob& job) {
  std::vector<KubeText>& words = job.roles[role].words;
  const auto of_command = [](const KubeText& word) { return word.path.find(".command[") != std::string::npos; };
  if (trainer.take("command") != nullptr) std::erase_if(words, of_command);
  if (trainer.take("args") != nullptr) std::erase_if(words, std::not_fn(of_command));
  const bool given = std::ranges::any_of(words, of_command);
  if (given) job.idle.insert(role);
  read_command(trainer, role, job);
  if (given) job.idle.erase(role);
  std::stable_partition(words.begin(), words.end(), of_command);
}

std::optional<Runtime> read_runtime(KubeFields reference, KubeJob& job) {
  KubeNotes& notes = job.notes;
  reference.skip({"apiGroup", "kind"});
  const std::string name = reference.text("name").value_or("");
  reference.rest();
  if (job.runtimes != nullptr)
    if (const auto own = job.runtimes->find(name); own != job.runtimes->end()) return read_runtime_of_file(own->second, job);
  std::vector<std::string> known;
  for (const Runtime& runtime : kRuntimes) known.emplace_back(runtime.name);
  const auto found = std::ranges::find(kRuntimes, name, &Runtime::name);
  if (found != kRuntimes.end()) return *found;
  notes.refuse("unsupported", reference.path("name"), "unknown runtime " + in_quotes(name) + ": this version knows " + one_of(known, "and"),
               "write the job as a dtrain/v1 job, whose command is that of the runtime");
  return std::nullopt;
}

// auto is the task's GPUs, without any its CPUs, rounded up; without both it is left to the command.
void read_processes(KubeFields& trainer, const char* unless_said, RoleSpec& role, KubeNotes& notes) {
  const std::string text = trainer.text("numProcPerNode").value_or(unless_said);
  const auto cpus = static_cast<std::uint32_t>((role.resources.cpu_millis + kMilliOfCpu - 1) / kMilliOfCpu);
  std::uint32_t count = 0;
  if (text == "auto") count = role.resources.gpus > 0 ? role.resources.gpus : cpus;
  else if (text == "gpu") count = role.resources.gpus;
  else if (text == "cpu") count = cpus;
  else if (text.size() <= 3 && text.find_first_not_of("0123456789") == std::string::npos)
    count = static_cast<std::uint32_t>(std::stoul(text));
  else
    return notes.refuse("out-of-range", trainer.path("numProcPerNode"), "must be auto, cpu, gpu or a number, not " + in_quotes(text),
                        "give the number of processes of each node");
  if (count > limits::kRanksPerTask)
    return notes.refuse("limit", trainer.path("numProcPerNode"), "is more than " + std::to_string(limits::kRanksPerTask), "use more nodes");
  role.nproc_per_node = count;
}

void read_override_of_role(KubeFields pod, const std::string& role, KubeJob& job) {
  read_pod_fields(pod, role, job);
  const auto containers = pod.list("containers");
  bool mounted = false;
  for (std::size_t i = 0; i < containers.size(); ++i) {
    KubeFields container(containers[i], item_path(pod.path("containers"), i), job.notes);
    if (container.text("name").value_or("") != kNode) {
      job.notes.ignore(container.path(), "is not started: each task runs the command of the trainer alone");
      continue;
    }
    read_variables(container, job.roles[role], job);
    read_mounts(&container, pod, job);
    mounted = true;
    container.rest();
  }
  if (!mounted) read_mounts(nullptr, pod, job);
  pod.skip({"volumes"});
  pod.rest();
}

void name_target(const std::string& path, const Runtime& runtime, KubeNotes& notes) {
  notes.ignore(path, "the runtime has no such target: only " + std::string(runtime.targets.front().job) +
                         (runtime.targets.size() > 1 ? " and " + std::string(runtime.targets.back().job) : ""));
}

void read_override(KubeFields part, const Runtime& runtime, KubeJob& job) {
  const auto named = part.list("targetJobs");
  const auto is_named = [&](const Target& target) {
    return named.empty() || std::ranges::any_of(named, [&](const YamlNode* node) {
             const YamlNode* name = node->find("name");
             return name != nullptr && name->text == target.job;
           });
  };
  if (std::ranges::none_of(runtime.targets, is_named)) return name_target(part.path(), runtime, job.notes);
  for (const Target& target : runtime.targets)
    if (is_named(target)) read_override_of_role(part.map("spec"), std::string(target.role), job);
  part.skip({"metadata", "spec"});
  part.rest();
}

void read_patch(KubeFields patch, const Runtime& runtime, KubeJob& job) {
  constexpr std::array<std::string_view, 3> kToJobs{"trainingRuntimeSpec", "template", "spec"}, kToPod{"template", "spec", "template"};
  patch.skip({"manager", "time"});
  KubeFields set = below(patch, kToJobs);
  const auto parts = set.list("replicatedJobs");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    KubeFields part(parts[i], item_path(set.path("replicatedJobs"), i), job.notes);
    const std::string name = part.text("name").value_or("");
    const auto target = std::ranges::find(runtime.targets, name, &Target::job);
    if (target == runtime.targets.end()) {
      name_target(part.path(), runtime, job.notes);
      continue;
    }
    KubeFields pod_template = below(part, kToPod);
    pod_template.skip({"metadata"});
    read_override_of_role(pod_template.map("spec"), std::string(target->role), job);
    pod_template.rest();
  }
  set.rest();
}

// The nodes of a job of mpirun wait for processes of its launcher, which may be a node itself. They are like it in all but that.
void add_nodes(const Runtime& runtime, std::uint32_t nodes, KubeJob& job) {
  const std::string main(runtime.targets.front().role), other(runtime.targets.back().role);
  add_waiting_role(main, other, job);
  RoleSpec &launcher = job.spec.roles[main], &node = job.spec.roles[other];
  node.replicas = node.min_replicas = runtime.launcher_works ? std::max(nodes - 1, 1u) : nodes;
  node.nproc_per_node = std::max(launcher.nproc_per_node, 1u);
  launcher.replicas = launcher.min_replicas = 1;
  launcher.nproc_per_node = 0;
  if (runtime.launcher_works) job.spec.options["launcherAsWorker"] = "true";
  else launcher.resources = {};
}

}  // namespace

void read_train_job(KubeFields& spec, KubeJob& job) {
  const std::optional<Runtime> known = read_runtime(spec.map("runtimeRef"), job);
  const Runtime runtime = known.value_or(kRuntimes.front());
  const std::string main(runtime.targets.front().role);
  RoleSpec& role = job.spec.roles[main];
  job.roles[main].path = spec.path("trainer");
  role.restart_policy = RestartPolicy::on_failure;
  job.spec.policy.clean_pod_policy = CleanPodPolicy::running;
  job.spec.policy.backoff_limit = kRetriesOfJob;
  if (known) job.spec.framework = runtime.framework;
  KubeFields trainer = spec.map("trainer");
  const auto nodes = static_cast<std::uint32_t>(trainer.number("numNodes", 1, limits::kTasksPerJob).value_or(runtime.nodes));
  role.replicas = role.min_replicas = nodes;
  if (known) {
    read_trainer(trainer, main, job);
  } else {  // it may have what is missing here
    trainer.skip({"command", "args", "env", "image", "workingDir"});
    job.roles[main].words = {{"", "", "unknown"}};
  }
  if (trainer.take("resourcesPerNode") != nullptr) read_kube_resources(trainer.map("resourcesPerNode"), role, job.notes);
  if (job.spec.framework == Framework::pytorch) {
    job.spec.options["rankStarter"] = "command";
    read_processes(trainer, "auto", role, job.notes);
  } else if (runtime.targets.size() > 1) {
    read_processes(trainer, "gpu", role, job.notes);
    add_nodes(runtime, nodes, job);
  }
  runtime.variables(role);
  trainer.rest();
  if (spec.take("initializer") != nullptr)
    job.notes.refuse("unsupported", spec.path("initializer"), "what runs before the tasks is not run by this version",
                     "fetch data and model by a job of its own, or by the task's command");
  for (const std::string_view key : {"podTemplateOverrides", "podSpecOverrides"}) {
    const auto parts = spec.list(key);
    for (std::size_t i = 0; i < parts.size(); ++i)
      read_override(KubeFields(parts[i], item_path(spec.path(key), i), job.notes), runtime, job);
  }
  const auto patches = spec.list("runtimePatches");
  for (std::size_t i = 0; i < patches.size(); ++i)
    read_patch(KubeFields(patches[i], item_path(spec.path("runtimePatches"), i), job.notes), runtime, job);
  spec.skip({"labels", "annotations"});
}

}  // namespace dtrain::job
