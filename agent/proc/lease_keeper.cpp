#include "agent/proc/lease_keeper.h"

#include <algorithm>
#include <utility>

#include "agent/base/small_file.h"
#include "agent/proc/cgroup.h"
#include "agent/proc/leftover.h"

namespace dtrain::proc {

namespace {

constexpr Duration kLookPause = 2ms;

Instant boot_instant(std::int64_t ns) { return Instant{} + Duration(ns); }

}  // namespace

void LeaseKeeper::of(std::string cgroup, std::string notify) {
  forget();
  cgroup_ = std::move(cgroup);
  notify_ = std::move(notify);
}

void LeaseKeeper::forget() { guard_.reset(); }

void LeaseKeeper::told(const ShimRecord& record) {
  if (!record.has(shim::kLeased)) return;
  if (!guard_) {
    task::LeaseOptions options;
    options.lease = Duration(record.fixed.lease_ns);
    guard_.emplace(options);
  }
  guard_->told(record.fixed.attempt, record.active(), boot_instant(record.fixed.lease_until_ns));
}

void LeaseKeeper::asked(const shim::AskPacket& ask) {
  if (guard_) guard_->asked({ask.attempt, ask.nonce, boot_instant(ask.t0_ns)});
}

void LeaseKeeper::granted(Instant now, std::uint64_t nonce) {
  if (!guard_) return;
  task::GuardActions out;
  guard_->granted(now, nonce, out);
  act(now, out);
}

bool LeaseKeeper::enforce(Instant now) {
  if (!guard_ || now < deadline()) return false;
  task::GuardActions out;
  const bool frozen = guard_->is_freezing() && is_frozen();
  if (frozen) guard_->frozen(now, out);
  else guard_->wake(now, out);
  act(now, out);
  return frozen;
}

void LeaseKeeper::act(Instant now, const task::GuardActions& out) {
  if (out.kill && cgroup_.empty()) kill_leftovers(notify_);
  if (out.kill) cgroup_kill(cgroup_.empty() ? "" : cgroup_ + "/task");
  if (out.freeze) begin_freeze();
  next_look_ = now + kLookPause;
}

void LeaseKeeper::begin_freeze() {
  quiet_pass_ = false;
  if (!cgroup_.empty()) write_control(cgroup_ + "/task/cgroup.freeze", "1");
}

bool LeaseKeeper::is_frozen() {
  if (!cgroup_.empty()) return read_small_file(cgroup_ + "/task/cgroup.events").value_or("").find("frozen 1") != std::string::npos;
  // Two passes: a process that forked during the first is seen by the second.
  const bool quiet = stop_leftovers(notify_) == 0;
  return std::exchange(quiet_pass_, quiet) && quiet;
}

Instant LeaseKeeper::deadline() const {
  if (!guard_) return kNever;
  return guard_->is_freezing() ? std::min(next_look_, guard_->deadline()) : guard_->deadline();
}

}  // namespace dtrain::proc
