// Which processes an attempt begins with, and which are started beside them.
#include <sys/epoll.h>

#include "agent/dtrain-shim/shim.h"

namespace dtrain::shim {

ProcessStart Shim::start_process() {
  const uint32_t index = processes_.count();
  const ProcessStart start = processes_.add(launch_, standbys_, tree_.cgroup_fd(), record_.shim_pid);
  if (processes_.count() == launch_.processes()) standbys_.dismiss();
  for (uint32_t stream = 0; stream < 2 && start.error == 0; ++stream)
    watch(processes_.at(index).output[stream], kOutput + 2 * index + stream, EPOLLIN);
  return start;
}

// A process that is born into a frozen tree would not get as far as its program, and hold the shim up.
bool Shim::may_start() const { return runs() && !stands_still() && (!lease_ || lease_->phase() == task::Lease::Phase::running); }

// A program that another task of the job wants here. Its socket is told what became of it.
Outcome Shim::run_beside(const CommandPacket& command, int (&fds)[kRunDescriptors]) {
  const Outcome not_now = !runs() || leaving_ || grace_until_ != 0 ? Outcome::no_attempt : may_start() ? Outcome::done : Outcome::busy;
  launch_.set_rank(0);
  const uint32_t index = launched_.begin(not_now, launch_, command, fds, tree_.cgroup_fd(), record_.shim_pid);
  if (index < kMostLaunched) watch(launched_.socket(index), kLaunched + index, EPOLLIN);
  return Outcome::done;
}

// Once it is being stopped, ranks that have not begun never do.
bool Shim::more_to_start() const { return processes_.count() < launch_.processes() && record_.step == 0 && !leaving_ && grace_until_ == 0; }

void Shim::end_lead() {
  if (lead_.due() == 0) return;
  lead_.end();
  processes_.keep_behind(lead_, 0);
}

// The other ranks start one in each turn, so that the lease, an order and the end of an earlier one are never waited for longer than one
// start takes.
void Shim::start_next() {
  const ProcessStart start = start_process();
  if (!start.warm && (record_.flags & kWarm) != 0) {
    record_.flags &= static_cast<uint16_t>(~kWarm);
    note_cold();
    changed();
  }
  if (start.error == 0 && start.step == 0) return processes_.count() == launch_.processes() ? changed() : void();
  record_.step = start.error != 0 ? static_cast<uint8_t>(Step::execute) : start.step;
  record_.error = start.error != 0 ? start.error : start.step_error;
  constexpr int kNotExecuted = 126;
  if (start.error != 0) attempt_ends(processes_.count(), kNotExecuted, 0);  // otherwise it is about to end by itself
  changed();
}

}  // namespace dtrain::shim
