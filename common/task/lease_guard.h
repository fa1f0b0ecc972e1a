// The agent's guard of a shim's lease: keeps the same deadline and freezes by the same file, in case the shim is stopped. It
// never starts and never thaws a task.
//
// Every question and answer of the shim passes through the agent, so the guard never knows less than the shim. A new life of the
// agent has heard none of them: it reads the end of the lease from the shim's record, a file, which also works if the shim is
// stopped. (No lease can end later than one counted from the start of this life, but that bound is of no use: the real lease may
// end long before.)
//
// Contract: pure. Call granted() before the answer is passed on to the shim. Call wake() at deadline() and after every wake-up.
#pragma once

#include <cstdint>

#include "common/task/lease.h"

namespace dtrain::task {

struct GuardActions {
  bool freeze = false;
  bool kill = false;  // the task could not be frozen in time; its exit record must say so
};

class LeaseGuard {
 public:
  static constexpr Duration kAfterShim = 200ms;  // the shim acts first, so that as a rule only one of the two writes

  explicit LeaseGuard(const LeaseOptions& options) : options_(options), rules_(options.broken_rule) {}

  void wake(Instant now, GuardActions& out);
  void asked(const LeaseAsk& ask) { asks_.asked(ask); }
  void granted(Instant now, std::uint64_t nonce, GuardActions& out);
  void frozen(Instant now, GuardActions& out);  // cgroup.events says that the task is frozen; look there before wake()
  // Takes what the shim's record says: in a new life of the agent before anything else, later whenever it changes.
  // `until`: the end of its lease.
  void told(AttemptNumber attempt, bool runs, Instant until);

  Instant deadline() const;
  bool is_freezing() const { return phase_ == Phase::freezing; }  // it waits for frozen()
  bool is_frozen() const { return phase_ == Phase::frozen; }      // the guard froze it; until the next grant

 private:
  enum class Phase : std::uint8_t { watching, freezing, frozen, idle };

  LeaseOptions options_;
  lease::Rules rules_;
  GrantedTime asks_;
  Phase phase_ = Phase::idle;
  AttemptNumber attempt_ = 0;  // the attempt of the newest grant
  Instant until_{}, freeze_by_{};
};

}  // namespace dtrain::task
