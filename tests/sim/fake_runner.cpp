#include "tests/sim/fake_runner.h"

#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace dtrain::sim {
namespace {

Instant real_now() {
  timespec t{};
  CHECK(clock_gettime(CLOCK_BOOTTIME, &t) == 0);
  return Instant(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
}

}  // namespace

FakeHost::FakeHost(std::uint64_t seed) : begin_(real_now()) {
  runner_ = std::make_unique<SimRunner>(
      timeline_, Rng(seed), [this](node::Event event) { events_.push_back(std::move(event)); }, SimRunner::Observer{});
}

FakeHost::~FakeHost() = default;

void FakeHost::catch_up() {
  const Instant now{real_now() - begin_};
  while (timeline_.next() <= now) timeline_.run_next();
  timeline_.advance_to(now);
}

FakeRunner::FakeRunner(FakeHost& host) : host_(host) {
  timer_ = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  CHECK(timer_ >= 0);
}

FakeRunner::~FakeRunner() {
  host_.runner().agent_died();
  host_.events().clear();
  ::close(timer_);
}

std::vector<task::FoundShim> FakeRunner::list() {
  host_.catch_up();
  host_.events().clear();   // what happened before is in the answer
  arm();
  return host_.runner().found();
}

// Time goes on between calls, so each first catches up; the order's own time counts from now.
void FakeRunner::launch(const task::ShimSpec& spec) {
  host_.catch_up();
  host_.runner().perform(node::LaunchShim{spec});
  arm();
}

void FakeRunner::start(const AssignmentId& id, AttemptNumber attempt) {
  host_.catch_up();
  host_.runner().perform(node::StartAttempt{id, attempt});
  arm();
}

void FakeRunner::signal(const AssignmentId& id, int signal, bool whole_tree) {
  host_.catch_up();
  host_.runner().perform(node::SignalTask{id, signal, whole_tree});
  arm();
}

void FakeRunner::kill(const AssignmentId& id) {
  host_.catch_up();
  host_.runner().perform(node::KillTask{id});
  arm();
}

void FakeRunner::freeze(const AssignmentId& id, bool freeze) {
  host_.catch_up();
  host_.runner().perform(node::FreezeTask{id, freeze});
  arm();
}

void FakeRunner::end(const AssignmentId& id) {
  host_.catch_up();
  host_.runner().perform(node::EndShim{id});
  arm();
}

void FakeRunner::remove_files(const AssignmentId& id) {
  host_.catch_up();
  host_.runner().remove_directory(id);
  arm();
}

Instant FakeRunner::deadline() const { return host_.to_real(host_.timeline().next()); }

void FakeRunner::dispatch(proc::EventSink& sink) {
  std::uint64_t expired = 0;
  while (::read(timer_, &expired, sizeof expired) > 0) {
  }
  host_.catch_up();
  for (node::Event& event : std::exchange(host_.events(), {})) sink(std::move(event));
  arm();
}

void FakeRunner::arm() {
  itimerspec when{};
  Instant due = deadline();
  if (!host_.events().empty()) due = real_now();
  if (due != kNever) {
    const auto since = std::max<Duration>(due.time_since_epoch(), Duration{1});
    when.it_value.tv_sec = since / 1s;
    when.it_value.tv_nsec = (since % 1s).count();
  }
  CHECK(timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr) == 0);
}

}  // namespace dtrain::sim
