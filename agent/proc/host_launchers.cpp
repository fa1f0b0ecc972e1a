// The launchers that this host can have, as make_runner() takes them.
#include <unistd.h>

#include <cerrno>

#include "agent/base/small_file.h"
#include "agent/proc/cgroup.h"
#include "agent/proc/direct_launcher.h"
#include "agent/proc/shim_runner.h"
#include "agent/proc/systemd_launcher.h"

namespace dtrain::proc {

bool systemd_is_here() {
  return ::geteuid() == 0 && ::access("/run/systemd/system", F_OK) == 0;  // sd_booted(3)
}

Result<std::unique_ptr<Launcher>> direct_launcher(const RunnerOptions& options, Epoll&, std::uint64_t) {
  const std::string name = cgroup_name_of(options.tasks_dir);
  if (name.empty()) return fail(ErrorCode::io, "could not use " + options.tasks_dir + ": " + cause_of(errno));
  Cgroups cgroups = Cgroups::open(options.cgroup, name);
  if (options.warn && cgroups.unusable()) options.warn(*cgroups.unusable());
  return make_direct_launcher(options.shim_path, std::move(cgroups), options.warn);
}

Result<std::unique_ptr<Launcher>> systemd_launcher(const RunnerOptions& options, Epoll& poller, std::uint64_t tag) {
  if (!systemd_is_here())
    return fail(ErrorCode::unavailable, "could not launch tasks through systemd: it is not PID 1 here, or the agent is not root's",
                "use tasks.launch: direct (or auto)");
  return make_systemd_launcher(options, poller, tag);
}

}  // namespace dtrain::proc
