// The table of manifests' kinds, and what each has besides its replica specs. Sources: api/v1/paddlejob_types.go of paddle-operator;
// pkg/apis/kubeflow.org/v1/*_types.go and
// *_defaults.go of Kubeflow's training operator, release 1.9; of MXJob release 1.5. docs/manifests.md has the same table for users.
#include <algorithm>
#include <array>
#include <limits>

#include "common/base/limits.h"
#include "common/job/kube_job.h"
#include "common/job/names.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

using enum RestartPolicy;

constexpr std::array kTfRoles{KindRole{"Chief", "chief"}, KindRole{"Master", "master"}, KindRole{"PS", "ps"}, KindRole{"Worker", "worker"},
                              KindRole{"Evaluator", "evaluator"}};
constexpr std::array kTorchRoles{KindRole{"Master", "master", on_failure}, KindRole{"Worker", "worker", on_failure}};
constexpr std::array kBoostRoles{KindRole{"Master", "master"}, KindRole{"Worker", "worker"}};
constexpr std::array kJaxJobRoles{KindRole{"Worker", "worker"}};
constexpr std::array kMxRoles{KindRole{"Scheduler", "scheduler"}, KindRole{"Server", "server"}, KindRole{"Worker", "worker"}};
constexpr std::array kMpiJobRoles{KindRole{"Launcher", "launcher"}, KindRole{"Worker", "worker", never, true}};

constexpr std::array kPaddleOperatorRoles{KindRole{"ps", "ps"}, KindRole{"worker", "worker"}};

void read_success_policy(KubeFields& spec, KubeJob& job) {
  const auto word = spec.text("successPolicy");
  if (!word || word->empty() || *word == "Default") return;
  if (const auto policy = from_word<SuccessPolicy>(*word)) job.spec.policy.success_policy = *policy;
  else
    job.notes.refuse("out-of-range", spec.path("successPolicy"), "must be Default or AllWorkers, not " + in_quotes(*word),
                     "choose one of them");
}

void read_tf(KubeFields& spec, KubeJob& job) {
  read_success_policy(spec, job);
  job.spec.policy.enable_dynamic_worker = spec.flag("enableDynamicWorker").value_or(false);
}

// What the operator passes on to torchrun: any of its options is a variable PET_<OPTION>.
void read_rendezvous(KubeFields& elastic, std::map<std::string, std::string>& env) {
  const auto host = elastic.text("rdzvHost"), port = elastic.text("rdzvPort");
  if (host) env["PET_RDZV_ENDPOINT"] = *host + (port ? ":" + *port : "");
  for (const auto& [key, name] :
       {std::pair("rdzvBackend", "PET_RDZV_BACKEND"), std::pair("rdzvId", "PET_RDZV_ID"), std::pair("maxRestarts", "PET_MAX_RESTARTS")})
    if (const auto value = elastic.text(key)) env[name] = *value;
  if (elastic.flag("standalone").value_or(false)) env["PET_STANDALONE"] = "";
  std::string conf;
  const auto settings = elastic.list("rdzvConf");
  for (std::size_t i = 0; i < settings.size(); ++i) {
    KubeFields setting(settings[i], item_path(elastic.path("rdzvConf"), i), elastic.notes());
    const auto key = setting.text("key"), value = setting.text("value");
    conf += (conf.empty() ? "" : ",") + key.value_or("") + "=" + value.value_or("");
    setting.rest();
  }
  if (!conf.empty()) env["PET_RDZV_CONF"] = conf;
}

void set_ranks(const std::string& text, const std::string& path, KubeJob& job) {
  if (text == "auto" || text == "gpu" || text == "cpu") {
    // torchrun counts on the host itself; it is told the word.
    for (auto& entry : job.spec.roles)
      if (text != "auto") entry.second.env["PET_NPROC_PER_NODE"] = text;
    return;
  }
  const bool number = !text.empty() && text.size() <= 3 && text.find_first_not_of("0123456789") == std::string::npos;
  const std::uint32_t ranks = number ? static_cast<std::uint32_t>(std::stoul(text)) : 0;
  if (ranks < 1 || ranks > limits::kRanksPerTask)
    return job.notes.refuse(
        "out-of-range", path,
        "must be auto, gpu, cpu or a number from 1 to " + std::to_string(limits::kRanksPerTask) + ", not " + in_quotes(text),
        "give the number of processes of each replica");
  for (auto& entry : job.spec.roles) entry.second.nproc_per_node = ranks;
}

