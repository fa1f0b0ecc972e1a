// The simulator's host as a Runner, so that the conformance suite (tests/conformance) tests the fake with which Node
// is simulated by the same cases as the real launcher. Time is virtual: the owner of the FakeHost advances it.
#pragma once

#include <memory>
#include <vector>

#include "agent/proc/runner.h"
#include "common/base/rng.h"
#include "tests/sim/sim_runner.h"
#include "tests/sim/timeline.h"

namespace dtrain::sim {

// What outlives the agent: pass the same FakeHost to one FakeRunner after the other to simulate restarts.
class FakeHost {
 public:
  explicit FakeHost(std::uint64_t seed = 1);
  ~FakeHost();
  SimRunner& runner() { return *runner_; }
  Timeline& timeline() { return timeline_; }
  std::vector<node::Event>& events() { return events_; }  // not yet dispatched

 private:
  Timeline timeline_;
  std::vector<node::Event> events_;
  std::unique_ptr<SimRunner> runner_;
};

class FakeRunner final : public proc::Runner {
 public:
  explicit FakeRunner(FakeHost& host) : host_(host) {}
  ~FakeRunner() override;  // the agent dies: shims and tasks live on
  FakeRunner(const FakeRunner&) = delete;
  FakeRunner& operator=(const FakeRunner&) = delete;

  std::vector<task::FoundShim> list() override;
  void launch(const task::ShimSpec& spec) override;
  void start(const AssignmentId& id, AttemptNumber attempt) override;
  void signal(const node::SignalTask& order) override;
  void kill(const AssignmentId& id) override;
  void freeze(const AssignmentId& id, bool freeze) override;
  void answer_lease(const node::AnswerLease& answer) override;
  void require_lease(const node::RequireLease& demand) override;
  void end(const AssignmentId& id) override;
  void remove_files(const AssignmentId& id) override;
  Status run_beside(const AssignmentId&, const Program&) override { return fail(ErrorCode::refused, "nothing runs here"); }
  std::optional<AssignmentId> task_of(pid_t) const override { return std::nullopt; }
  int fd() const override { return -1; }  // nothing to poll for: time is virtual
  Instant deadline() const override { return host_.timeline().next(); }
  void dispatch(proc::EventSink& sink) override;

 private:
  FakeHost& host_;
};

}  // namespace dtrain::sim
