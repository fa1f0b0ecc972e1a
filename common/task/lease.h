// The lease of one assignment of an exclusive task, as its shim keeps it: decides when the task may start, run and
// thaw. docs/leases.md has the rules.
//
// The shim asks {attempt, nonce} and notes t0 on its own CLOCK_BOOTTIME; a grant is good until t0 + lease, whenever
// it arrives. One second before that the task is frozen. Every call first enforces what the clock says, and only then
// looks at what was received. After a start, a restart or a freeze all earlier questions are forgotten, so that only
// a grant asked for afterwards starts or thaws the task.
//
// Contract: pure, allocates nothing, throws nothing. The caller must call wake() at deadline() and after every
// wake-up before it reads a socket; carry out the actions at once, in the order of LeaseActions; and after a start or
// a thaw read the clock again and call wake(), because the shim may have been stopped in between. Instants are
// CLOCK_BOOTTIME of this host and never go back. `epoch` is that of the coordinator that sent the answer; one lower
// than any seen is refused. The agent's orders have none: an agent follows its copy of the log alone.
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
  Duration lease = 10s;        // longer than twice kFreezeAhead
  Duration ask_every = 2s;     // while a lease is granted
  Duration ask_retry = 500ms;  // while a question is unanswered, and while the task is frozen for want of a lease
  // The task runs without a lease (onDisconnect: keep; a cluster of one host) until require().
  bool exempt = false;
  std::string_view broken_rule{};
};

// A question for the coordinator. The agent that passes it on adds which task it is about.
struct LeaseAsk {
  AttemptNumber attempt = 0;
  std::uint64_t nonce = 0;
  Instant t0{};
};

// What to do now, in the order of the fields.
struct LeaseActions {
  bool kill = false;      // cgroup.kill, whether the task is frozen or not
  bool unfenced = false;  // the exit record must say that the task could not be frozen in time
  bool freeze = false;    // write cgroup.freeze 1; call frozen() when cgroup.events reports it
  bool thaw = false;      // write cgroup.freeze 0
  bool start = false;     // start the attempt, in a cgroup that is not frozen
  std::optional<LeaseAsk> ask;
};

// The latest questions, so that an answer is counted from when its question was asked.
class GrantedTime {
 public:
  static constexpr std::size_t kAsksKept = 8;  // older questions are forgotten and their answers ignored

  void asked(const LeaseAsk& ask) {
    asks_[next_] = ask;
    next_ = (next_ + 1) % kAsksKept;
  }
  void forget_asks() { asks_.fill({}); }
  // Returns and removes the question with that nonce; each is answered once.
  std::optional<LeaseAsk> take(std::uint64_t nonce);
  // The newest question, used where a rule is broken on purpose.
  LeaseAsk newest() const { return asks_[(next_ + kAsksKept - 1) % kAsksKept]; }

 private:
  std::array<LeaseAsk, kAsksKept> asks_{};  // nonce 0: none
  std::size_t next_ = 0;
};

class Lease {
 public:
  enum class Phase : std::uint8_t {
    idle,     // nothing runs
    waiting,  // a start was ordered and there is no grant yet
    running,
    freezing,  // a freeze was asked for and is not confirmed yet
    frozen,
    killing,  // until ended()
  };

  // `first_nonce`: random, so that no two shims ever use the same nonce; not 0. `epoch`: the highest that the agent knows.
  Lease(const LeaseOptions& options, std::uint64_t first_nonce, std::uint64_t epoch);

  void wake(Instant now, LeaseActions& out) { enforce(now, out); }
  // Returns false if refused: an attempt that is not higher, something still runs, or superseded.
  bool start(Instant now, AttemptNumber attempt, LeaseActions& out);
  // Takes back a start that waits for its grant; the same attempt may be ordered again. Returns false if none waits.
  bool withdraw();
  // Returns false if it changes nothing, because of a lower epoch or otherwise. Likewise below.
  bool granted(Instant now, std::uint64_t nonce, std::uint64_t epoch, LeaseActions& out);
  // The assignment belongs to another host or to nobody: final.
  bool superseded(Instant now, std::uint64_t epoch, LeaseActions& out);
  // Freezes the task until released, for a reason other than the lease (onPsFailure: freeze).
  bool hold(Instant now, bool on, LeaseActions& out);
  // To be called when cgroup.events says that the task is frozen, whoever froze it. The caller must look there after
  // every wake-up, before wake().
  void frozen(Instant now, LeaseActions& out);
  // The task is no longer exempt: its first grant must come within one lease.
  void require(Instant now, LeaseActions& out);
  // To be called when nothing of the attempt is left.
  void ended(Instant now, LeaseActions& out);

  // The earliest useful wake().
  Instant deadline() const;

  Phase phase() const { return phase_; }
  AttemptNumber attempt() const { return attempt_; }
  std::uint64_t epoch() const { return epoch_; }  // the highest seen, to be stored with this shim's record
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
  Instant until_{};  // end of the lease
  Instant next_ask_{};
  Instant freeze_by_{};  // the confirmation is due; while freezing
  bool held_ = false, superseded_ = false, exempt_;
};

}  // namespace dtrain::task
