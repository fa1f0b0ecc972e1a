#include "tests/sim/fake_runner.h"

#include <utility>

namespace dtrain::sim {

FakeHost::FakeHost(std::uint64_t seed) {
  runner_ = std::make_unique<SimRunner>(
      timeline_, Rng(seed), [this](node::Event event) { events_.push_back(std::move(event)); }, SimRunner::Observer{});
}

FakeHost::~FakeHost() = default;

FakeRunner::~FakeRunner() {
  host_.runner().agent_died();
  host_.events().clear();
}

std::vector<task::FoundShim> FakeRunner::list() {
  host_.events().clear();  // what happened before is in the answer
  auto found = host_.runner().found();
  host_.runner().agent_started();
  return found;
}

void FakeRunner::launch(const task::ShimSpec& spec) { host_.runner().perform(node::LaunchShim{spec}); }
void FakeRunner::start(const AssignmentId& id, AttemptNumber attempt) { host_.runner().perform(node::StartAttempt{id, attempt}); }
void FakeRunner::signal(const node::SignalTask& order) { host_.runner().perform(order); }
void FakeRunner::kill(const AssignmentId& id) { host_.runner().perform(node::KillTask{id}); }
void FakeRunner::freeze(const AssignmentId& id, bool freeze) { host_.runner().perform(node::FreezeTask{id, freeze}); }
void FakeRunner::answer_lease(const node::AnswerLease& answer) { host_.runner().perform(answer); }
void FakeRunner::require_lease(const node::RequireLease& demand) { host_.runner().perform(demand); }
void FakeRunner::end(const AssignmentId& id) { host_.runner().perform(node::EndShim{id}); }
void FakeRunner::remove_files(const AssignmentId& id) { host_.runner().remove_directory(id); }

void FakeRunner::dispatch(proc::EventSink& sink) {
  for (node::Event& event : std::exchange(host_.events(), {})) sink(std::move(event));
}

}  // namespace dtrain::sim