void read_elastic(KubeFields elastic, KubeJob& job) {
  constexpr std::int64_t kMost = limits::kTasksPerJob;
  const auto worker = job.spec.roles.find("worker");
  const auto least = elastic.number("minReplicas", 1, kMost), most = elastic.number("maxReplicas", 1, kMost);
  if (worker == job.spec.roles.end()) return elastic.rest();
  RoleSpec& role = worker->second;
  if (least && *least <= role.replicas) role.min_replicas = static_cast<std::uint32_t>(*least);
  else if (least)
    job.notes.refuse("conflict", elastic.path("minReplicas"),
                     "is " + std::to_string(*least) + ", more than the " + std::to_string(role.replicas) + " replicas of Worker",
                     "lower it, or raise replicas");
  if (most && *most < role.replicas)
    job.notes.refuse("conflict", elastic.path("maxReplicas"),
                     "is " + std::to_string(*most) + ", fewer than the " + std::to_string(role.replicas) + " replicas of Worker",
                     "raise it, or lower replicas");
  if (least || most)
    role.env["PET_NNODES"] = std::to_string(least.value_or(role.replicas)) + ":" + std::to_string(most.value_or(role.replicas));
  if (const auto ranks = elastic.text("nProcPerNode")) set_ranks(*ranks, elastic.path("nProcPerNode"), job);
  read_rendezvous(elastic, role.env);
  role.env.try_emplace("PET_RDZV_BACKEND", "c10d");
  role.env.try_emplace("PET_RDZV_ENDPOINT", "{host:worker:0}");  // also of a job that cannot shrink, which may be told of more workers
  elastic.rest();
}

void read_torch(KubeFields& spec, KubeJob& job) {
  job.spec.options["rankStarter"] = "command";
  if (const auto ranks = spec.text("nprocPerNode")) set_ranks(*ranks, spec.path("nprocPerNode"), job);
  if (spec.take("elasticPolicy") != nullptr) read_elastic(spec.map("elasticPolicy"), job);
}

void read_mx(KubeFields& spec, KubeJob& job) {
  read_success_policy(spec, job);
  if (const auto mode = spec.text("jobMode"); mode && *mode != "MXTrain" && !mode->empty())
    job.notes.refuse("unsupported", spec.path("jobMode"), "this version reads MXTrain only, not " + in_quotes(*mode),
                     "run the tuner by a generic job");
}

void read_mx_role(KubeFields& replica, const std::string& role, KubeJob& job) {
  if (const auto label = replica.text("label")) job.spec.options[role + "Label"] = *label;
  KubeNotes nowhere = job.notes;
  KubeFields annotations = KubeFields(replica.take("template"), "", nowhere).map("metadata").map("annotations");
  if (const auto label = annotations.text("tuner-server-key")) job.spec.options[role + "Label"] = *label;
}

// The first version has one template for all tasks, and so many processing units in all, or so many workers.
bool read_first_mpi(KubeFields& spec, KubeJob& job) {
  if (spec.take("template") == nullptr || spec.take("mpiReplicaSpecs") != nullptr) return false;
  constexpr std::int64_t kMost = limits::kTasksPerJob, kMostEach = limits::kRanksPerTask;
  constexpr std::int64_t kEachUnlessSaid = 8;  // as the operator was deployed
  constexpr std::uint32_t kRetriesUnlessSaid = 6;
  constexpr std::uint64_t kMilliOfCpu = 1000;
  RoleSpec& launcher = job.spec.roles["launcher"];
  launcher.min_replicas = 1;
  launcher.restart_policy = on_failure;
  job.roles["launcher"].path = spec.path("template");
  job.pod_restarts = true;
  job.spec.policy.backoff_limit = kRetriesUnlessSaid;
  read_pod_template(spec.take("template"), spec.path("template"), "launcher", job);
  add_waiting_role("launcher", "worker", job);
  launcher.resources = {};
  RoleSpec& worker = job.spec.roles["worker"];
  worker.restart_policy = on_failure;
  auto workers = spec.number("replicas", 1, kMost);
  std::int64_t units = worker.resources.gpus;
  for (const std::string word : {"gpus", "processingUnits"}) {
    const auto all = spec.number(word, 1, kMost * kMostEach), each = spec.number(word + "PerNode", 1, kMostEach);
    if (!all) continue;
    units = std::min(*all, each.value_or(kEachUnlessSaid));
    workers = *all / units;
    if (!each) job.notes.ignore(spec.path(word), word + "PerNode is not given: a worker has up to " + std::to_string(kEachUnlessSaid));
    if (*all % units > 0)
      job.notes.refuse("conflict", spec.path(word), "is no multiple of " + word + "PerNode, " + std::to_string(units),
                       "change one of them");
  }
  if (!workers) job.notes.refuse("missing", spec.path("replicas"), "is required: the number of workers", "give it, or processingUnits");
  if (spec.text("processingResourceType").value_or("") == "cpu")
    worker.resources.cpu_millis = static_cast<std::uint64_t>(units) * kMilliOfCpu;
  else worker.resources.gpus = static_cast<std::uint32_t>(units);
  worker.replicas = worker.min_replicas = static_cast<std::uint32_t>(workers.value_or(1));
  worker.nproc_per_node = static_cast<std::uint32_t>(std::max<std::int64_t>(units, 1));
  return true;
}

