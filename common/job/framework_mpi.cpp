// MPI: a launcher runs mpirun, whose daemons and ranks run in the workers' tasks; so the names of hosts are those of tasks. In place of
// ssh mpirun calls dtrain-rsh (docs/launching.md). Names of variables: pkg/controller/mpi_job_controller.go of mpi-operator, v2beta1.
#include <set>

#include "common/job/framework_roles.h"

namespace dtrain::job {

namespace {

constexpr std::string_view kLauncher = "launcher", kMpiWorker = "worker";
constexpr std::string_view kImplementation = "implementation", kLauncherWorks = "launcherAsWorker";
constexpr std::string_view kOpenMpi = "OpenMPI", kIntel = "Intel", kMpich = "MPICH";
constexpr std::array kImplementations{kOpenMpi, kIntel, kMpich};
constexpr std::array<std::string_view, 2> kFlags{"true", "false"};
constexpr std::array kMpiOptions{OptionRule{kImplementation, kImplementations}, OptionRule{kLauncherWorks, kFlags}};
constexpr const char* kAgent = "dtrain-rsh";
constexpr const char* kLaunchesAtOnce = "32";  // of limits::kControlConnectionsOfTasks

constexpr std::array kMpiRoles{
    RoleRules{.name = kLauncher, .most = 1, .leads = true, .stateful = true, .rank = true, .start = 1, .order = 0},
    RoleRules{.name = kMpiWorker, .ends = false, .waits = true, .rank = true, .start = 0, .order = 1},
};

// The hostfile is written beside what the launcher starts with, anew for each start; no file that is there is written through. mpirun
// finds dtrain-rsh in PATH: only its host knows where that is. Where the command names a file that mpi-operator mounts, it gets the path of
// the one that is written here: the hostfile, and the script by which elastic Horovod asks for hosts. horovodrun calls ssh by that name.
constexpr const char* kWriteHostfile =
    "PATH=$PATH${DTRAIN_RSH:+:${DTRAIN_RSH%/*}}; f=\"$PWD/$DTRAIN_HOSTFILE\"; "
    "for v in OMPI_MCA_orte_default_hostfile I_MPI_HYDRA_HOST_FILE HYDRA_HOST_FILE; do eval \"test -z \\\"\\${$v+x}\\\" || $v=\\$f\"; "
    "done; "
    "rm -rf -- \"$f\" \"$f.sh\" \"$f.bin\" && (set -C; printf '%s' \"$DTRAIN_HOSTS\" >\"$f\"; "
    "{ echo '#!/bin/sh'; sed -n 's/ slots=/:/; s/^/echo /p' \"$f\"; } >\"$f.sh\") && chmod 700 \"$f.sh\" || exit; "
    "put() { b=; while case $a in *\"$1\"*) ;; *) false ;; esac do b=$b${a%%\"$1\"*}$2; a=${a#*\"$1\"}; done; a=$b$a; }; "
    "for a; do shift; put /etc/mpi/hostfile \"$f\"; put /etc/mpi/discover_hosts.sh \"$f.sh\"; set -- \"$@\" \"$a\"; done; "
    "case ${1##*/} in horovodrun) mkdir \"$f.bin\" && ln -s -- \"$DTRAIN_RSH\" \"$f.bin/ssh\" && PATH=$f.bin:$PATH || exit ;; esac; "
    "exec \"$@\"";

bool has_ranks(const JobSpec& spec, const TaskId& task) {
  return task.role == kMpiWorker || (task.role == kLauncher && option_of(spec, kLauncherWorks) == "true");
}

// The slots of the hostfile, which mpirun fills in its order unless an option says otherwise.
std::uint32_t slots_of(const JobSpec& spec, const TaskId& task) {
  return has_ranks(spec, task) ? ranks_of_task(spec, {std::string(kMpiWorker), 0}) : 0;
}

// Whether ranks of two tasks run on one host. Open MPI names their files in shared memory by the host and the rank within the task, so
// ranks of two tasks would take each other's.
bool share_a_host(const JobSpec& spec, const ClusterView& cluster) {
  std::set<std::string> hosts;
  for (const auto& [task, address] : cluster.tasks)
    if (has_ranks(spec, task) && !hosts.insert(address.host).second) return true;
  return false;
}

// With the job's name, so that no machine has such a name: mpirun would take it for itself, and start ranks beside the launcher.
std::string hosts_of(const JobSpec& spec, const ClusterView& cluster) {
  const std::string_view implementation = option_of(spec, kImplementation);
  const std::string separator = implementation == kIntel || implementation == kMpich ? ":" : " slots=";
  std::string out;
  for (const auto& entry : cluster.tasks) {
    const TaskId& task = entry.first;
    if (const std::uint32_t slots = slots_of(spec, task); slots > 0)
      out += task.text() + "." + cluster.job_name + separator + std::to_string(slots) + "\n";
  }
  return out;
}

void add_mpi(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, std::map<std::string, std::string>& env) {
  if (task.role != kLauncher || !cluster.tasks.contains(task)) return;
  const std::string file = ".dtrain-hosts-" + cluster.job_name;
  env["DTRAIN_HOSTS"] = hosts_of(spec, cluster);
  env["DTRAIN_HOSTFILE"] = file;
  const std::string_view implementation = option_of(spec, kImplementation);
  if (implementation == kIntel) {
    env["I_MPI_HYDRA_HOST_FILE"] = file;
    env["I_MPI_HYDRA_BOOTSTRAP"] = "ssh";
    env["I_MPI_HYDRA_BOOTSTRAP_EXEC"] = kAgent;
  } else if (implementation == kMpich) {
    env["HYDRA_HOST_FILE"] = file;
    env["HYDRA_LAUNCHER"] = "ssh";
    env["HYDRA_LAUNCHER_EXEC"] = kAgent;
    env["HYDRA_ENV"] = "none";  // ranks have the environment of the worker, not of the launcher: its GPUs are others
  } else {
    env["OMPI_ALLOW_RUN_AS_ROOT"] = env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";  // whether root may run jobs is dtrain's to say
    env["OMPI_MCA_orte_default_hostfile"] = file;
    env["OMPI_MCA_orte_keep_fqdn_hostnames"] = "true";
    env["OMPI_MCA_plm"] = "rsh";  // also where the host has Slurm
    env["OMPI_MCA_plm_rsh_agent"] = kAgent;
    env["OMPI_MCA_plm_rsh_num_concurrent"] = kLaunchesAtOnce;
    env["OMPI_MCA_plm_rsh_no_tree_spawn"] = "true";   // all daemons are started by the launcher
    env["OMPI_MCA_if_base_do_not_resolve"] = "true";  // names of tasks are no names of machines
    // Tasks have CPUs; of two workers of a host each would bind its first rank to the host's first core.
    env["OMPI_MCA_hwloc_base_binding_policy"] = "none";
    if (share_a_host(spec, cluster)) {
      env["OMPI_MCA_btl"] = "^vader";
      env["OMPI_MCA_osc"] = "^sm";
    }
  }
}

void write_hosts_first(const JobSpec&, const TaskId& task, std::vector<std::string>& argv) {
  if (task.role != kLauncher) return;
  std::vector<std::string> words{"sh", "-c", kWriteHostfile, "sh"};
  words.insert(words.end(), argv.begin(), argv.end());
  argv = std::move(words);
}

void check_mpi(const JobSpec& spec, std::vector<FileError>& errors) {
  for (const std::string_view role : {kLauncher, kMpiWorker})
    if (!has_role(spec, role))
      errors.push_back({"missing", "", 0, "spec.roles", "an mpi job needs a " + std::string(role), "its roles are launcher and worker"});
  for (const auto& entry : spec.roles)
    if (entry.first != kLauncher && entry.first != kMpiWorker)
      errors.push_back(
          {"conflict", "", 0, "spec.roles." + entry.first, "an mpi job has no such role", "its roles are launcher and worker"});
}

// In an image there is neither dtrain-rsh nor the agent's socket, and what is launched would see the host's files.
void warn_mpi(const JobSpec& spec, std::vector<std::string>& warnings) {
  for (const auto& [name, role] : spec.roles)
    if (!role.image.empty())
      warnings.push_back("spec.roles." + name + ".image: mpirun starts nothing in images: where a host runs them, the job will fail");
}

}  // namespace

const FrameworkRules kMpi{.roles = kMpiRoles,
                          .options = kMpiOptions,
                          .collective = Collective::always,
                          .environment = add_mpi,
                          .command = write_hosts_first,
                          .ranks = slots_of,
                          .ranks_in_tasks = true,
                          .check = check_mpi,
                          .warn = warn_mpi};

}  // namespace dtrain::job
