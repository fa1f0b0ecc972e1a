// Standbys: beside each Python task that runs waits a shim of its own, whose processes have imported what the task's program imports. When
// the task comes again on this host, with the same place, that shim serves the new assignment, and its processes become the attempt
// (docs/warm-standby.md). Without one, or with one that fails in any way, the launch is the usual one. A standby is in a cgroup of its own
// with the task's memory limit, dies first where memory is short, and ends with the agent.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/base/epoll.h"
#include "agent/proc/launchers.h"
#include "agent/proc/runner.h"
#include "agent/proc/shim_link.h"
#include "agent/proc/spare_shims.h"

namespace dtrain::proc {

inline constexpr Duration kStandbyAfter =
    2s;  // from the start of an attempt to that of its standby: a script that fails at once needs none
inline constexpr Duration kStandbyBound = 300s;            // from then on, until it is ready; it runs niced
inline constexpr Duration kStandbyStays = 15s;             // from the end of an assignment to the next of the same task
inline constexpr std::size_t kStandbys = 64;               // of an agent
inline constexpr std::size_t kStandbysOfUser = 32;         // of these
inline constexpr Duration kMemoryPause = 2s;               // between two looks at the host's memory while there are standbys
inline constexpr std::uint64_t kLeastMemory = 1ull << 30;  // no standby waits, nor begins, where less than this is available

class Standbys {
 public:
  using Report = std::function<void(node::StandbyReport)>;
  // `launchers` and `poller` must outlive this. `report` is given the news of each.
  Standbys(const RunnerOptions& options, Launchers& launchers, Epoll& poller, Report report)
      : options_(options), launchers_(launchers), poller_(poller), report_(std::move(report)) {}

  // What an agent that was killed left behind ends. `in_use`: the cgroups of assignments.
  void clear(const std::vector<std::string>& in_use);

  // ---- of the assignments of this host
  void launched(const task::ShimSpec& spec, const LaunchFile& launch);
  // `handle`: for the poller, see ready().
  void started(const AssignmentId& id, std::uint64_t handle, Instant now);
  void exited(const AssignmentId& id, bool success, Instant now);
  void gone(const AssignmentId& id, Instant now);

  // What was launched under that id, if its standby waits; else null.
  const task::ShimSpec* ready_for(const AssignmentId& id);
  // The launch file of the standby that can run this; null: there is none. It stays until take() or drop().
  const LaunchFile* waits_for(const task::ShimSpec& spec) const;
  // Tells it to serve the assignment in that directory. nullopt: it is gone.
  std::optional<ShimProcess> take(const AssignmentId& id, const std::string& directory, Instant now);

  // A launcher's answer about that cgroup. False: it is not a standby's.
  bool answered(const std::string& cgroup, const std::optional<Error>& refusal, Instant now);
  void ready(std::uint64_t handle, Instant now);
  void pass_time(Instant now);
  Instant deadline() const;

 private:
  using Key = std::pair<JobId, TaskId>;
  enum class State : unsigned char { none, preparing, leaving, waits };
  // One task, and its standby if it has one.
  struct Entry {
    task::ShimSpec spec;
    LaunchFile task, launch;
    State state = State::none;
    bool runs = false;     // an attempt of the task
    Instant due = kNever;  // none: the start; preparing: given up; waits: nobody comes any more
    std::uint64_t handle = 0;
    ShimLink link;
    ShimProcess process;
    std::string directory;
    bool settled = false;  // the launcher knows who it is
  };
  struct Ending {
    UniqueFd pidfd;
    LaunchFile launch;
    std::string directory;
    Duration pause{0};
    Instant look_at{};
  };

  Entry* find(const AssignmentId& id);
  Status start(Entry& entry, Instant now);
  void receive(Entry& entry, Instant now);
  bool on_record(Entry& entry, const ShimRecord& record, Instant now);
  void fail(Entry& entry, const std::string& cause, Instant now);
  void end(Entry& entry, Instant now);  // the standby, not the task
  void bury(Ending& ending, Instant now);
  void look_at_memory(Instant now);
  std::size_t count() const;
  bool has_room_for(const Entry& entry) const;

  const RunnerOptions& options_;
  Launchers& launchers_;
  Epoll& poller_;
  Report report_;
  std::map<Key, Entry> entries_;
  std::vector<Ending> ending_;
  Instant memory_at_ = kNever;
};

}  // namespace dtrain::proc