void read_mpi(KubeFields& spec, KubeJob& job) {
  const auto worker = job.spec.roles.find("worker");
  const auto slots = spec.number("slotsPerWorker", 1, limits::kRanksPerTask);
  if (worker != job.spec.roles.end()) {
    std::uint32_t& ranks = worker->second.nproc_per_node;
    ranks = static_cast<std::uint32_t>(slots.value_or(std::max(ranks, 1u)));
  }
  for (const std::string_view key : {"mpiDistribution", "mpiImplementation"})
    if (const auto word = spec.text(key)) job.spec.options["implementation"] = *word == "IntelMPI" ? "Intel" : *word;
  if (spec.flag("runLauncherAsWorker").value_or(false)) job.spec.options["launcherAsWorker"] = "true";
  spec.skip({"launcherCreationPolicy", "sshAuthMountPath"});  // the launcher starts after the workers, and there are no keys
}

// What paddle-operator gives to workers without ps, beside what paddle.distributed.launch reads in this version.
void add_trainers(RoleSpec& worker) {
  std::string hosts;
  for (std::uint32_t i = 0; i < worker.replicas; ++i) hosts += (i > 0 ? ",{ip:worker:" : "{ip:worker:") + std::to_string(i) + "}";
  worker.env["TRAINING_ROLE"] = worker.env["PADDLE_TRAINING_ROLE"] = "TRAINER";
  worker.env["PADDLE_TRAINER_ID"] = "{task.index}";
  worker.env["PADDLE_TRAINERS"] = hosts;
  worker.env["PADDLE_TRAINERS_NUM"] = std::to_string(worker.replicas);
  worker.env["PADDLE_TRAINER_ENDPOINTS"] = "{hosts:worker}";
  worker.env["PADDLE_PORT"] = "{task.port}";
}

// paddle-operator: its words for cleanPodPolicy are other ones.
void read_paddle_operator(KubeFields& spec, KubeJob& job) {
  job.own_clean_pod_policy = true;
  const std::string word = spec.text("cleanPodPolicy").value_or("");
  if (word == "Always") job.spec.policy.clean_pod_policy = CleanPodPolicy::all;
  else if (word == "OnCompletion" || word == "OnFailure")
    job.notes.ignore(spec.path("cleanPodPolicy"), "tasks are ended or left after any end of the job, not after some: they are left");
  else if (!word.empty() && word != "Never")
    job.notes.refuse("out-of-range", spec.path("cleanPodPolicy"),
                     "must be Always, Never, OnFailure or OnCompletion, not " + in_quotes(word), "choose one of them");
  if (spec.take("heter") != nullptr)
    job.notes.refuse("unsupported", spec.path("heter"), "this version knows no workers of a second kind in a paddle job",
                     "leave it out, or write the job as a dtrain/v1 job of framework generic");
  const auto worker = job.spec.roles.find("worker");
  if (worker != job.spec.roles.end() && !job.spec.roles.contains("ps")) add_trainers(worker->second);
  const bool said = spec.map("worker").map("template").map("spec").take("restartPolicy") != nullptr;
  if (worker != job.spec.roles.end() && !said && spec.text("intranet") == "Service") worker->second.restart_policy = on_failure;
  spec.skip({"intranet"});  // tasks are given addresses, however pods would find each other
}

constexpr std::array kKinds{
    ManifestKind{"TFJob", "tfReplicaSpecs", "tensorflow", Framework::tensorflow, kTfRoles, read_tf},
    ManifestKind{"PyTorchJob", "pytorchReplicaSpecs", "pytorch", Framework::pytorch, kTorchRoles, read_torch},
    ManifestKind{"XGBoostJob", "xgbReplicaSpecs", "xgboost", Framework::xgboost, kBoostRoles},
    ManifestKind{"PaddleJob", "paddleReplicaSpecs", "paddle", Framework::paddle, kTorchRoles},
    ManifestKind{"JAXJob", "jaxReplicaSpecs", "jax", Framework::jax, kJaxJobRoles},
    ManifestKind{"MXJob", "mxReplicaSpecs", "mxnet", Framework::mxnet, kMxRoles, read_mx, read_mx_role},
    ManifestKind{.kind = "MPIJob",
                 .replica_specs = "mpiReplicaSpecs",
                 .container = "mpi",
                 .framework = Framework::mpi,
                 .roles = kMpiJobRoles,
                 .own = read_mpi,
                 .else_first = true,
                 .older = read_first_mpi},
    ManifestKind{.kind = "PaddleJob",
                 .replica_specs = "",
                 .container = "paddle",
                 .framework = Framework::paddle,
                 .roles = kPaddleOperatorRoles,
                 .own = read_paddle_operator,
                 .group = "batch.paddlepaddle.org",
                 .else_first = true},
};

}  // namespace

std::span<const ManifestKind> manifest_kinds() { return kKinds; }

const ManifestKind* manifest_kind(std::string_view kind, std::string_view group) {
  const std::string_view name = kind == "TfJob" ? "TFJob" : kind;
  const ManifestKind* usual = nullptr;
  for (const ManifestKind& known : kKinds) {
    if (known.kind != name) continue;
    if (!known.group.empty() && known.group == group) return &known;
    if (known.group.empty()) usual = &known;
  }
  return usual;
}

}  // namespace dtrain::job
