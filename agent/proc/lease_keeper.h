// The agent's own guard of one shim's lease (common/task/lease_guard.h): freezes the task if the shim, being stopped,
// does not. Watches nothing, and needs no timer, unless the shim reports that it runs under a lease.
#pragma once

#include <optional>
#include <string>

#include "agent/proc/record.h"
#include "common/task/lease_guard.h"

namespace dtrain::proc {

class LeaseKeeper {
 public:
  // Where the shim's processes are: the assignment's v2 cgroup, or "" and the value of their NOTIFY_SOCKET.
  void of(std::string cgroup, std::string notify);
  // Takes the shim's record: in a new life of the agent before anything else, then whenever it changes.
  void told(const ShimRecord& record);
  void asked(const shim::AskPacket& ask);
  void granted(Instant now, std::uint64_t nonce);  // to be called before the answer is passed on to the shim
  void forget();                                   // the shim is gone

  // Enforces the clock. Returns true if it has just frozen the task.
  bool enforce(Instant now);
  Instant deadline() const;
  bool is_frozen_here() const { return guard_ && guard_->is_frozen(); }

 private:
  void act(Instant now, const task::GuardActions& out);
  void begin_freeze();
  bool is_frozen();

  std::optional<task::LeaseGuard> guard_;
  std::string cgroup_, notify_;
  bool quiet_pass_ = false;  // without a cgroup: the last look found everything stopped
  Instant next_look_{};
};

}  // namespace dtrain::proc
