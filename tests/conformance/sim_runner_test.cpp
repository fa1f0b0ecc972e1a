// The simulator's fake passes the suite of the real launchers: what Node is simulated with is what it runs on.
#include <csignal>

#include "tests/conformance/runner_suite.h"
#include "tests/sim/fake_runner.h"

namespace dtrain::conformance {
namespace {

constexpr Duration kVirtualBound = 60s;

class SimWorld final : public RunnerWorld {
 public:
  SimWorld() { agent_returns(); }

  proc::Runner& runner() override { return *runner_; }

  bool pump(proc::EventSink& sink, const std::function<bool()>& condition) override {
    sim::Timeline& time = host_.timeline();
    const Instant end = time.now() + kVirtualBound;
    for (;;) {
      if (runner_) runner_->dispatch(sink);
      if (condition()) return true;
      if (time.next() > end) return false;
      time.run_next();
    }
  }

  task::ShimSpec spec(const AssignmentId& id, const Behaviour& behaviour) override {
    sim::Script script;
    script.forever = behaviour.kind == Behaviour::runs_on;
    script.missing = behaviour.kind == Behaviour::missing_program;
    if (behaviour.kind == Behaviour::exits) {
      script.run_min = script.run_max = 1ms;
      script.ok = behaviour.code == 0 ? 100 : 0;
      script.code = behaviour.code;
    }
    if (behaviour.ready || !behaviour.status.empty()) script.ready = 1ms;
    script.says = behaviour.status;
    script.ignore_term = behaviour.ignores_term;
    script.children = behaviour.leaves_children ? static_cast<std::uint32_t>(children()) : 0;
    task::ShimSpec spec;
    spec.id = id;
    spec.argv = script.argv();
    return spec;
  }

  void agent_dies() override { runner_.reset(); }
  void agent_returns() override { runner_ = std::make_unique<sim::FakeRunner>(host_); }
  void shim_dies(const AssignmentId& id) override { host_.runner().kill_shim(id); }
  void shim_stops(const AssignmentId& id) override { host_.runner().stop_shim(id); }
  void shim_continues(const AssignmentId& id) override { host_.runner().continue_shim(id); }
  void process_dies(const AssignmentId& id, std::int32_t) override { host_.runner().kill_process(id, SIGKILL); }

  int children() const override { return 3; }
  int processes(const AssignmentId& id) override {
    const sim::SimShim* shim = find(id);
    return shim != nullptr && shim->running ? (shim->main_ended ? 0 : 1) + static_cast<int>(shim->script.children) : 0;
  }
  int running_processes(const AssignmentId& id) override {
    const sim::SimShim* shim = find(id);
    return shim != nullptr && shim->frozen ? 0 : processes(id);
  }

 private:
  const sim::SimShim* find(const AssignmentId& id) {
    const auto it = host_.runner().shims().find(id);
    return it == host_.runner().shims().end() ? nullptr : &it->second;
  }

  sim::FakeHost host_;
  std::unique_ptr<sim::FakeRunner> runner_;
};

INSTANTIATE_TEST_SUITE_P(Simulated, RunnerSuite, testing::Values(WorldFactory{"simulated", [] { return std::make_unique<SimWorld>(); }}),
                         world_name);

}  // namespace
}  // namespace dtrain::conformance
