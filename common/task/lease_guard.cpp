#include "common/task/lease_guard.h"

#include <algorithm>

namespace dtrain::task {

using lease::Rule;

void LeaseGuard::wake(Instant now, GuardActions& out) {
  if (!rules_.hold(Rule::guard_freezes)) return;
  if (phase_ == Phase::freezing && now >= freeze_by_) {
    phase_ = Phase::idle;
    out.kill = true;
  }
  if (phase_ == Phase::watching && now >= until_ - kFreezeAhead + kAfterShim) {
    phase_ = Phase::freezing;
    freeze_by_ = std::max(until_, now + kLateFreeze);
    out.freeze = true;
  }
}

void LeaseGuard::granted(Instant now, std::uint64_t nonce, GuardActions& out) {
  wake(now, out);
  const auto ask = asks_.take(nonce);
  if (!ask || ask->t0 + options_.lease - kFreezeAhead <= now) return;  // the shim would not use it either
  until_ = std::max(until_, ask->t0 + options_.lease);
  attempt_ = std::max(attempt_, ask->attempt);
  phase_ = Phase::watching;  // even while freezing: the shim may thaw by this grant, and the task may run until then
}

void LeaseGuard::frozen(Instant now, GuardActions& out) {
  if (phase_ == Phase::freezing) phase_ = Phase::frozen;
  wake(now, out);
}

void LeaseGuard::told(AttemptNumber attempt, bool runs, Instant until) {
  if (attempt < attempt_) return;  // written before the newest grant
  attempt_ = attempt;
  if (until > until_ && phase_ == Phase::frozen) phase_ = Phase::watching;  // because of a grant that another life of the agent passed on
  until_ = std::max(until_, until);
  if (!runs) phase_ = Phase::idle;
  if (runs && phase_ == Phase::idle) phase_ = Phase::watching;
}

Instant LeaseGuard::deadline() const {
  if (!rules_.hold(Rule::guard_freezes)) return kNever;
  if (phase_ == Phase::watching) return until_ - kFreezeAhead + kAfterShim;
  return phase_ == Phase::freezing ? freeze_by_ : kNever;
}

}  // namespace dtrain::task
