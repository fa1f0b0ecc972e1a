// The parent of one assignment's attempts, as one state machine: at most one attempt at a time, with ascending
// numbers; an attempt is over only when nothing of it is left. States and files: docs/shim.md.
#pragma once

#include <optional>

#include "agent/dtrain-shim/journal_copy.h"
#include "agent/dtrain-shim/launch.h"
#include "agent/dtrain-shim/launched.h"
#include "agent/dtrain-shim/link.h"
#include "agent/dtrain-shim/log_writer.h"
#include "agent/dtrain-shim/notify.h"
#include "agent/dtrain-shim/processes.h"
#include "agent/dtrain-shim/standbys.h"
#include "agent/dtrain-shim/tree.h"
#include "common/task/lease.h"

namespace dtrain::shim {

class Shim {
 public:
  // Prepares everything in the assignment's directory. `unit`: the service that this process is; nullptr: none. `again`:
  // this process had another assignment before. On failure the agent at kBirthSocket is told, if there is one.
  bool open(const char* directory, const char* unit, bool again);
  // Returns when the shim was told to end and nothing is left. True: the shim stays for another assignment, as the
  // agent knows; its connection is kBirthSocket again, and nothing else is open.
  bool run();

 private:
  // kOutput + 2 * process + stream; kStandbyAnswer + its number; kLaunched + its number
  enum Source : uint64_t {
    kSignals,
    kListener,
    kAgent,
    kNotify,
    kCgroup,
    kLeaseTimer,
    kOutput,
    kStandbyAnswer = kOutput + 2 * kMostRanks,
    kLaunched = kStandbyAnswer + kMostRanks
  };
  using Open = bool (Shim::*)();

  // ---- set-up (shim_open.cpp)
  bool take_descriptors();
  bool become_daemon();
  bool open_events();
  bool load_launch();
  bool is_meant() const;
  bool is_wanted() const;
  bool join_cgroups();
  bool open_files();
  bool open_sockets();
  bool open_lease();
  bool open_standbys();
  bool watch_agent();
  bool watch(int fd, uint64_t source, uint32_t events);

  // ---- the agent
  void agent_ready(uint32_t events);
  void obey(const CommandPacket& command, int (&fds)[kRunDescriptors]);
  Outcome start(const CommandPacket& command, ReplyPacket& reply, bool& answer_now);
  Outcome begin_attempt(uint32_t attempt, ReplyPacket& reply);
  ProcessStart start_process();
  bool starts_more() const { return may_start() && more_to_start(); }
  bool may_start() const;  // an attempt runs, and does not stand still
  bool stands_still() const { return (record_.flags & (kFrozen | kLeaseFrozen)) != 0 || freeze_deadline_ != 0 || held_; }
  Outcome run_beside(const CommandPacket& command, int (&fds)[kRunDescriptors]);
  bool more_to_start() const;
  void start_next();
  void end_lead();  // before somebody else stops or wakes processes
  void note_cold();
  void standby_answered(uint32_t index);
  Outcome freeze(const CommandPacket& command, bool& answer_now);
  void answer_freeze(Outcome outcome, int error);
  void new_connection();
  void changed();  // the record changed: tells the agent and writes `state`
  void flush();

  // ---- the lease (shim_lease.cpp); a shim without a lease uses none of this
  bool begin_lease(int64_t lease_ns, uint64_t epoch, uint64_t first_nonce, bool exempt);
  void enforce_lease();  // enforces the clock: after every wake-up, before anything is read
  void arm_lease_timer();
  void act(const task::LeaseActions& actions, uint16_t flags_before);
  template <class Step>
  void step_lease(Step step) {
    const uint16_t flags = record_.flags;
    task::LeaseActions actions;
    step(actions);
    act(actions, flags);
    arm_lease_timer();
  }
  void stop_freezing();
  void lease_timers();
  Outcome order_start(const CommandPacket& command, bool& answer_now);
  void granted_start();
  void withdraw_start(Outcome outcome);
  void owe_start(Outcome outcome, ReplyPacket& reply);
  void pay_start();
  Outcome order_freeze(const CommandPacket& command, bool& answer_now);
  void answer_hold(Outcome outcome, int error);
  Outcome lease_answer(const CommandPacket& command);
  Outcome require_lease(const CommandPacket& command);
  void lease_attempt_ended();

  // ---- the attempt
  void signalled();
  void reap();
  void process_ended(uint32_t index, int status);
  void attempt_ends(uint32_t index, int code, int signal);
  void blame_stuck();
  bool note_stopped();
  Outcome signal(const CommandPacket& command);  // in shim_stop.cpp
  void signal_task(int number, bool whole_tree);
  void wake_stopped();
  void give_grace(int64_t grace_ns);
  void kill_tree();
  void host_stops();
  void pass_stop();
  void step_ending();
  void finish_attempt();
  void step_freeze();
  size_t read_piece(uint32_t process, int stream, size_t limit);
  void drain_output();
  void read_notifications();
  void watch_cgroup(bool on);

  size_t encode(char* out, bool with_tail) const;
  void write_state();
  void reserve_exit_record();
  void write_exit_record();
  bool runs() const { return record_.phase == uint8_t(Phase::running); }
  bool ends() const { return record_.phase == uint8_t(Phase::ending); }
  int timeout_ms() const;
  void timers();
  bool may_stay() const;
  void remove_sockets();

  const char* unit_ = nullptr;  // the service that it was started as
  bool again_ = false;
  Launch launch_;
  Tree tree_;
  LogWriter log_;
  JournalCopy journal_;
  NotifySocket notify_;
  Link link_;
  Record record_;
  char status_[kStatusBytes];
  Processes processes_;
  Standbys standbys_;
  Launched launched_;

  uint32_t agent_events_ = 0;  // events for which epoll_ watches the agent's connection
  int epoll_ = -1, signals_ = -1, state_ = -1, draft_ = -1;
  task::Lead lead_;            // of the first rank
  uint32_t last_process_ = 0;  // the one whose end was the attempt's
  uint32_t blamed_ = 0;        // the one that stood still or was silent when the attempt was killed; kMostRanks: none
  bool childless_ = true;      // the newest wait found no child at all
  bool watching_cgroup_ = false;
  bool deaf_ = false;          // notifications are not read
  uint64_t memory_kills_ = 0;  // counted so far

  int64_t kill_due_ = 0, kill_pause_ = 0;         // while ending: when to kill again what is left
  int64_t grace_until_ = 0;                       // processes that outlive the main one are left alone until then
  int64_t freeze_deadline_ = 0, freeze_due_ = 0;  // 0: no freeze is in progress
  uint32_t freeze_sequence_ = 0;
  int64_t sync_due_ = 0;  // 0: the exit record is on disk
  std::optional<task::Lease> lease_;
  int lease_timer_ = -1;  // a timerfd, because epoll's own timeout does not run while the host sleeps
  int64_t lease_timer_at_ = 0;
  bool held_ = false;            // frozen by an order, not only by the lease
  uint32_t start_sequence_ = 0;  // 0: no start waits for its grant
  bool start_owed_ = false;      // the answer to the start is owed
  bool begun_ = false;           // an attempt has begun that `state` does not show yet
  ReplyPacket start_reply_;
  bool leaving_ = false;       // it was told to end
  bool stay_asked_ = false;    // and was told to stay for another assignment
  bool stays_ = false;         // the agent was told that it stays
  int64_t host_stops_ns_ = 0;  // when the newest SIGTERM came; 0: none came
  uint32_t end_sequence_ = 0;
};

}  // namespace dtrain::shim
