// Renders what one task is started with. Order of the environment, later wins: the host's basics, passEnv, the
// framework's, dtrain's, the job's env, the role's env.
#include "common/base/limits.h"
#include "common/job/cluster_spec.h"
#include "common/job/framework.h"
#include "common/job/templates.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

using Env = std::map<std::string, std::string>;

constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";
constexpr const char* kDefaultLang = "C.UTF-8";

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const auto& part : parts) out += (out.empty() ? "" : ",") + part;
  return out;
}

// HOME and SHELL are added where the task is launched, because only that host knows its user's entry.
void add_basics(const TaskView& task, Env& env) {
  if (!task.in_image) env["PATH"] = kDefaultPath;
  if (!task.user.empty()) env["USER"] = env["LOGNAME"] = task.user;
  env["LANG"] = kDefaultLang;
  for (const auto& [name, value] : task.pass_env)
    if (!task.in_image || name != "PATH") env[name] = value;
}

void add_framework(const JobSpec& spec, const ClusterView& cluster, const TaskView& task, Env& env) {
  rules_of(spec.framework).environment(spec, cluster, task.task, env);
  env["PYTHONUNBUFFERED"] = "1";
  if (!task.interface.empty()) env["GLOO_SOCKET_IFNAME"] = env["NCCL_SOCKET_IFNAME"] = task.interface;
  // An empty list hides every GPU of the other maker, since the task was given none of them. HIP reads
  // CUDA_VISIBLE_DEVICES too, and an empty one hides all GPUs (ROCclr: "GPU isolation").
  env["CUDA_VISIBLE_DEVICES"] = joined(task.gpu_ids.cuda);
  env["ROCR_VISIBLE_DEVICES"] = joined(task.gpu_ids.rocr);
  if (task.gpu_ids.cuda_by_number) env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
}

void add_dtrain(const JobSpec& spec, const ClusterView& cluster, const TaskView& task, Env& env) {
  env["DTRAIN_JOB"] = cluster.job_name;
  env["DTRAIN_TASK"] = task.task.text();
  env["DTRAIN_ROLE"] = task.task.role;
  env["DTRAIN_INDEX"] = std::to_string(task.task.index);
  env["DTRAIN_NODE"] = task.node;
  env["DTRAIN_GENERATION"] = std::to_string(cluster.generation);
  if (spec.checkpoint) env["DTRAIN_CHECKPOINT_DIR"] = spec.checkpoint->dir;
  if (cluster.restore) {
    env["DTRAIN_RESTORE_FROM"] = cluster.restore->path;
    env["DTRAIN_RESTORE_STEP"] = std::to_string(cluster.restore->step);
  }
  if (!task.notify_socket.empty()) env["NOTIFY_SOCKET"] = task.notify_socket;
}

Status add_users(const Env& from, TemplateRenderer& renderer, Env& env) {
  for (const auto& [name, text] : from) {
    auto value = renderer.render(text);
    if (!value) return fail(std::move(value.error()));
    env[name] = std::move(*value);
  }
  return {};
}

// The kernel refuses larger arguments with an error that users do not understand.
Status check_sizes(const Rendered& rendered, const TaskId& task) {
  std::size_t total = 0;
  const auto too_long = [&](std::size_t bytes) {
    total += bytes + 1;
    return bytes + 1 > limits::kArgumentBytes;
  };
  const auto refuse = [&](const std::string& what, std::size_t most) {
    return fail(ErrorCode::limit, "could not start " + task.text() + ": " + what + " has more than " + std::to_string(most) + " bytes",
                "pass it through a file");
  };
  for (const auto& argument : rendered.argv)
    if (too_long(argument.size())) return refuse("argument " + in_quotes(argument), limits::kArgumentBytes);
  for (const auto& [name, value] : rendered.env)
    if (too_long(name.size() + 1 + value.size())) return refuse("variable " + in_quotes(name), limits::kArgumentBytes);
  if (total > limits::kArgumentsTotalBytes) return refuse("its command with its environment", limits::kArgumentsTotalBytes);
  return {};
}

}  // namespace

std::vector<Env> rank_variables(const JobSpec& spec, const ClusterView& cluster, const TaskId& task) {
  const auto role = spec.roles.find(task.role);
  const FrameworkRules& rules = rules_of(spec.framework);
  std::vector<Env> ranks;
  if (role == spec.roles.end() || !cluster.tasks.contains(task) || !rules.starts_ranks(spec, role->second)) return ranks;
  ranks.resize(ranks_of_task(spec, task));
  rules.rank_environment(spec, cluster, task, ranks);
  return ranks;
}

Result<Rendered> render(const JobSpec& spec, const ClusterView& cluster, const TaskView& task) {
  const auto role = spec.roles.find(task.task.role);
  if (role == spec.roles.end() || !cluster.tasks.contains(task.task))
    return fail(ErrorCode::invalid, "could not render " + task.task.text() + ": it is no task of generation " +
                                        std::to_string(cluster.generation) + " of job " + cluster.job_name);
  Rendered out;
  add_basics(task, out.env);
  add_framework(spec, cluster, task, out.env);
  add_dtrain(spec, cluster, task, out.env);
  Env users;
  TemplateRenderer renderer(spec, cluster, task, out.env);
  for (const auto& argument : command_of(role->second, task.task.index)) {
    auto value = renderer.render(argument);
    if (!value) return fail(std::move(value.error()));
    out.argv.push_back(std::move(*value));
  }
  rules_of(spec.framework).command(spec, task.task, out.argv);
  const RoleOverride* differs = override_of(role->second, task.task.index);
  for (const Env* from : {&spec.env, &role->second.env, differs == nullptr ? nullptr : &differs->env})
    if (from == nullptr) continue;
    else if (auto added = add_users(*from, renderer, users); !added) return fail(std::move(added.error()));
  for (auto& [name, value] : users) out.env[name] = std::move(value);
  if (auto sized = check_sizes(out, task.task); !sized) return fail(std::move(sized.error()));
  return out;
}

}  // namespace dtrain::job
