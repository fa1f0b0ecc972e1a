#include "agent/dtraind/exec_place.h"

#include "agent/proc/cgroup.h"
#include "agent/proc/launch_file.h"

namespace dtrain::daemon {

Result<proc::ExecPlace> exec_place(const std::string& tasks_dir, const AssignmentId& id) {
  auto launch = proc::read_launch(tasks_dir + "/" + id.text());
  if (!launch) return fail(launch.error());
  proc::ExecPlace place;
  // By uid, as the task was started: its job chooses USER in the environment.
  place.user = {"", launch->switch_user ? launch->uid : launch->agent_uid};
  place.work_dir = launch->work_dir;
  place.env = std::move(launch->env);
  if (!launch->ranks.empty()) place.env.merge(launch->ranks.front());  // as the first of its ranks has it
  // Where the shim and its task are: agent/proc/cgroup.h. The memory hierarchy (v1) has one group for both.
  if (!launch->cgroup.empty()) place.cgroups.push_back(launch->cgroup + "/task");
  place.cgroups.push_back(launch->memory_cgroup);
  // For a service: the version 1 groups with which systemd also limits it.
  if (launch->is_unit)
    for (const char* controller : {"devices", "pids", "cpu", "cpuacct", "blkio"})
      place.cgroups.push_back(proc::same_cgroup(launch->cgroup, controller).value_or(""));
  return place;
}

}  // namespace dtrain::daemon
