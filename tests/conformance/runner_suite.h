// What every Runner must do, stated once: runner_suite.cpp holds the cases, and each launcher and the simulator's fake
// instantiates them with its own world:
//
//   INSTANTIATE_TEST_SUITE_P(Direct, RunnerSuite, testing::Values(WorldFactory{"direct", make_direct_world}), world_name);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/proc/runner.h"

namespace dtrain::conformance {

// What the task of a case does. Each world writes it in the words of its own host.
struct Behaviour {
  enum Kind { runs_on, exits, missing_program } kind = runs_on;
  int code = 0;          // of `exits`, at once
  bool ready = false;    // sends READY=1 when all of this is set up,
  std::string status{};  // then this STATUS=
  bool ignores_term = false;
  bool leaves_children = false;  // has forked some, one of them into a session of its own
  std::string says{};            // on stderr
};

// A host with an agent on it. The host outlives the agent.
class RunnerWorld {
 public:
  virtual ~RunnerWorld() = default;
  virtual proc::Runner& runner() = 0;
  // Lets time pass and hands every event to `sink` until the condition holds; false when it never did. Real worlds
  // wait with a generous bound, simulated ones move their clock.
  virtual bool pump(proc::EventSink& sink, const std::function<bool()>& condition) = 0;

  virtual task::ShimSpec spec(const AssignmentId& id, const Behaviour& behaviour) = 0;
  // The agent is killed: runner() must not be called. Then another one comes, and list() is its first call.
  virtual void agent_dies() = 0;
  virtual void agent_returns() = 0;
  virtual void shim_dies(const AssignmentId& id) = 0;   // kill -9
  virtual void shim_stops(const AssignmentId& id) = 0;  // SIGSTOP; its task runs on
  virtual void shim_continues(const AssignmentId& id) = 0;
  virtual void process_dies(const AssignmentId& id, std::int32_t pid) = 0;  // kill -9 of the task's main process
  virtual int children() const = 0;                                         // that `leaves_children` has, once they are settled
  // Processes of that assignment's tasks that are alive and not stopped, shim excluded.
  virtual int processes(const AssignmentId& id) = 0;
  virtual int running_processes(const AssignmentId& id) = 0;
};

struct WorldFactory {
  std::string name;
  std::function<std::unique_ptr<RunnerWorld>()> make;
};

inline std::string world_name(const testing::TestParamInfo<WorldFactory>& info) { return info.param.name; }

class RunnerSuite : public testing::TestWithParam<WorldFactory> {
 protected:
  RunnerSuite();
  ~RunnerSuite() override;  // ends every shim that the case launched

  bool pump(const std::function<bool()>& condition) { return world_->pump(sink_, condition); }
  void launch(const AssignmentId& id, const Behaviour& behaviour);      // until ShimUp
  std::int32_t start(const AssignmentId& id, AttemptNumber attempt);    // until AttemptStarted; its pid
  task::Exit wait_exit(const AssignmentId& id, AttemptNumber attempt);  // until AttemptExited
  void settle(const AssignmentId& id, int processes);                   // until that many run
  std::vector<task::FoundShim> restart_agent();
  // leases (lease_suite.cpp)
  void launch_leased(const AssignmentId& id, const Behaviour& behaviour);
  void answer(const node::LeaseAsked& asked, bool granted, std::uint64_t epoch);
  bool until_asked(const AssignmentId& id);  // once more from now on
  bool until_froze(bool frozen);
  std::int32_t start_granted(const AssignmentId& id, AttemptNumber attempt);

  template <class E>
  const E* last(const AssignmentId& id) const {
    for (auto event = events_.rbegin(); event != events_.rend(); ++event)
      if (const auto* found = std::get_if<E>(&*event); found != nullptr && found->id == id) return found;
    return nullptr;
  }
  // Which of the events so far is the first of that kind.
  template <class E>
  std::ptrdiff_t first() const {
    return std::find_if(events_.begin(), events_.end(), [](const auto& event) { return std::holds_alternative<E>(event); }) -
           events_.begin();
  }
  template <class E>
  int count(const AssignmentId& id) const {
    int n = 0;
    for (const node::Event& event : events_)
      if (const auto* found = std::get_if<E>(&event); found != nullptr && found->id == id) ++n;
    return n;
  }

  std::unique_ptr<RunnerWorld> world_;
  std::vector<node::Event> events_;
  proc::EventSink sink_;
  std::set<AssignmentId> launched_;
  const AssignmentId worker_{7, 1, {"worker", 0}};
};

}  // namespace dtrain::conformance
