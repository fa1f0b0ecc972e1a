// The shim of a task under a lease: carries out what common/task/lease.h decides (docs/leases.md).
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>

#include "agent/dtrain-shim/shim.h"

namespace dtrain::shim {

namespace {

constexpr int64_t kFreezePause = 2'000'000;  // between looks, besides the events of cgroup.events
#ifndef MCL_ONFAULT
constexpr int MCL_ONFAULT = 4;
#endif

Instant instant(int64_t ns) { return Instant{} + Duration(ns); }
Instant now() { return instant(boot_ns()); }

// After a pause of the whole host the task could otherwise run for up to 50 ms before its shim does. Without the
// right to this nothing changes. Pages that the shim has used stay in memory; the rest, mostly tables for hosts
// without cgroups, need not be loaded. The task inherits neither.
void become_urgent() {
  sched_param lowest{};
  lowest.sched_priority = 1;
  // the bare system call, because musl's wrapper always fails
  (void)syscall(SYS_sched_setscheduler, 0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest);
  (void)mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}

}  // namespace

bool Shim::begin_lease(int64_t lease_ns, uint64_t epoch, uint64_t first_nonce, bool exempt) {
  lease_timer_ = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  if (lease_timer_ < 0 || !watch(lease_timer_, kLeaseTimer, EPOLLIN)) return false;
  task::LeaseOptions options;
  options.lease = Duration(lease_ns);
  if (options.ask_every > options.lease / 5) options.ask_every = options.lease / 5;
  options.exempt = exempt;
  lease_.emplace(options, first_nonce != 0 ? first_nonce : 1, epoch);
  record_.flags |= kLeased;
  record_.lease_ns = lease_ns;
  record_.epoch = epoch;
  become_urgent();
  write_state();
  return true;
}

// ---------------------------------------------------------------- what the clock says

void Shim::enforce_lease() {
  const Instant at = now();
  if (at < lease_->deadline()) return;
  uint64_t ignored;
  (void)!read(lease_timer_, &ignored, sizeof(ignored));
  step_lease([&](task::LeaseActions& out) {
    // A frozen task needs no kill, whoever froze it: the agent does so while this shim is stopped.
    if ((runs() || ends()) && tree_.has_cgroup() && tree_.freeze_step()) {
      if (lease_->phase() == task::Lease::Phase::running) record_.flags |= kLeaseFrozen;
      lease_->frozen(at, out);
    } else {
      lease_->wake(at, out);
    }
    if (out.kill && runs()) record_.flags |= kFreezeFailed;  // the clock kills for no other reason
  });
}

void Shim::arm_lease_timer() {
  const Instant at = lease_->deadline();
  const int64_t wanted = at == kNever ? 0 : at.time_since_epoch().count();
  if (wanted == lease_timer_at_) return;
  lease_timer_at_ = wanted;
  itimerspec spec{};  // zero: none
  spec.it_value.tv_sec = wanted / 1'000'000'000;
  spec.it_value.tv_nsec = wanted % 1'000'000'000;
  (void)timerfd_settime(lease_timer_, TFD_TIMER_ABSTIME, &spec, nullptr);
}

// ---------------------------------------------------------------- what is to be done

void Shim::act(const task::LeaseActions& actions, uint16_t flags_before) {
  if (actions.unfenced) record_.flags |= kFreezeFailed;
  if (lease_->is_superseded()) record_.flags |= kSuperseded;
  if (actions.kill) {
    stop_freezing();
    answer_hold(Outcome::failed, ETIMEDOUT);
    kill_tree();
  }
  if (actions.freeze) {
    end_lead();
    tree_.begin_freeze();
    watch_cgroup(true);
    freeze_due_ = boot_ns();
  }
  if (actions.thaw) {
    stop_freezing();
    tree_.thaw();
    record_.flags &= static_cast<uint16_t>(~kLeaseFrozen);
  }
  const int64_t until = lease_->until().time_since_epoch().count();
  const bool renewed = until != record_.lease_until_ns || lease_->epoch() != record_.epoch;
  record_.lease_until_ns = until;
  record_.epoch = lease_->epoch();
  if (actions.start) granted_start();
  if (actions.ask) {
    AskPacket ask;
    ask.attempt = actions.ask->attempt;
    ask.nonce = actions.ask->nonce;
    ask.t0_ns = actions.ask->t0.time_since_epoch().count();
    link_.ask(ask);
  }
  // The agent sees each grant before this shim does; only its next life must read it. A thaw is always reported,
  // because the agent may have frozen the task, and reported that, before this shim did.
  if (record_.flags != flags_before || actions.thaw) changed();
  else if (renewed && !actions.start) write_state();
  if (actions.start || actions.thaw) enforce_lease();  // the shim may have been stopped in between
}

void Shim::stop_freezing() {
  freeze_due_ = 0;
  watch_cgroup(false);
}

void Shim::lease_timers() {
  if (start_sequence_ != 0 && link_.fd() < 0) withdraw_start(Outcome::withdrawn);
  if (start_owed_) pay_start();
  if (freeze_due_ == 0) return;
  if (!tree_.freeze_step()) {
    freeze_due_ = boot_ns() + kFreezePause;
    return;
  }
  stop_freezing();
  record_.flags |= held_ ? kFrozen : kLeaseFrozen;
  answer_hold(Outcome::done, 0);
  changed();
  step_lease([&](task::LeaseActions& out) { lease_->frozen(now(), out); });
}

// ---------------------------------------------------------------- starting

Outcome Shim::order_start(const CommandPacket& command, bool& answer_now) {
  withdraw_start(Outcome::withdrawn);
  bool ordered = false;
  step_lease([&](task::LeaseActions& out) { ordered = lease_->start(now(), command.a, out); });
  if (!ordered) return Outcome::superseded;
  start_sequence_ = command.sequence;
  answer_now = false;
  return Outcome::done;
}

void Shim::granted_start() {
  // While nothing ran the agent may have frozen the empty cgroup; a process born in it would never reach exec.
  if (tree_.has_cgroup()) tree_.thaw();
  ReplyPacket reply;
  const Outcome outcome = begin_attempt(lease_->attempt(), reply);
  owe_start(outcome, reply);
  if (outcome == Outcome::done) return;
  task::LeaseActions nothing;
  lease_->ended(now(), nothing);
}

void Shim::withdraw_start(Outcome outcome) {
  ReplyPacket reply;
  reply.attempt = lease_->attempt();
  if (lease_->withdraw()) arm_lease_timer();
  if (start_sequence_ != 0) owe_start(outcome, reply);
}

void Shim::owe_start(Outcome outcome, ReplyPacket& reply) {
  reply.command = static_cast<uint16_t>(Command::start);
  reply.sequence = start_sequence_;
  reply.outcome = static_cast<uint16_t>(outcome);
  start_reply_ = reply;
  start_owed_ = true;
  start_sequence_ = 0;
}

// After the answer to the command that caused it.
void Shim::pay_start() {
  if (link_.fd() >= 0 && !link_.reading()) return;
  start_owed_ = false;
  if (link_.fd() >= 0) link_.reply(start_reply_);
  flush();
}

// ---------------------------------------------------------------- the agent's orders

Outcome Shim::order_freeze(const CommandPacket& command, bool& answer_now) {
  answer_hold(Outcome::failed, ECANCELED);  // a newer command replaced it
  if (!runs()) return Outcome::no_attempt;
  held_ = command.a != 0;
  const uint16_t flags = record_.flags;
  if (!held_) {
    record_.flags &= static_cast<uint16_t>(~kFrozen);
    // A release is a thaw, which needs a grant: until then the task stays frozen because of the lease.
    if (lease_->phase() == task::Lease::Phase::frozen) record_.flags |= kLeaseFrozen;
  }
  step_lease([&](task::LeaseActions& out) { lease_->hold(now(), held_, out); });
  const bool frozen = lease_->phase() == task::Lease::Phase::frozen;
  if (held_ && frozen) record_.flags |= kFrozen;
  if (flags != record_.flags) changed();
  if (!held_ || frozen) return Outcome::done;
  if (lease_->phase() != task::Lease::Phase::freezing) return Outcome::failed;
  freeze_sequence_ = command.sequence;
  answer_now = false;
  return Outcome::done;
}

void Shim::answer_hold(Outcome outcome, int error) {
  if (freeze_sequence_ == 0) return;
  ReplyPacket reply;
  reply.command = static_cast<uint16_t>(Command::freeze);
  reply.sequence = freeze_sequence_;
  reply.outcome = static_cast<uint16_t>(outcome);
  reply.error = error;
  reply.attempt = record_.attempt;
  reply.a = 1;
  freeze_sequence_ = 0;
  if (link_.reading()) link_.reply(reply);
  flush();
}

Outcome Shim::lease_answer(const CommandPacket& command) {
  if (!lease_) return Outcome::no_attempt;
  step_lease([&](task::LeaseActions& out) {
    if (command.a != 0) lease_->granted(now(), command.nonce, command.epoch, out);
    else lease_->superseded(now(), command.epoch, out);
  });
  if (lease_->is_superseded() && start_sequence_ != 0) {
    ReplyPacket reply;
    reply.attempt = lease_->attempt();
    owe_start(Outcome::superseded, reply);
  }
  return Outcome::done;
}

// As if the task had been exempt from the beginning.
Outcome Shim::require_lease(const CommandPacket& command) {
  if (lease_) return Outcome::already;
  if (leaving_ || command.lease_ns <= 0 || !begin_lease(command.lease_ns, command.epoch, command.nonce, true)) return Outcome::failed;
  task::LeaseActions nothing;
  if (runs() || ends()) lease_->start(now(), record_.attempt, nothing);
  held_ = (record_.flags & kFrozen) != 0 || freeze_deadline_ != 0;
  if (freeze_deadline_ != 0) freeze_due_ = boot_ns();
  freeze_deadline_ = 0;  // from here on the lease limits a freeze in progress
  if (held_) lease_->hold(now(), true, nothing);
  if ((record_.flags & kFrozen) != 0) lease_->frozen(now(), nothing);
  step_lease([&](task::LeaseActions& out) { lease_->require(now(), out); });
  changed();
  return Outcome::done;
}

// Nothing of the attempt is left. What the agent may have done to its cgroup meanwhile must not affect the next one.
void Shim::lease_attempt_ended() {
  stop_freezing();
  held_ = false;
  record_.flags &= static_cast<uint16_t>(~kLeaseFrozen);
  answer_hold(Outcome::no_attempt, 0);
  if (tree_.has_cgroup()) tree_.thaw();
  if (record_.signal == SIGKILL) tree_.assume_killed();
  step_lease([&](task::LeaseActions& out) { lease_->ended(now(), out); });
}

}  // namespace dtrain::shim
