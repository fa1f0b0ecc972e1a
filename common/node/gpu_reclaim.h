// Are the GPUs of a task free once it has ended? Its whole tree is gone then, but a process may have got out of that (a container's
// engine, cron, the user's own service manager), and whoever is given the GPUs next would find their memory taken.
//
// Who holds a device node is looked at until nobody does, for kReclaimPatience: so long the task's end is not told, and the GPUs are
// nobody else's. Then the end is told, for its job must go on; but the host is given no new tasks, with the culprit as the reason,
// until the GPUs are free.
//
// No culprits are the processes of tasks, which end with these (a library may open every GPU to ask how it is), and those of system
// accounts (kFirstUserUid): services that watch the GPUs or keep their driver loaded. Where the task itself ran as such an account, its
// processes that began since the task did are culprits as well.
//
// Pure: FindGpuHolders looks (agent/proc/gpu_holders.h). A new life of the agent remembers nothing: a host that was held is given
// tasks again, and looked at when one of them ends.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/node/context.h"

namespace dtrain::node {

inline constexpr Duration kReclaimPatience = 10s;  // who was killed with the task may still be letting go of its memory
inline constexpr Duration kReclaimLook = 500ms;    // from one look at who holds them to the next
inline constexpr Duration kHeldLook = 10s;         // likewise, after the patience
inline constexpr std::uint32_t kFirstUserUid = 1000;  // Debian policy 9.2.2: below are system accounts
inline constexpr std::size_t kHoldersNamed = 4;

class GpuReclaim {
 public:
  explicit GpuReclaim(Context& c) : c_(c) {}

  // It began at `since`, or was adopted then, and nothing of it runs any more.
  void begin(const AssignmentId& id, const std::string& job_name, const job::User& user, Instant since, std::vector<task::OwnGpu> gpus);
  void found(const GpuHoldersFound& e);
  void drive();  // looks that are due
  Instant deadline() const;

  // Whose end may be told, since the last call.
  std::vector<AssignmentId> take_over() { return std::exchange(over_, {}); }
  // Its GPUs are held: the coordinator had not heard of it. Its staging fails, by take_staged().
  bool refuses(const task::TaskOrder& order);
  std::vector<Staged> take_staged() { return std::exchange(staged_, {}); }
  // Why this host is given no new tasks; "": nobody holds what is not theirs.
  std::string reason() const;

 private:
  struct Reclaim {
    AssignmentId id;
    std::string task;  // for people
    job::User user;
    Instant since{}, begun{};
    std::vector<task::OwnGpu> gpus;
    bool looking = false;
    Instant next{};     // look, unless looking
    std::string held;   // by whom, after the patience; "": not yet, and its end is not told
  };
  std::vector<GpuHolder> culprits(const Reclaim& reclaim, const std::vector<GpuHolder>& holders) const;
  std::string describe(const Reclaim& reclaim, const std::vector<GpuHolder>& culprits) const;

  Context& c_;
  std::map<std::uint64_t, Reclaim> reclaims_;  // by token; at most one of each task that ended here
  std::vector<AssignmentId> over_;
  std::vector<Staged> staged_;
};

}  // namespace dtrain::node
