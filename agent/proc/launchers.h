// The launchers of one host. Each assignment is launched by the first of them that takes it; the order is the caller's. Which launcher
// started the shim of an assignment follows from its launch file, also for an agent that finds the shim alive.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "agent/proc/launcher.h"

namespace dtrain::proc {

class Launchers {
 public:
  void add(std::unique_ptr<Launcher> launcher) { lines_.push_back({std::move(launcher), {}}); }

  // The launcher that started the shim of that launch file; null if this host has it no more.
  Launcher* that_started(const LaunchFile& launch);

  // An assignment waits until the launcher that takes it has room: each launcher has a line of its own, so that none waits for another's
  // shims. Fails if no launcher takes the assignment.
  Status wait(task::ShimSpec spec);
  bool waits(const AssignmentId& id) const;
  void forget(const AssignmentId& id);
  bool can_launch() const;
  struct Due {
    task::ShimSpec spec;
    Launcher& launcher;
  };
  // Takes from each line the assignment that waited longest, if its launcher has room.
  std::vector<Due> next();

  void dispatch(const Launcher::OnAnswer& on_answer);
  Instant deadline() const;

 private:
  struct Line {
    std::unique_ptr<Launcher> launcher;
    std::deque<task::ShimSpec> waiting;
  };

  std::vector<Line> lines_;
};

}  // namespace dtrain::proc
