// PyTorch: the variables that init_process_group's env:// reads, as torchrun sets them for its children, and those that torchrun itself
// reads (PET_*). Rules: docs/frameworks.md. Sources: torch/distributed/run.py and elastic/agent/server/local_elastic_agent.py of
// PyTorch; pkg/controller.v1/pytorch/{envvar,elastic}.go of Kubeflow's training operator, release 1.9.
#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/job/framework_roles.h"
#include "common/job/quantity.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

using Env = std::map<std::string, std::string>;

// With `command` the command starts the ranks, whatever it is, and is told of them as Kubeflow's operator does.
constexpr std::string_view kStarter = "rankStarter", kByCommand = "command";
constexpr std::array<std::string_view, 1> kStarters{kByCommand};
constexpr std::array kOptions{OptionRule{kStarter, kStarters}};

// Programs that start the ranks of a host themselves.
constexpr std::array<std::string_view, 3> kLaunchers{"torchrun", "accelerate", "deepspeed"};
constexpr std::array<std::string_view, 2> kLauncherModules{"torch.distributed.run", "torch.distributed.launch"};

// Of these, the ones that learn of the other tasks from their options alone, and by which options.
struct LauncherOptions {
  std::string_view program;
  std::array<std::string_view, 2> told_by;
};
constexpr std::array kTold{LauncherOptions{"accelerate", {"--num_machines", "--config_file"}},
                           LauncherOptions{"deepspeed", {"--hostfile", "-H"}}};

// Nobody waits for the master to run: the ranks wait for each other.
constexpr auto kPytorchRoles = with_node(ranks_start_together(kUsualRoles));

std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_launcher(const std::vector<std::string>& command) {
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (i == 0 && std::ranges::count(kLaunchers, name_of(word)) > 0) return true;
    if (word == "-m" && i + 1 < command.size()) return std::ranges::count(kLauncherModules, command[i + 1]) > 0;
    if (i > 0 && !word.starts_with('-')) return false;  // a script: what follows are its arguments
  }
  return false;
}

bool is_launcher(const RoleSpec& role) { return is_launcher(role.command); }

bool by_command(const JobSpec& spec) { return option_of(spec, kStarter) == kByCommand; }

bool starts_ranks(const JobSpec& spec, const RoleSpec& role) { return role.nproc_per_node > 0 && !by_command(spec) && !is_launcher(role); }

void add_ranks(const World& world, std::uint32_t rank, std::uint32_t of_task, Env& env) {
  env["RANK"] = env["ROLE_RANK"] = std::to_string(world.before + rank);
  env["LOCAL_RANK"] = std::to_string(rank);
  env["LOCAL_WORLD_SIZE"] = std::to_string(of_task);
}

bool is_elastic(const RoleSpec& role) { return role.min_replicas < role.replicas; }

// How many tasks of rank roles the job has: "3", or "1:4" if it may shrink.
std::string node_range(const JobSpec& spec) {
  std::uint64_t least = 0, most = 0;
  for (const auto& [name, role] : spec.roles) {
    if (!is_rank_role(spec, name)) continue;
    least += role.min_replicas;
    most += role.replicas;
  }
  return least == most ? std::to_string(most) : std::to_string(least) + ":" + std::to_string(most);
}

// For a command that is torchrun: any of its options is a variable PET_<OPTION>. Its arguments win.
void add_torchrun(const JobSpec& spec, const ClusterView& cluster, const RoleSpec& role, const World& world, Env& env) {
  const TaskAddress& first = cluster.tasks.at(world.first);
  env["PET_NNODES"] = is_elastic(role) ? node_range(spec) : std::to_string(world.nodes);
  const std::uint32_t each = role.nproc_per_node > 0 ? role.nproc_per_node : std::max(role.resources.gpus, 1u);
  env["PET_NPROC_PER_NODE"] = by_command(spec) && role.nproc_per_node == 0 ? "auto" : std::to_string(each);
  if (is_elastic(role)) {
    env["PET_RDZV_BACKEND"] = "c10d";
    env["PET_RDZV_ENDPOINT"] = first.text();
    env["PET_RDZV_ID"] = cluster.job_name + "-" + std::to_string(cluster.generation);
    if (spec.policy.backoff_limit) env["PET_MAX_RESTARTS"] = std::to_string(*spec.policy.backoff_limit);
    return;
  }
  env["PET_NODE_RANK"] = std::to_string(world.nodes_before);
  env["PET_MASTER_ADDR"] = first.host;
  env["PET_MASTER_PORT"] = std::to_string(first.port);
}

