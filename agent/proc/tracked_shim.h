// The agent's view of one shim, living or dead: turns its packets, its death and the passing of time into Node events.
// Every command that has a completion gets exactly one, whatever happens to the shim in between.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "agent/base/epoll.h"
#include "agent/proc/cgroup.h"
#include "agent/proc/launch_file.h"
#include "agent/proc/lease_keeper.h"
#include "agent/proc/runner.h"
#include "agent/proc/shim_link.h"
#include "agent/proc/spare_shims.h"
#include "common/node/effect.h"
#include "common/node/event.h"

namespace dtrain::proc {

class TrackedShim {
 public:
  using Events = std::deque<node::Event>;
  // Which of a shim's descriptors a poller tag means; tag = handle * kTags + this.
  enum Tag : std::uint64_t { kSocketTag = 0, kPidTag = 1, kStandbyTag = 2, kTags = 4 };

  TrackedShim(AssignmentId id, std::string directory, std::uint64_t handle, Epoll& poller, SpareShims& spare, Events& events)
      : id_(std::move(id)), directory_(std::move(directory)), handle_(handle), poller_(poller), spare_(spare), events_(events) {}

  // ---- how it came to be known
  // `pidfd`: empty where its launcher answers later: launch_answered().
  void launched(ShimProcess process, const LaunchFile& launch, Instant now);  // -> ShimUp
  void launch_answered(std::optional<Error> refusal, Instant now);
  void launch_refused(Error error);  // -> ShimUp
  // At the start of the agent: connects if it lives. found() says what is known; settled() when that is all there is.
  void adopt(const LaunchFile& launch, Instant now);
  bool settled() const { return life_ != Life::greeting && life_ != Life::lost && life_ != Life::burying; }
  task::FoundShim found();

  // ---- commands
  void start(AttemptNumber attempt);
  void signal(const node::SignalTask& order);
  void kill(Instant now);
  void freeze(bool freeze);
  void answer_lease(const node::AnswerLease& answer, Instant now);
  void require_lease(const node::RequireLease& demand, std::uint64_t first_nonce);
  void end(Instant now);
  Status run(const Runner::Program& program);

  // ---- what happened
  void socket_ready(Instant now);
  void process_ended(Instant now);
  void enforce_lease(Instant now);  // before anything that was received is looked at
  void time_passed(Instant now);
  Instant deadline() const { return std::min({deadline_, obey_by_, lease_.deadline()}); }

  bool gone() const { return life_ == Life::gone; }
  bool up() const { return life_ == Life::up; }
  // It takes a start, and nothing of an attempt before is left.
  bool has_ended_all() const { return up() && !launching_ && pending_.empty() && !last_.active(); }
  bool lives() const { return !gone() && life_ != Life::burying; }
  const AssignmentId& id() const { return id_; }
  const std::string& directory() const { return directory_; }
  const LaunchFile& launch_file() const { return launch_; }
  std::int32_t main_pid() const { return last_.fixed.pid; }  // of the newest attempt, also of one that has ended
  std::int32_t shim_pid() const { return last_.fixed.shim_pid; }
  // Highest attempt that was ever started here, as far as is known.
  AttemptNumber last_attempt() const { return last_.fixed.attempt; }

 private:
  enum class Life : unsigned char {
    gone,      // no shim
    greeting,  // connected, its answer is awaited
    up,
    lost,     // the connection ended; whether the process did is not known yet
    burying,  // it is dead; what it left is being killed
  };
  struct Pending {
    shim::Command command;
    std::uint32_t argument;
  };

  bool greet(Instant now);
  void connect_again(Instant now);
  void on_reply(const shim::ReplyPacket& reply);
  void on_record(ShimRecord record);
  void on_ask(const shim::AskPacket& ask);
  void report_froze(bool frozen);
  void started_reply(AttemptNumber attempt, const shim::ReplyPacket& reply);
  void notify(const ShimRecord& record);
  void report_processes(const ShimRecord& record);
  void report_exit(task::Exit exit);
  void settle_pending(const std::string& cause);
  void note_started(AttemptNumber attempt, const shim::ReplyPacket& reply);
  void watch_process(pid_t pid);
  bool kill_tree();  // from here; true: there was something left
  void disobeyed();
  void bury(Instant now);
  void bury_more(Instant now);
  void finish_burial();
  void refuse_start(AttemptNumber attempt, Error error);
  Error unavailable(const std::string& what, const std::string& cause) const;
  void ask_end();
  void left(Instant now);
  void give_up_launch(const std::string& cause, Instant now);
  task::Exit known_exit(const ShimRecord& record) const;
  task::Exit unknown_exit() const;
  task::Exit with_port(task::Exit exit) const;

  AssignmentId id_;
  std::string directory_;
  std::uint64_t handle_;
  Epoll& poller_;
  SpareShims& spare_;
  Events& events_;

  Life life_ = Life::gone;
  ShimLink link_;
  UniqueFd pidfd_;
  std::size_t path_room_ = 0;  // of the process, see ShimProcess
  LaunchFile launch_;
  bool launching_ = false;     // ShimUp is owed
  bool answer_waits_ = false;  // its launcher has not said yet what became of it
  bool end_asked_ = false;     // ShimGone is owed
  bool stays_ = false;         // it has left this assignment and stays for another
  bool adopting_ = false;      // what is found goes into FoundShim, not into events
  bool reconnected_ = false;   // the next record settles what the earlier connection left open
  std::optional<Error> launch_error_;
  ShimRecord last_;  // newest known
  AttemptNumber exit_reported_ = 0;
  LeaseKeeper lease_;
  AttemptNumber froze_told_ = 0;              // the attempt of which LeaseFroze said last that it stands still
  std::map<std::uint32_t, Pending> pending_;  // by sequence
  Instant deadline_ = kNever;
  Instant give_up_ = kNever;  // lost: when it is killed
  Duration pause_{0};
  std::uint32_t kill_sequence_ = 0;  // of the newest kill, whose answer is awaited
  Instant obey_by_ = kNever;         // until then
};

}  // namespace dtrain::proc
