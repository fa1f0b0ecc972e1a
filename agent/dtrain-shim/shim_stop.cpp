// Signals to a running attempt, SIGTERM to the shim (the host stops, or a person stops this assignment's service),
// and the end of what is left then. Also which main process somebody else stopped.
#include <signal.h>

#include "agent/dtrain-shim/shim.h"

namespace dtrain::shim {

namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kFirstKillPause = 2 * kMillisecond;    // doubled up to kLastKillPause: a process in an
constexpr int64_t kLastKillPause = 1000 * kMillisecond;  // uninterruptible sleep must not keep the shim busy

}  // namespace

Outcome Shim::signal(const CommandPacket& command) {
  const bool whole_tree = command.b != 0;
  if (!runs() && !(ends() && whole_tree)) return Outcome::no_attempt;
  give_grace(command.grace_ns);
  signal_task(static_cast<int>(command.a), whole_tree);
  if (command.grace_ns > 0) wake_stopped();
  return Outcome::done;
}

// Before the attempt is killed, or ends by the failure of a process that waited for another: which one stands still, or is silent. While
// the whole task is frozen they all are.
void Shim::blame_stuck() {
  if (!runs() || stands_still()) return;
  blamed_ = processes_.stuck();
  note_stopped();
}

// Which main process stands still while the others run. True: that is another one than before.
bool Shim::note_stopped() {
  const uint32_t stopped = processes_.stopped(), before = record_.stopped;
  const bool any = stopped < processes_.count();
  record_.stopped = any ? stopped + 1 : 0;
  record_.stopped_ns = any ? processes_.at(stopped).stopped_ns : 0;
  return record_.stopped != before;
}

// After the end of the main process, the tree consists of the rest.
void Shim::signal_task(int number, bool whole_tree) {
  const bool still = stands_still() || freeze_due_ != 0;
  end_lead();
  if (whole_tree && still) tree_.signal_all(number);
  else if (whole_tree) tree_.signal_at_once(number);
  else if (runs()) processes_.signal(number);
}

// A process that somebody stopped (SIGSTOP) could not react to what asks it to end, and would only use up the grace.
void Shim::wake_stopped() {
  if (!stands_still() && freeze_due_ == 0) tree_.signal_all(SIGCONT);
}

// A later stop may shorten an earlier signal's grace.
void Shim::give_grace(int64_t grace_ns) {
  if (grace_ns <= 0) return;
  grace_until_ = boot_ns() + (grace_ns < kMostGrace ? grace_ns : kMostGrace);
  kill_due_ = 0;
}

// SIGKILL ends any grace.
void Shim::kill_tree() {
  grace_until_ = kill_due_ = 0;
  tree_.kill_all();
}

// The main process is gone. Nothing of the attempt may be left when its end is reported: a forked data loader could
// keep the listening socket or the GPU. Processes to which a stop gave grace have it, because a main process is often
// a script around the trainer. As long as one of them lives, this process has children; a process in the cgroup that
// is no child (`dtrainctl exec`) is not waited for.
void Shim::step_ending() {
  if (childless_ && tree_.cgroup_empty()) return finish_attempt();
  watch_cgroup(true);
  const int64_t now = boot_ns();
  if (!childless_ && now < grace_until_) {
    kill_due_ = grace_until_;
    return;
  }
  if (grace_until_ != 0) grace_until_ = kill_due_ = 0;
  if (kill_due_ != 0 && now < kill_due_) return;
  tree_.kill_all();
  kill_pause_ = kill_pause_ == 0 ? kFirstKillPause : kill_pause_ * 2;
  if (kill_pause_ > kLastKillPause) kill_pause_ = kLastKillPause;
  kill_due_ = now + kill_pause_;
}

// Recorded at once, because the shim may be killed before the task has ended. dtrain-hold signals the shim before its
// task; systemd signals only the shim.
void Shim::host_stops() {
  host_stops_ns_ = boot_ns();
  leaving_ = true;
  if (!runs() && !ends()) return;
  record_.flags |= kHostStops;
  changed();
  give_grace(launch_.header.stop_grace_ns);
  if ((launch_.header.flags & kUnit) != 0) pass_stop();
}

// A task that an order froze is thawed, so that it can end as it likes. A task that is frozen for want of a lease is
// not: the signal waits for a grant, and systemd for the signal's effect until TimeoutStopSec.
void Shim::pass_stop() {
  if (runs() && ((record_.flags & kFrozen) != 0 || freeze_deadline_ != 0 || held_)) {
    CommandPacket thaw;
    bool answer_now = true;
    (void)(lease_ ? order_freeze(thaw, answer_now) : freeze(thaw, answer_now));
  }
  signal_task(launch_.header.stop_signal, (launch_.header.flags & kSignalMain) == 0);
  wake_stopped();
}

}  // namespace dtrain::shim
