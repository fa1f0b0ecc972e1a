// The agent's second pair of eyes on the lease of a shim: it keeps the same deadline and freezes by the same file, in
// case the shim is stopped. It never starts and never thaws.
//
// Every question and every answer of the shim passes through the agent, so what the guard knows is never older than
// what the shim knows. A new life of the agent has heard nothing: it reads the end of the lease in the shim's record,
// a file, which can be read of a stopped shim too. (That no lease can end later than one counted from the start of
// this life is true and of no use: the real one may end long before.)
//
// Contract: pure. Say granted() before the answer goes on to the shim. Call wake() at deadline() and after every wake-up.
#pragma once

#include <cstdint>

#include "common/task/lease.h"

namespace dtrain::task {

struct GuardActions {
  bool freeze = false;
  bool kill = false;  // it could not be frozen in time; the end must say so
};

class LeaseGuard {
 public:
  static constexpr Duration kAfterShim = 200ms;  // the shim comes first: only one of them writes as a rule

  explicit LeaseGuard(const LeaseOptions& options) : options_(options), rules_(options.broken_rule) {}

  void wake(Instant now, GuardActions& out);
  void asked(const LeaseAsk& ask) { asks_.asked(ask); }
  void granted(Instant now, std::uint64_t nonce, GuardActions& out);
  void frozen(Instant now, GuardActions& out);  // cgroup.events says so; look there before wake()
  // What the shim's record says: in a new life of the agent before anything else, later when it changes. `until`: the
  // end of its lease.
  void told(AttemptNumber attempt, bool runs, Instant until);

  Instant deadline() const;
  bool is_freezing() const { return phase_ == Phase::freezing; }  // and frozen() is waited for
  bool is_frozen() const { return phase_ == Phase::frozen; }      // by the guard; until the next grant

 private:
  enum class Phase : std::uint8_t { watching, freezing, frozen, idle };

  LeaseOptions options_;
  lease::Rules rules_;
  GrantedTime asks_;
  Phase phase_ = Phase::idle;
  AttemptNumber attempt_ = 0;  // of the newest grant
  Instant until_{}, freeze_by_{};
};

}  // namespace dtrain::task
