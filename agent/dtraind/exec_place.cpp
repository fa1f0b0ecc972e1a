#include "agent/dtraind/exec_place.h"

#include "agent/proc/launch_file.h"

namespace dtrain::daemon {

Result<proc::ExecPlace> exec_place(const std::string& tasks_dir, const AssignmentId& id) {
  auto launch = proc::read_launch(tasks_dir + "/" + id.text());
  if (!launch) return fail(launch.error());
  proc::ExecPlace place;
  const auto user = launch->env.find("USER");
  place.user.name = user == launch->env.end() ? "" : user->second;
  place.user.uid = launch->switch_user ? launch->uid : launch->agent_uid;
  place.work_dir = launch->work_dir;
  place.env = std::move(launch->env);
  // The child named `task` of each: agent/proc/cgroup.h.
  for (const std::string& cgroup : {launch->cgroup, launch->memory_cgroup})
    if (!cgroup.empty()) place.cgroups.push_back(cgroup + "/task");
  return place;
}

}  // namespace dtrain::daemon
