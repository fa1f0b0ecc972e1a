// What is asked about a framework and the roles of its jobs. Nothing else compares with the name of either (tests/tidy/test_tables.py):
// who decides something asks for the rule by which it is decided.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/limits.h"
#include "common/job/cluster_spec.h"
#include "common/job/frameworks.h"
#include "common/job/job_spec.h"
#include "common/job/manifest.h"

namespace dtrain::job {

// What follows from a role's name. As it stands here: of every role that its framework has no rules for.
struct RoleRules {
  std::string_view name = {};
  std::uint32_t most = limits::kTasksPerJob;  // replicas
  bool leads = false;      // the success of its task 0 is the job's
  bool stands_in = false;  // where no role leads, its task 0 does, and must not run twice
  bool works = false;      // a worker: of successPolicy AllWorkers, and of enableDynamicWorker, by which one may be lost
  bool serves = false;     // holds what the others work on, a parameter server: policy.onPsFailure
  bool ends = true;        // ends by itself: where nobody leads, the job succeeds when all such roles have
  bool stateful = false;   // a death of it is a recovery; else, but of a rank of a collective job, a restart in place
  bool rank = false;       // in a collective job none goes on without the others
  bool exclusive = false;  // there must never be two of the same
  std::uint8_t start = 2;  // it starts after all roles with a lower number, unless its job file says something else
  std::uint8_t order = 2;  // of {task.rank}: after all tasks with a lower number
  AvoidGpuHosts avoid_gpu_hosts = AvoidGpuHosts::no;  // unless its job file says something else
  bool operator==(const RoleRules&) const = default;
};

// When a job with more than one rank is collective.
enum class Collective : unsigned char { never, always, without_servers };

// What a function is not given for is as for any program that knows nothing of dtrain.
struct FrameworkRules {
  bool built = true;                     // false: its name is known, a job of it is refused
  std::span<const RoleRules> roles = {};
  Collective collective = Collective::never;
  // Does every task need a port of its own?
  bool (*needs_ports)(const JobSpec&) = [](const JobSpec&) { return true; };
  // May tasks of the role come and go while the others run on, since no argument and no variable of these depends on how many there are?
  bool (*scales_alone)(const JobSpec&, const std::string&) = [](const JobSpec&, const std::string&) { return false; };
  // Adds what its libraries read; dtrain's own variables and the user's come after it.
  void (*environment)(const JobSpec&, const ClusterView&, const TaskId&, std::map<std::string, std::string>&) =
      [](const JobSpec&, const ClusterView&, const TaskId&, std::map<std::string, std::string>&) {};
  // Its own mistakes that a job may have, and what is allowed but probably not meant.
  void (*check)(const JobSpec&, std::vector<FileError>&) = [](const JobSpec&, std::vector<FileError>&) {};
  void (*warn)(const JobSpec&, std::vector<std::string>&) = [](const JobSpec&, std::vector<std::string>&) {};
};

const FrameworkRules& rules_of(Framework framework);
const RoleRules& role_rules(Framework framework, std::string_view role);

}  // namespace dtrain::job
