// SIGTERM: the host stops, or a person stops this assignment's service.
#include <signal.h>

#include "agent/dtrain-shim/shim.h"

namespace dtrain::shim {

// Written down at once: it may be killed before the task has ended. dtrain-hold tells the shim before its task; systemd tells the shim
// alone.
void Shim::host_stops() {
  host_stops_ns_ = boot_ns();
  leaving_ = true;
  if (!runs() && !ends()) return;
  record_.flags |= kHostStops;
  changed();
  if ((launch_.header.flags & kUnit) != 0) pass_stop();
}

// What an order froze goes on, so that it can end as it likes. What stands still for want of a lease does not: the signal waits for a
// grant, and systemd for the signal's effect until TimeoutStopSec.
void Shim::pass_stop() {
  if (!runs()) return;
  if ((record_.flags & kFrozen) != 0 || freeze_deadline_ != 0 || held_) {
    CommandPacket thaw;
    bool answer_now = true;
    (void)(lease_ ? order_freeze(thaw, answer_now) : freeze(thaw, answer_now));
  }
  kill(record_.pid, launch_.header.stop_signal);
}

}  // namespace dtrain::shim
