// TrainJob of Kubeflow's trainer: what runs is in its runtime, of which this file knows those that the trainer brings along. Sources:
// manifests/base/runtimes and pkg/runtime/framework/plugins/{torch,jax} of its releases 2.0 and 2.1.
#include <algorithm>
#include <array>

#include "common/base/limits.h"
#include "common/job/framework.h"
#include "common/job/kube_job.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

constexpr const char* kNode = "node";
constexpr std::uint32_t kRetriesOfJob = 6;  // of the Job that a JobSet makes
constexpr std::uint64_t kMilliOfCpu = 1000;

struct Runtime {
  std::string_view name;
  Framework framework;
  std::string_view not_yet = {};
};
constexpr std::string_view kNoMpirun = "this version reads no runtime of mpirun";
constexpr std::array kRuntimes{
    Runtime{"torch-distributed", Framework::pytorch},
    Runtime{"jax-distributed", Framework::jax},
    Runtime{"deepspeed-distributed", Framework::mpi, kNoMpirun},
    Runtime{"mpi-distributed", Framework::mpi, kNoMpirun},
    Runtime{"mlx-distributed", Framework::mpi, kNoMpirun},
};

const Runtime* read_runtime(KubeFields reference, KubeNotes& notes) {
  reference.skip({"apiGroup", "kind"});
  const std::string name = reference.text("name").value_or("");
  reference.rest();
  std::vector<std::string> known;
  for (const Runtime& runtime : kRuntimes)
    if (runtime.not_yet.empty()) known.emplace_back(runtime.name);
  const auto found = std::ranges::find(kRuntimes, name, &Runtime::name);
  if (found == kRuntimes.end())
    notes.refuse("unsupported", reference.path("name"),
                 "unknown runtime " + in_quotes(name) + ": this version knows " + one_of(known, "and"),
                 "write the job as a dtrain/v1 job, whose command is that of the runtime");
  else if (!found->not_yet.empty())
    notes.refuse("unsupported", reference.path("name"), std::string(found->not_yet) + ": " + name,
                 "write the job as an MPIJob; the runtimes that it knows are " + one_of(known, "and"));
  else return &*found;
  return nullptr;
}

// auto is the task's GPUs, without any its CPUs, rounded up; without both it is left to torchrun.
void read_processes(KubeFields& trainer, RoleSpec& role, KubeNotes& notes) {
  const std::string text = trainer.text("numProcPerNode").value_or("auto");
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

bool targets_node(KubeFields& part) {
  const auto targets = part.list("targetJobs");
  return targets.empty() || std::ranges::any_of(targets, [](const YamlNode* target) {
           const YamlNode* name = target->find("name");
           return name != nullptr && name->text == kNode;
         });
}

void read_override(KubeFields part, KubeJob& job) {
  if (!targets_node(part)) return job.notes.ignore(part.path(), "this version runs the tasks of target node alone");
  part.skip({"metadata"});
  KubeFields pod = part.map("spec");
  part.rest();
  read_pod_fields(pod, kNode, job);
  const auto containers = pod.list("containers");
  for (std::size_t i = 0; i < containers.size(); ++i) {
    KubeFields container(containers[i], item_path(pod.path("containers"), i), job.notes);
    if (container.text("name").value_or("") != kNode) {
      job.notes.ignore(container.path(), "is not started: each task runs the command of the trainer alone");
      continue;
    }
    read_variables(container, kNode, job);
    read_mounts(container, pod, job);
    container.rest();
  }
  pod.skip({"volumes"});
  pod.rest();
}

}  // namespace

void read_train_job(KubeFields& spec, KubeJob& job) {
  const Runtime* runtime = read_runtime(spec.map("runtimeRef"), job.notes);
  RoleSpec& role = job.spec.roles[kNode];
  job.roles[kNode].path = spec.path("trainer");
  role.restart_policy = RestartPolicy::on_failure;
  job.spec.policy.clean_pod_policy = CleanPodPolicy::running;
  job.spec.policy.backoff_limit = kRetriesOfJob;
  if (runtime != nullptr) job.spec.framework = runtime->framework;
  KubeFields trainer = spec.map("trainer");
  role.replicas = static_cast<std::uint32_t>(trainer.number("numNodes", 1, limits::kTasksPerJob).value_or(1));
  role.min_replicas = role.replicas;
  if (runtime != nullptr) {
    read_command(trainer, kNode, job);
  } else {  // it may have what is missing here
    trainer.skip({"command", "args", "env", "image", "workingDir"});
    job.roles[kNode].words = {{"", "", "unknown"}};
  }
  read_kube_resources(trainer.map("resourcesPerNode"), role, job.notes);
  if (job.spec.framework == Framework::pytorch) {
    job.spec.options["rankStarter"] = "command";
    read_processes(trainer, role, job.notes);
  }
  trainer.rest();
  if (spec.take("initializer") != nullptr)
    job.notes.refuse("unsupported", spec.path("initializer"), "what runs before the tasks is not run by this version",
                     "fetch data and model by a job of its own, or by the task's command");
  for (const std::string_view key : {"podTemplateOverrides", "podSpecOverrides"}) {
    const auto parts = spec.list(key);
    for (std::size_t i = 0; i < parts.size(); ++i) read_override(KubeFields(parts[i], item_path(spec.path(key), i), job.notes), job);
  }
  spec.skip({"labels", "annotations"});
}

}  // namespace dtrain::job