void add_environment(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, Env& env) {
  const auto role = spec.roles.find(task.role);
  if (role == spec.roles.end() || !is_rank_role(spec, task.role) || !cluster.tasks.contains(task)) return;
  const World world = world_of(spec, cluster, task);
  const TaskAddress& first = cluster.tasks.at(world.first);
  env["MASTER_ADDR"] = first.host;
  env["MASTER_PORT"] = std::to_string(first.port);
  env["WORLD_SIZE"] = env["ROLE_WORLD_SIZE"] = std::to_string(world.size);
  env["GROUP_RANK"] = std::to_string(world.nodes_before);
  env["GROUP_WORLD_SIZE"] = std::to_string(world.nodes);
  env["ROLE_NAME"] = "default";  // torchrun's, which calls its children so whatever they do
  env["TORCHELASTIC_RESTART_COUNT"] = std::to_string(cluster.generation > 0 ? cluster.generation - 1 : 0);
  env["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(spec.policy.backoff_limit.value_or(spec.policy.failure_threshold.count));
  env["TORCHELASTIC_RUN_ID"] = cluster.job_name;
  // No agent keeps a store beside the ranks: rank 0 opens it.
  env["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  env["NCCL_ASYNC_ERROR_HANDLING"] = env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1";
  const std::uint32_t ranks = ranks_of_task(spec, task);
  if (ranks > 1) env["OMP_NUM_THREADS"] = "1";
  add_ranks(world, 0, starts_ranks(spec, role->second) ? ranks : 1, env);
  if (by_command(spec)) env["RANK"] = env["GROUP_RANK"];
  if (by_command(spec) || is_launcher(role->second)) add_torchrun(spec, cluster, role->second, world, env);
}

void add_rank_environment(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, std::vector<Env>& ranks) {
  const World world = world_of(spec, cluster, task);
  const auto count = static_cast<std::uint32_t>(ranks.size());
  for (std::uint32_t rank = 0; rank < count; ++rank) add_ranks(world, rank, count, ranks[rank]);
}

// A value of the user's would be the same for all ranks of a task.
void check_variables_of_ranks(const std::string& path, const Env& env, std::vector<FileError>& errors) {
  Env own;
  add_ranks({}, 0, 1, own);
  for (const auto& entry : own)
    if (env.contains(entry.first))
      errors.push_back({"conflict", "", 0, path + "." + entry.first, "is different for each of the ranks that nprocPerNode starts",
                        "leave it out, or leave out nprocPerNode"});
}

void check_pytorch(const JobSpec& spec, std::vector<FileError>& errors) {
  check_usual_roles(spec, errors);
  const bool any_ranks = std::ranges::any_of(spec.roles, [&](const auto& entry) { return starts_ranks(spec, entry.second); });
  if (any_ranks) check_variables_of_ranks("spec.env", spec.env, errors);
  for (const auto& [name, role] : spec.roles) {
    const std::string path = "spec.roles." + name;
    if (starts_ranks(spec, role)) check_variables_of_ranks(path + ".env", role.env, errors);
    for (const RoleOverride& differs : role.overrides) {
      const std::string at = path + ".overrides." + format_range(differs.first, differs.last);
      if (starts_ranks(spec, role)) check_variables_of_ranks(at + ".env", differs.env, errors);
      if (!differs.command.empty() && is_launcher(differs.command) != is_launcher(role))
        errors.push_back({"conflict", "", 0, at + ".command", "starts the ranks of its task in another way than the role's command",
                          "use torchrun or the like in all commands of a role, or in none"});
    }
    if (role_rules(spec.framework, name).serves)
      errors.push_back({"conflict", "", 0, path, "a pytorch job has no " + name + ": every process is a rank",
                        "call the role master, which has rank 0, or use framework: generic"});
    if (role.resources.gpus > 0 && role.nproc_per_node > role.resources.gpus)
      errors.push_back({"conflict", "", 0, path + ".nprocPerNode",
                        "is " + std::to_string(role.nproc_per_node) + ", but a task has " + std::to_string(role.resources.gpus) +
                            (role.resources.gpus == 1 ? " GPU" : " GPUs") + ": two ranks would share one",
                        "write nprocPerNode: gpu, or ask for more in resources.gpus"});
  }
}

// Each task would train for itself.
void warn_of_launcher(const std::string& path, const RoleSpec& role, std::uint64_t tasks, std::vector<std::string>& warnings) {
  const auto known = std::ranges::find(kTold, name_of(role.command.empty() ? "" : role.command.front()), &LauncherOptions::program);
  if (known == kTold.end() || tasks < 2) return;
  const auto tells = [&](const std::string& word) {
    return std::ranges::any_of(known->told_by, [&](std::string_view option) {
      return word == option || (word.starts_with(option) && word[option.size()] == '=');
    });
  };
  if (std::ranges::any_of(role.command, tells)) return;
  warnings.push_back(path + ".command: " + std::string(known->program) + " is not told of the other tasks (" +
                     std::string(known->told_by.front()) + "), so each would train alone; docs/launchers.md");
}

void warn_pytorch(const JobSpec& spec, std::vector<std::string>& warnings) {
  constexpr std::uint64_t kWholeCpu = 1000;
  std::uint64_t rank_tasks = 0;
  for (const auto& [name, role] : spec.roles)
    if (is_rank_role(spec, name)) rank_tasks += role.replicas;
  for (const auto& [name, role] : spec.roles) {
    const std::string path = "spec.roles." + name;
    if (is_rank_role(spec, name)) warn_of_launcher(path, role, rank_tasks, warnings);
    if (!is_rank_role(spec, name) && !role_rules(spec.framework, name).serves && role_rules(spec.framework, name).ends)
      warnings.push_back(path + ": its tasks are no ranks, and get neither RANK nor MASTER_ADDR; ranks are those of master and worker");
    if (role.nproc_per_node > 1 && !by_command(spec) && role.resources.cpu_millis > 0 &&
        role.nproc_per_node * kWholeCpu > role.resources.cpu_millis)
      warnings.push_back(path + ".nprocPerNode: " + std::to_string(role.nproc_per_node) + " ranks share fewer CPUs (resources.cpus)");
    if (role.nproc_per_node == 0 && role.resources.gpus > 1 && !by_command(spec) && !is_launcher(role) && is_rank_role(spec, name))
      warnings.push_back(path + ": each task is one rank with " + std::to_string(role.resources.gpus) +
                         " GPUs; nprocPerNode: gpu starts one rank for each");
  }
}

}  // namespace

const FrameworkRules kPytorch{.roles = kPytorchRoles,
                              .options = kOptions,
                              .collective = Collective::always,
                              .environment = add_environment,
                              .rank_environment = add_rank_environment,
                              .starts_ranks = starts_ranks,
                              .ranks = ranks_of_rank_role,
                              .ranks_in_tasks = true,
                              .warm = true,
                              // A rank that is refused by rank 0, which does not listen yet, sleeps for a second (tryConnect in
                              // torch/csrc/distributed/c10d/socket.cpp).
                              .first_leads = true,
                              .error_file = "TORCHELASTIC_ERROR_FILE",
                              .check = check_pytorch,
                              .warn = warn_pytorch};

}  // namespace dtrain::job
