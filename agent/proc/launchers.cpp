#include "agent/proc/launchers.h"

#include <algorithm>

namespace dtrain::proc {

Launcher* Launchers::that_started(const LaunchFile& launch) {
  const auto found = std::ranges::find_if(lines_, [&](const Line& line) { return line.launcher->started(launch); });
  return found == lines_.end() ? nullptr : found->launcher.get();
}

Status Launchers::wait(task::ShimSpec spec) {
  const auto line = std::ranges::find_if(lines_, [&](const Line& one) { return one.launcher->takes(spec); });
  if (line == lines_.end())
    return fail(ErrorCode::unavailable, "could not launch " + spec.id.text() + ": this host has no launcher for such a task",
                "compare tasks.launch of its dtraind.yaml with what the job asks for");
  line->waiting.push_back(std::move(spec));
  return {};
}

bool Launchers::waits(const AssignmentId& id) const {
  return std::ranges::any_of(lines_, [&](const Line& line) {
    return std::ranges::any_of(line.waiting, [&](const task::ShimSpec& spec) { return spec.id == id; });
  });
}

void Launchers::forget(const AssignmentId& id) {
  for (Line& line : lines_) std::erase_if(line.waiting, [&](const task::ShimSpec& spec) { return spec.id == id; });
}

bool Launchers::can_launch() const {
  return std::ranges::any_of(lines_, [](const Line& line) { return !line.waiting.empty() && line.launcher->has_room(); });
}

std::vector<Launchers::Due> Launchers::next() {
  std::vector<Due> due;
  for (Line& line : lines_) {
    if (line.waiting.empty() || !line.launcher->has_room()) continue;
    due.push_back({std::move(line.waiting.front()), *line.launcher});
    line.waiting.pop_front();
  }
  return due;
}

void Launchers::dispatch(const Launcher::OnAnswer& on_answer) {
  for (Line& line : lines_) line.launcher->dispatch(on_answer);
}

Instant Launchers::deadline() const {
  Instant first = kNever;
  for (const Line& line : lines_) first = std::min(first, line.launcher->deadline());
  return first;
}

}  // namespace dtrain::proc
