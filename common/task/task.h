// One assignment on this host: staged, launched, started, restarted in place, stopped. A pure state machine: it asks
// HostActions to act, and observation() shows its state.
//
//   phase       on entry                         leaves when
//   staging     stage()                          staged -> launching | failed
//   launching   launch()                         shim up -> staged
//   staged      -                                the order says go -> starting
//   starting    start(n)                         attempt started -> running | refused -> as exited. Under a lease
//                                                that waits for a grant: an order to stop -> ending
//   running     -                                exited -> backoff | ending
//   backoff     -                                delay over, nothing holds -> starting (launching if the shim died)
//   ending      end()                            shim gone -> reclaiming (over without GPUs, or where nothing began)
//   reclaiming  reclaim()                        its GPUs are free, or their host is known to be held -> over
//   over        -                                forgotten by Assignments once its end was reported
//
// An order to stop takes effect in every phase: what runs is signalled and later killed, what waits goes to ending.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/observation.h"
#include "common/task/order.h"
#include "common/task/shim_spec.h"

namespace dtrain::task {

// What a Task wants done; Node turns each call into an effect.
class HostActions {
 public:
  virtual ~HostActions() = default;
  virtual void stage(const TaskOrder& order) = 0;
  virtual void launch(ShimSpec spec) = 0;
  // The task is launched without CPUs of its own although it asks for whole ones; `reason` is for people.
  virtual void unbound(const AssignmentId& id, const std::string& reason) = 0;
  virtual void start(const AssignmentId& id, AttemptNumber attempt) = 0;
  // `grace`: for processes that outlive the main one.
  virtual void signal(const AssignmentId& id, std::int32_t signal, job::SignalTo to, Duration grace) = 0;
  virtual void kill(const AssignmentId& id) = 0;
  virtual void freeze(const AssignmentId& id, bool freeze) = 0;
  virtual void end(const AssignmentId& id) = 0;
  // Asks whether the GPUs of an assignment, of which nothing runs any more, are free. `since`: when it began here, or was adopted.
  virtual void reclaim(const TaskOrder& order, Instant since) = 0;
  // Tells a shim that was launched without a lease to run under one; the shim's first question confirms it.
  virtual void require_lease(const AssignmentId& id, Duration lease) = 0;
};

// Questions about the job or the host that a Task cannot answer alone.
class RestartGate {
 public:
  virtual ~RestartGate() = default;
  virtual bool budget_allows(const AssignmentId& id) const = 0;     // the job's budget has one more restart in place
  virtual bool predecessor_gone(const AssignmentId& id) const = 0;  // nothing of an older generation is left here
  virtual bool halt_expected(
      const AssignmentId& id) const = 0;  // a stateful task of its generation failed here, so a halt of the generation will follow
  // True if a task of its generation is frozen here for want of a lease; with `beside_leased` also if this host has
  // heard no coordinator for so long that leased tasks elsewhere must be frozen.
  virtual bool stands_still(const AssignmentId& id, bool beside_leased) const = 0;
  // Gives CPUs of its own to a shim that is about to be launched; returns why it gets none, or "" (bound_tasks.h).
  virtual std::string bind(ShimSpec& spec, const std::vector<std::int32_t>& gpu_nodes) = 0;
  virtual void unbind(const AssignmentId& id) = 0;    // to be called if that launch failed
  virtual void has_news(const AssignmentId& id) = 0;  // its observation is to be reported
};

// How many shims of a task in succession may die before an attempt begins in them. Each is replaced at no cost; one
// more counts as a failure of the attempt that it was to begin, or of the staging before the first attempt.
inline constexpr std::uint32_t kIdleShimDeaths = 4;
// Staging or launching is reported only if it lasts this long. Usually it takes milliseconds and the next phase is
// reported instead, which saves the ledger, where reports queue one after the other, two entries before a task starts.
inline constexpr Duration kTellStagingAfter = 200ms;

class Task {
 public:
  Task(TaskOrder order, const HostContext& host, HostActions& actions, RestartGate& gate);

  // Begins a new assignment, or continues one that `found` shows from an earlier life of the agent.
  void begin(Instant now, const FoundShim* found);
  void update(Instant now, TaskOrder order);
  // `host_refused`: as in TaskObservation.
  void staged(const Result<std::string>& work_dir, const std::string& host_refused = "");
  // The staging waits; `reason` says for what, for people.
  void waits(const std::string& reason);
  void shim_up(Instant now, const Status& result);
  void attempt_started(Instant now, AttemptNumber attempt, std::int32_t pid, WallTime at);
  void attempt_refused(Instant now, AttemptNumber attempt, const Error& error);
  void attempt_exited(Instant now, AttemptNumber attempt, const Exit& exit);
  void shim_gone(Instant now);
  void reclaimed();
  void freeze_done(Instant now, bool frozen, const Status& result);
  void notified(Instant now, AttemptNumber attempt, bool ready, bool watchdog);
  // Why a process of the attempt does not go on, for people; "": all do.
  void process_stopped(const std::string& why);
  // News of its standby, for the ledger.
  void standby_told(job::StandbyNews news, const std::string& cause);
  // Its shim asks for a grant, which shows that it runs under a lease; the coordinator answers; the shim froze or
  // thawed the attempt because of the lease. Answered but not granted: the assignment is no longer this host's, and
  // no further attempt begins.
  void lease_asked(std::uint64_t nonce);
  // Returns false if the nonce is not that of a recent question of this assignment.
  bool lease_answered(std::uint64_t nonce, bool granted);
  void lease_froze(Instant now, AttemptNumber attempt, bool frozen);
  // Does what time, or the end of a neighbour, has made possible.
  void advance(Instant now);

