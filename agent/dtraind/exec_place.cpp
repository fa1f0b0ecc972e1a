#include "agent/dtraind/exec_place.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "agent/base/small_file.h"
#include "agent/proc/cgroup.h"
#include "agent/proc/container_host.h"
#include "agent/proc/launch_file.h"

namespace dtrain::daemon {

Result<proc::ExecPlace> exec_place(const std::string& tasks_dir, const AssignmentId& id, std::uint32_t rank) {
  auto launch = proc::read_launch(tasks_dir + "/" + id.text());
  if (!launch) return fail(launch.error());
  proc::ExecPlace place;
  // By uid, as the task was started: its job chooses USER in the environment.
  place.user = {"", launch->switch_user ? launch->uid : launch->agent_uid};
  place.work_dir = launch->work_dir;
  place.env = std::move(launch->env);
  if (rank > launch->ranks.size())
    return fail(ErrorCode::not_found, "could not execute: " + id.task.text() + " has no rank " + std::to_string(rank - 1),
                "a rank is counted within its task (LOCAL_RANK)");
  if (!launch->ranks.empty()) place.env.merge(launch->ranks[rank > 0 ? rank - 1 : 0]);
  // Where the shim and its task are: agent/proc/cgroup.h. The memory hierarchy (v1) has one group for both.
  if (!launch->cgroup.empty()) place.cgroups.push_back(launch->cgroup + "/task");
  place.cgroups.push_back(launch->memory_cgroup);
  // For a service: the version 1 groups with which systemd also limits it.
  if (launch->is_unit)
    for (const char* controller : {"devices", "pids", "cpu", "cpuacct", "blkio"})
      place.cgroups.push_back(proc::same_cgroup(launch->cgroup, controller).value_or(""));
  if (!place.env.contains(job::kImageVariable)) return place;
  // In an image the command has the variables that the image's own processes began with.
  for (const job::ContainerEngine* engine : job::container_engines())
    if (place.inside == 0) place.inside = proc::process_in_image(place.cgroups, launch->notify, engine->mark);
  if (place.inside == 0)
    return fail(ErrorCode::unavailable, "could not execute: no process of " + id.task.text() + " runs in its image now",
                "wait until the task runs");
  place.env.clear();
  // Through a descriptor: the process may end, and its number come to belong to somebody else.
  const UniqueFd process(::open(("/proc/" + std::to_string(place.inside)).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat owner {};
  const bool own = process && ::fstat(process.get(), &owner) == 0 && owner.st_uid == place.user.uid;
  const std::string environment = own ? read_small_file("/proc/self/fd/" + std::to_string(process.get()) + "/environ").value_or("") : "";
  for (std::size_t at = 0; at < environment.size();) {
    const std::string entry = environment.c_str() + at;
    if (const std::size_t equals = entry.find('='); equals != std::string::npos)
      place.env[entry.substr(0, equals)] = entry.substr(equals + 1);
    at += entry.size() + 1;
  }
  if (rank > 0)
    for (const auto& [name, value] : launch->ranks[rank - 1]) place.env[name] = value;
  if (const auto directory = place.env.find("PWD"); directory != place.env.end()) place.work_dir = directory->second;
  return place;
}

}  // namespace dtrain::daemon
