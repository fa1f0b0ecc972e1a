#include "common/task/lease.h"

#include <algorithm>

namespace dtrain::task {

std::optional<LeaseAsk> GrantedTime::take(std::uint64_t nonce) {
  for (LeaseAsk& ask : asks_)
    if (nonce != 0 && ask.nonce == nonce) {
      const LeaseAsk found = ask;
      ask = {};
      return found;
    }
  return {};
}

Lease::Lease(const LeaseOptions& options, std::uint64_t first_nonce, std::uint64_t epoch)
    : options_(options), rules_(options.broken_rule), nonce_(first_nonce), epoch_(epoch), exempt_(options.exempt) {}

bool Lease::admit(std::uint64_t epoch) {
  if (epoch < epoch_ && rules_.hold(Rule::epoch_fence)) return false;
  epoch_ = std::max(epoch_, epoch);
  return true;
}

// ---------------------------------------------------------------- what the clock says

void Lease::enforce(Instant now, LeaseActions& out) {
  if (phase_ == Phase::freezing && now >= freeze_by_ && rules_.hold(Rule::freeze_bounded)) {
    out.unfenced = now >= until_;
    begin_kill(out);
  }
  if (phase_ == Phase::running && now >= until_ - kFreezeAhead) begin_freeze(now, out);
  if (wants_grant() && now >= next_ask_) ask(now, out);
}

// If begun in time, the freeze has until the end of the lease. If begun late, because the shim was stopped, it has no
// more than the margin that the coordinator allows for.
void Lease::begin_freeze(Instant now, LeaseActions& out) {
  phase_ = Phase::freezing;
  freeze_by_ = std::min(now + kFreezeAhead, std::max(until_, now + kLateFreeze));
  if (rules_.hold(Rule::thaw_asks)) asks_.forget_asks();
  next_ask_ = now;
  out.freeze = true;
}

void Lease::begin_kill(LeaseActions& out) {
  phase_ = Phase::killing;
  out.kill = true;
  out.freeze = out.thaw = false;
}

bool Lease::wants_grant() const {
  if (superseded_ || exempt_) return false;
  return phase_ == Phase::waiting || phase_ == Phase::running || ((phase_ == Phase::freezing || phase_ == Phase::frozen) && !held_);
}

void Lease::ask(Instant now, LeaseActions& out) {
  const LeaseAsk ask{attempt_, nonce_, now};
  if (++nonce_ == 0) nonce_ = 1;
  asks_.asked(ask);
  next_ask_ = now + options_.ask_retry;
  out.ask = ask;
}

Instant Lease::deadline() const {
  Instant at = kNever;
  if (wants_grant()) at = std::min(at, next_ask_);
  if (phase_ == Phase::running && until_ != kNever) at = std::min(at, until_ - kFreezeAhead);
  if (phase_ == Phase::freezing && rules_.hold(Rule::freeze_bounded)) at = std::min(at, freeze_by_);
  return at;
}

// ---------------------------------------------------------------- what was received

bool Lease::start(Instant now, AttemptNumber attempt, LeaseActions& out) {
  enforce(now, out);
  if (superseded_ || attempt <= attempt_ || phase_ != Phase::idle) return false;
  attempt_ = attempt;
  phase_ = Phase::waiting;
  if (exempt_) until_ = kNever;
  if (exempt_ || (!rules_.hold(Rule::start_asks) && until_ > now + kFreezeAhead)) {
    phase_ = Phase::running;
    out.start = true;
    return true;
  }
  asks_.forget_asks();
  ask(now, out);
  return true;
}

bool Lease::withdraw() {
  if (phase_ != Phase::waiting) return false;
  phase_ = Phase::idle;
  --attempt_;
  return true;
}

bool Lease::granted(Instant now, std::uint64_t nonce, std::uint64_t epoch, LeaseActions& out) {
  if (rules_.hold(Rule::expiry_first)) enforce(now, out);
  if (!admit(epoch)) return false;
  auto ask = asks_.take(nonce);
  if (!ask && !rules_.hold(Rule::own_nonce)) ask = asks_.newest();
  if (!ask || !wants_grant() || ask->attempt != attempt_) return false;
  const Instant until = (rules_.hold(Rule::from_asking) ? ask->t0 : now) + options_.lease;
  if (until - kFreezeAhead <= now) return false;  // too late to be useful
  use(*ask, until, out);
  return true;
}

void Lease::use(const LeaseAsk& ask, Instant until, LeaseActions& out) {
  until_ = std::max(until_, until);
  next_ask_ = std::max(next_ask_, ask.t0 + options_.ask_every);
  if (phase_ == Phase::waiting) out.start = true;
  if (phase_ == Phase::freezing || phase_ == Phase::frozen) {
    out.thaw = true;
    out.freeze = false;
  }
  phase_ = Phase::running;
}

bool Lease::superseded(Instant now, std::uint64_t epoch, LeaseActions& out) {
  enforce(now, out);
  if (!admit(epoch)) return false;
  const bool stays = rules_.hold(Rule::superseded_stays);
  superseded_ = stays;
  if (phase_ == Phase::waiting) phase_ = Phase::idle;
  if (!exists()) return true;
  begin_kill(out);
  if (!stays) out.thaw = true;
  return true;
}

void Lease::require(Instant now, LeaseActions& out) {
  if (exempt_) until_ = now + options_.lease;
  exempt_ = false;
  next_ask_ = now;
  enforce(now, out);
}

bool Lease::hold(Instant now, bool on, LeaseActions& out) {
  enforce(now, out);
  if (!exists()) return false;
  if (on && phase_ == Phase::running) begin_freeze(now, out);
  const bool released = held_ && !on;
  held_ = on;
  if (!released) return true;
  asks_.forget_asks();
  next_ask_ = now;
  if (!exempt_) enforce(now, out);
  if (exempt_ && phase_ != Phase::running) {
    phase_ = Phase::running;
    out.thaw = true;
  }
  return true;
}

// The kernel's word comes before the clock: a frozen task needs no kill, however late that is seen.
void Lease::frozen(Instant now, LeaseActions& out) {
  if (phase_ == Phase::running) {  // the agent froze it: the lease had run out while this shim was stopped
    if (rules_.hold(Rule::thaw_asks)) asks_.forget_asks();
    next_ask_ = now;
  }
  if (phase_ == Phase::running || phase_ == Phase::freezing) phase_ = Phase::frozen;
  enforce(now, out);
}

void Lease::ended(Instant now, LeaseActions& out) {
  phase_ = Phase::idle;
  held_ = false;
  enforce(now, out);
}

}  // namespace dtrain::task
