// The rules of frameworks and of their roles. No other code compares with the name of either
// (tests/tidy/test_tables.py): it asks for the rule that it needs.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/limits.h"
#include "common/base/time.h"
#include "common/job/cluster_spec.h"
#include "common/job/frameworks.h"
#include "common/job/job_spec.h"
#include "common/job/manifest.h"

namespace dtrain::job {

// What follows from a role's name. The defaults are those of roles that the framework has no rules for.
struct RoleRules {
  std::string_view name = {};
  std::uint32_t most = limits::kTasksPerJob;  // replicas
  bool leads = false;                         // its task 0 decides the job's success
  bool stands_in = false;                     // where no role leads, its task 0 decides instead, and must not run twice
  bool works = false;      // it counts as worker for successPolicy AllWorkers and for enableDynamicWorker, which lets one be lost
  bool serves = false;     // it holds the state that others work on (a parameter server): policy.onPsFailure
  bool ends = true;        // it ends by itself: where no role leads, the job succeeds when all such roles have
  bool stateful = false;   // the death of a task means a recovery; otherwise a restart in place, except for ranks of a collective job
  bool waits = false;      // it needs no command: others start its processes, and it only has to be there
  bool rank = false;       // in a collective job no rank continues without the others
  bool exclusive = false;  // the same task must never run twice at once
  std::uint8_t start = 2;  // it starts after all roles with a lower number, unless its job file says otherwise
  std::uint8_t order = 2;  // for {task.rank}: after all tasks with a lower number
  AvoidGpuHosts avoid_gpu_hosts = AvoidGpuHosts::no;  // unless its job file says otherwise
  bool one_port = false;  // its tasks get ports of one number where they share no host: others are told of one port alone
  bool operator==(const RoleRules&) const = default;
};

// When a job with more than one rank is collective.
enum class Collective : unsigned char { never, always, without_servers };

// The command of a role that has none and `waits`.
std::vector<std::string> waiting_command();

// An option of a framework's own (spec.options in a job file).
struct OptionRule {
  std::string_view name;
  std::span<const std::string_view> words = {};  // that it may have; empty: any text
};

// The rules of one framework. The default of each function suits a program that knows nothing of dtrain.
struct FrameworkRules {
  bool built = true;            // false: the name is known, and its jobs are refused
  std::string_view lacks = {};  // if it is not built: what this version lacks for it
  std::span<const RoleRules> roles = {};
  std::span<const OptionRule> options = {};
  Collective collective = Collective::never;
  // True if every task needs a port of its own.
  bool (*needs_ports)(const JobSpec&) = [](const JobSpec&) { return true; };
  // True if tasks of the role may come and go while the others run, because no argument or variable of the others
  // depends on their number.
  bool (*scales_alone)(const JobSpec&, const std::string&) = [](const JobSpec&, const std::string&) { return false; };
  // Adds the variables that the framework's libraries read; dtrain's own variables and the user's come after them.
  void (*environment)(const JobSpec&, const ClusterView&, const TaskId&, std::map<std::string, std::string>&) =
      [](const JobSpec&, const ClusterView&, const TaskId&, std::map<std::string, std::string>&) {};
  // Changes the command that is started, templates filled in.
  void (*command)(const JobSpec&, const TaskId&, std::vector<std::string>&) = [](const JobSpec&, const TaskId&, std::vector<std::string>&) {
  };
  // Adds the variables in which the ranks of one task differ, to one map for each. The job may have 10,000 tasks: they are counted once.
  void (*rank_environment)(const JobSpec&, const ClusterView&, const TaskId&, std::vector<std::map<std::string, std::string>>&) =
      [](const JobSpec&, const ClusterView&, const TaskId&, std::vector<std::map<std::string, std::string>>&) {};
  // True if dtrain starts the role's nprocPerNode ranks in each task; false: its command does, or there is one process.
  bool (*starts_ranks)(const JobSpec&, const RoleSpec&) = [](const JobSpec&, const RoleSpec&) { return false; };
  // How many of the job's ranks a task has, to be shown; 0: none, or the framework numbers none.
  std::uint32_t (*ranks)(const JobSpec&, const TaskId&) = [](const JobSpec&, const TaskId&) { return std::uint32_t{0}; };
  bool ranks_in_tasks = false;  // whether nprocPerNode has a meaning
  bool warm = false;            // whether its Python programs have standbys unless the job says otherwise
  // Whether the other ranks of a task that begins cold are kept behind the first (common/task/lead.h): they look for it, and what they do
  // where it is not there yet costs more than that.
  bool first_leads = false;
  // The variable that names a file in which a rank records the exception that ends it, in torchelastic's form (recorded_error.h); "": none.
  std::string_view error_file = {};
  // Reports mistakes that are specific to the framework, and what is allowed but probably not meant.
  void (*check)(const JobSpec&, std::vector<FileError>&) = [](const JobSpec&, std::vector<FileError>&) {};
  void (*warn)(const JobSpec&, std::vector<std::string>&) = [](const JobSpec&, std::vector<std::string>&) {};
};

const FrameworkRules& rules_of(Framework framework);
// Its value, or "" if the job does not have it.
std::string_view option_of(const JobSpec& spec, std::string_view name);
const RoleRules& role_rules(Framework framework, std::string_view role);

}  // namespace dtrain::job
