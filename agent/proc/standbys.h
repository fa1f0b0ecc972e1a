// Standbys: beside each Python task that runs waits a shim of its own, whose processes have imported what the task's program imports. When
// the task comes again on this host, with the same place, that shim serves the new assignment, and its processes become the attempt
// (docs/warm-standby.md). Without one, or with one that fails in any way, the launch is the usual one. A standby is in a cgroup of its own
// with the task's memory limit, dies first where memory is short, and ends with the agent. When there is one is task::StandbyPlan's to say.
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
#include "common/task/standby_plan.h"

namespace dtrain::proc {

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
  // An assignment that an earlier agent launched and whose attempt runs: begins as if that had just started, if that agent had come to
  // begin one.
  void adopted(const AssignmentId& id, const std::string& directory, const LaunchFile& launch, std::uint64_t handle, Instant now);
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
  using Key = task::StandbyPlan::Key;
  enum class State : unsigned char { none, preparing, leaving, waits };
  // One task, and its standby if there is one.
  struct Entry {
    task::ShimSpec spec;
    LaunchFile task, launch;
    State state = State::none;
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

  const RunnerOptions& options_;
  Launchers& launchers_;
  Epoll& poller_;
  Report report_;
  std::map<Key, Entry> entries_;
  task::StandbyPlan plan_;
  std::vector<Ending> ending_;
};

}  // namespace dtrain::proc
