#include "agent/proc/launchers.h"

#include <algorithm>

namespace dtrain::proc {

Launchers::Line* Launchers::line_for(const task::ShimSpec& spec) {
  const auto found = std::ranges::find_if(lines_, [&](const Line& line) { return line.launcher->takes(spec); });
  return found == lines_.end() ? nullptr : &*found;
}

Result<Launcher*> Launchers::for_assignment(const task::ShimSpec& spec) {
  if (Line* line = line_for(spec)) return line->launcher.get();
  return fail(ErrorCode::unavailable, "could not launch " + spec.id.text() + ": this host has no launcher for such a task",
              "compare tasks.launch of its dtraind.yaml with what the job asks for");
}

Launcher* Launchers::that_started(const LaunchFile& launch) {
  const auto found = std::ranges::find_if(lines_, [&](const Line& line) { return line.launcher->started(launch); });
  return found == lines_.end() ? nullptr : found->launcher.get();
}

void Launchers::wait(task::ShimSpec spec) {
  Line* line = line_for(spec);
  (line != nullptr ? *line : lines_.front()).waiting.push_back(std::move(spec));
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

std::vector<task::ShimSpec> Launchers::next() {
  std::vector<task::ShimSpec> specs;
  for (Line& line : lines_) {
    if (line.waiting.empty() || !line.launcher->has_room()) continue;
    specs.push_back(std::move(line.waiting.front()));
    line.waiting.pop_front();
  }
  return specs;
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