  Instant deadline() const;
  bool over() const { return phase_ == Phase::over; }
  bool running() const { return phase_ == Phase::running; }
  bool lease_frozen() const { return lease_frozen_; }
  // It failed, and the coordinator decides what follows: a halt of the generation.
  bool awaits_coordinator() const { return outcome_ == Outcome::failed && !order_.in_place; }
  AttemptNumber attempt() const { return attempt_; }
  std::int32_t pid() const { return pid_; }
  // Restarts that this host decided on and that the ledger does not know yet.
  std::uint32_t unreported_restarts() const;
  const TaskOrder& order() const { return order_; }

  // True if the observation differs from the last one taken and is to be reported.
  bool dirty() const { return dirty_; }
  job::TaskObservation take_observation();
  job::TaskObservation observation() const;

 private:
  enum class Phase : unsigned char { staging, launching, staged, starting, running, backoff, ending, reclaiming, over };
  enum class Outcome : unsigned char { none, succeeded, failed, on_request };

  const job::RoleSpec& role() const { return order_.context->spec.roles.at(order_.id.task.role); }
  bool in_image() const { return host_.runs_images && !role().image.empty(); }
  bool to_be_stopped() const {
    // A stop that has begun is completed, whatever is ordered meanwhile.
    return order_.desire != Desire::run || stop_announced_ || (attempt_ > 0 && order_.restart_attempt == attempt_);
  }
  bool preparing() const { return phase_ == Phase::staging || phase_ == Phase::launching; }
  void enter(Phase phase);
  void has_news();
  void watch_preparation(Instant now);
  void proceed(Instant now);
  void launch();
  void start_next(Instant now);
  void kill_overdue(Instant now);
  void after_exit(Instant now, bool counted);
  bool lacks_lease() const { return host_.needs_leases && wants_lease_ && shim_alive_ && lease_ == 0ns; }
  void require_lease(Instant now);
  void thaw(Instant now);
  void stood(Instant now);
  Instant overdue_at() const;
  bool frozen() const { return frozen_ || lease_frozen_; }
  bool job_stands_still() const { return order_.still || gate_.stands_still(order_.id, order_.beside_leased); }
  void conclude(Outcome outcome, std::string reason);
  void leave();
  void stop(Instant now);
  void stage_failure(const Error& error);
  Exit reportable(Exit exit) const;
  std::optional<std::string> why_no_restart(Instant now) const;
  ShimSpec shim_spec() const;

  TaskOrder order_;
  const HostContext& host_;
  HostActions& actions_;
  RestartGate& gate_;

  Phase phase_ = Phase::staging;
  Outcome outcome_ = Outcome::none;
  bool dirty_ = false;
  bool untold_ = true;  // the staging or launching is not reported yet; true in all other phases
  Instant tell_at_ = kNever;
  bool shim_alive_ = false;
  std::string work_dir_;
  AttemptNumber attempt_ = 0;  // the newest that was started
  AttemptNumber exit_attempt_ = 0;
  std::int32_t pid_ = 0;
  WallTime started_wall_{};
  Instant since_{};  // when begin() was called
  Instant started_{};
  std::optional<Exit> exit_;
  bool exit_on_request_ = false;
  bool ready_ = false;
  bool frozen_ = false, freeze_pending_ = false;  // because of an order
  const bool wants_lease_;
  Duration lease_{0};                         // of the lease that its shim runs under; 0: none
  std::array<std::uint64_t, 8> questions_{};  // nonces of its last questions; 0: none
  std::size_t next_question_ = 0;
  Instant require_at_{};  // when require_lease is repeated if its shim has not asked: the shim may not have been there
  bool lease_frozen_ = false, superseded_ = false;
  Instant froze_{};  // when lease_frozen_ became true
  Duration stood_still_{0};
  bool stood_ = false;             // job_stands_still() as last looked at
  bool spared_ = false;            // the newest exit is spared: the job stood still, the host ended it, or its shim died before it began
  bool never_began_ = false;       // of the newest exit, while it is handled
  std::uint32_t idle_deaths_ = 0;  // shims that died in succession since an attempt began
  bool stop_announced_ = false, stop_signalled_ = false, killed_ = false;
  std::string overdue_;  // why this host killed the attempt: its watchdog, or startTimeout
  bool stage_failed_ = false;
  ErrorCode stage_error_ = ErrorCode::internal;
  std::string host_refused_;
  job::StandbyNews standby_ = job::StandbyNews::none;  // that the ledger is not told yet
  std::string standby_cause_;
  std::string reason_, process_stopped_;
  Instant stop_deadline_ = kNever;
  Instant backoff_until_ = kNever;
  Instant last_sign_of_life_{};
  Instant not_ready_since_{};  // when startTimeout began to count
  std::uint32_t consecutive_failures_ = 0;
  std::vector<Instant> failures_;
};

}  // namespace dtrain::task
