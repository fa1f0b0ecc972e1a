// The lease of one assignment of an exclusive task, as its shim holds it: when the task may start, run and thaw.
// docs/leases.md has the rules.
//
// The shim asks {attempt, nonce} and notes t0 of its own CLOCK_BOOTTIME; a grant is good until t0 + lease, whenever it
// arrives. A second before that the task is frozen. Every call first enforces what the clock says; only then what was
// received is looked at. After a start, a restart or a freeze all questions asked before are forgotten, so that only
// a grant asked for afterwards starts or thaws.
//
// Contract: pure, allocates nothing, throws nothing. Call wake() at deadline() and after every wake-up before reading
// a socket; do the actions at once, in the order of LeaseActions; after a start or a thaw read the clock again and
// call wake(): the shim may have been stopped in between. Instants are CLOCK_BOOTTIME of this host and never go back.
// `epoch` is that of the coordinator whose word it is: a lower one than any seen is refused.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "common/base/ids.h"
#include "common/base/lease.h"
#include "common/base/time.h"
#include "common/task/lease_rules.h"

namespace dtrain::task {

struct LeaseOptions {
  Duration lease = 10s;         // longer than twice kFreezeAhead
  Duration ask_every = 2s;      // while granted
  Duration ask_retry = 500ms;   // without an answer, and while the task stands still for want of one
  // Runs without a lease (onDisconnect: keep; a cluster of one host), until require().
  bool exempt = false;
  std::string_view broken_rule{};
};

// A question for the coordinator. The task is named by who passes it on.
struct LeaseAsk {
  AttemptNumber attempt = 0;
  std::uint64_t nonce = 0;
  Instant t0{};
};

// What to do now, in the order of the members.
struct LeaseActions {
  bool kill = false;      // cgroup.kill, as it is: frozen or not
  bool unfenced = false;  // the end must say so: it could not be frozen in time
  bool freeze = false;    // write cgroup.freeze 1; say frozen() when cgroup.events says so
  bool thaw = false;      // write cgroup.freeze 0
  bool start = false;     // start the attempt, in a cgroup that is not frozen
  bool signal = false;    // the stop signal
  std::optional<LeaseAsk> ask;
};

// The latest questions and until when the task may run.
class GrantedTime {
 public:
  static constexpr std::size_t kAsksKept = 8;  // older questions are forgotten, their answers ignored

  void asked(const LeaseAsk& ask) {
    asks_[next_] = ask;
    next_ = (next_ + 1) % kAsksKept;
  }
  void forget_asks() { asks_.fill({}); }
  // The question that this answers; it is answered once.
  std::optional<LeaseAsk> take(std::uint64_t nonce);
  // The newest question: what stands in where a rule is broken.
  LeaseAsk newest() const { return asks_[(next_ + kAsksKept - 1) % kAsksKept]; }

 private:
  std::array<LeaseAsk, kAsksKept> asks_{};  // nonce 0: none
  std::size_t next_ = 0;
};

class Lease {
 public:
  enum class Phase : std::uint8_t {
    idle,      // nothing runs
    waiting,   // a start was ordered; no grant yet
    running,
    freezing,  // asked for, not yet confirmed
    frozen,
    killing,   // until ended()
  };

  // `first_nonce`: random, so that no two shims ever ask the same; not 0. `epoch`: the highest that the agent knows.
  Lease(const LeaseOptions& options, std::uint64_t first_nonce, std::uint64_t epoch);

  void wake(Instant now, LeaseActions& out) { enforce(now, out); }
  // False: refused (a lower epoch, not a higher attempt, something still runs, or superseded).
  bool start(Instant now, AttemptNumber attempt, std::uint64_t epoch, LeaseActions& out);
  // A start that waits for its grant is taken back; the same attempt may be ordered again. False: none waits.
  bool withdraw();
  bool granted(Instant now, std::uint64_t nonce, std::uint64_t epoch, LeaseActions& out);
  // The assignment is another's, or nobody's: final.
  bool superseded(Instant now, std::uint64_t epoch, LeaseActions& out);
  // The signal; killed after `grace`. What is frozen is thawed first, which takes a grant.
  bool stop(Instant now, Duration grace, std::uint64_t epoch, LeaseActions& out);
  bool kill(Instant now, std::uint64_t epoch, LeaseActions& out);
  // Frozen until released for another reason than the lease (onPsFailure: freeze).
  bool hold(Instant now, bool on, std::uint64_t epoch, LeaseActions& out);
  // cgroup.events says frozen now, whoever asked for it. Look there after every wake-up, and before wake().
  void frozen(Instant now, LeaseActions& out);
  // A coordinator of this epoch was heard of: its predecessors are refused from now on.
  bool accept(std::uint64_t epoch) { return admit(epoch); }
  // No longer exempt: a first grant must come within one lease.
  void require(Instant now, LeaseActions& out);
  // Nothing of the attempt is left.
  void ended(Instant now, LeaseActions& out);

  // The earliest useful wake().
  Instant deadline() const;

  Phase phase() const { return phase_; }
  AttemptNumber attempt() const { return attempt_; }
  std::uint64_t epoch() const { return epoch_; }  // the highest seen: to be kept wherever this shim's record is
  bool is_superseded() const { return superseded_; }
  Instant until() const { return until_; }

 private:
  using Rule = lease::Rule;
  void enforce(Instant now, LeaseActions& out);
  bool admit(std::uint64_t epoch);
  bool exists() const { return phase_ == Phase::running || phase_ == Phase::freezing || phase_ == Phase::frozen; }
  bool wants_grant() const;
  void begin_freeze(Instant now, LeaseActions& out);
  void begin_kill(LeaseActions& out);
  void use(const LeaseAsk& ask, Instant until, LeaseActions& out);
  void ask(Instant now, LeaseActions& out);

  LeaseOptions options_;
  lease::Rules rules_;
  GrantedTime asks_;
  Phase phase_ = Phase::idle;
  AttemptNumber attempt_ = 0;
  std::uint64_t nonce_, epoch_;
  Instant until_{};           // the task may run before
  Instant next_ask_{};
  Instant freeze_by_{};       // while freezing
  Instant kill_at_ = kNever;  // the end of a graceful stop's grace
  bool stopping_ = false, signalled_ = false, held_ = false, superseded_ = false, exempt_;
};

}  // namespace dtrain::task
