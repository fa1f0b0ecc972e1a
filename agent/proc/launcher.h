// How a shim is started. Everything else about shims does not depend on who started them: they are controlled through
// their socket, watched by a pidfd, and cleaned up by their cgroup (tracked_shim.h). A host may have several launchers: launchers.h.
#pragma once

#include <functional>

#include "agent/base/unique_fd.h"
#include "agent/proc/launch_file.h"
#include "common/base/result.h"
#include "common/base/time.h"
#include "common/task/shim_spec.h"

namespace dtrain::proc {

class Launcher {
 public:
  virtual ~Launcher() = default;
  // Whether this launcher can run such an assignment.
  virtual bool takes(const task::ShimSpec& /*spec*/) const { return true; }
  // Whether this launcher, perhaps of an earlier agent, wrote that launch file.
  virtual bool started(const LaunchFile& launch) const = 0;
  // Whether a shim that was started for another assignment will do (spare_shims.h).
  virtual bool takes_spares() const { return false; }
  // False: shims launched before must come up first.
  virtual bool has_room() const { return true; }
  // Prepares the place of the processes, and writes it into `launch` before the shim reads that. `name`: of the place, its own; that of an
  // assignment is spec.id.text().
  virtual Status place(const task::ShimSpec& spec, const std::string& name, LaunchFile& launch) = 0;
  // Starts the shim with the launch file in `directory`. `theirs`: its end of its first connection. Returns its
  // pidfd, or an empty one if it is another process's child: then on_answer() follows, and the shim reports its pid.
  virtual Result<UniqueFd> launch(const task::ShimSpec& spec, const std::string& directory, const LaunchFile& launch, UniqueFd theirs) = 0;
  // The shim of that launch has reported who it is; or (pid 0) it is given up or gone, and must not come any more.
  virtual void settled(const LaunchFile& /*launch*/, int /*pid*/) {}
  // Such a shim has started an attempt, which is this process.
  virtual void began(const LaunchFile& /*launch*/, int /*pid*/) {}

  // Of each launch that answered no pidfd, at most once, from dispatch() or launch(): nullopt where it has been begun, or nobody knows.
  using OnAnswer = std::function<void(const AssignmentId& id, const std::string& cgroup, std::optional<Error> refusal)>;
  virtual void dispatch(const OnAnswer& /*on_answer*/) {}
  virtual Instant deadline() const { return kNever; }
};

}  // namespace dtrain::proc
