// What a launcher of real processes must do for tasks that have a standby (docs/warm-standby.md): standby_suite.cpp has the cases, of a
// task whose program is Python and says whether json was imported before it began.
#pragma once

#include "tests/conformance/direct_world.h"

namespace dtrain::conformance {

class StandbySuite : public testing::TestWithParam<WorldFactory> {
 protected:
  void SetUp() override;
  void TearDown() override;

  bool pump(const std::function<bool()>& condition) { return world_->pump(sink_, condition); }
  int count(node::StandbyReport::News news) const;
  template <class E>
  const E* last(const AssignmentId& id) const {
    for (auto event = events_.rbegin(); event != events_.rend(); ++event)
      if (const auto* found = std::get_if<E>(&*event); found != nullptr && found->id == id) return found;
    return nullptr;
  }
  task::ShimSpec spec(const AssignmentId& id) const;
  void launch(const task::ShimSpec& spec);
  std::int32_t start(const AssignmentId& id, AttemptNumber attempt);  // its pid, once its script has begun
  void stand_by(int standbys);                                        // until so many have been ready
  void kill_task(const AssignmentId& id, AttemptNumber attempt);      // until its exit is reported
  void end(const AssignmentId& id);
  // What the script of that attempt wrote: "warm" or "cold".
  std::string said(const AssignmentId& id, AttemptNumber attempt) const;
  std::string cgroup_of(const AssignmentId& id) const;
  std::string standby_of(const AssignmentId& id) const;  // its directory

  std::unique_ptr<RunnerWorld> owned_;
  DirectWorld* world_ = nullptr;
  std::vector<node::Event> events_;
  std::set<AssignmentId> launched_;
  proc::EventSink sink_ = [this](node::Event event) { events_.push_back(std::move(event)); };
  const AssignmentId first_{17, 2, {"worker", 1}}, second_{17, 3, {"worker", 1}};
};

}  // namespace dtrain::conformance
