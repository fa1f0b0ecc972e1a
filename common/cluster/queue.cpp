#include "common/cluster/queue.h"

#include <algorithm>
#include <array>

#include "common/cluster/queue_turn.h"

namespace dtrain::cluster {

std::span<const std::string_view> rule_names(QueueRule) {
  static constexpr std::array<std::string_view, 6> kNames = {"first-is-reserved",           "reservation-is-kept",
                                                             "back-fill-delays-nobody",     "never-fits-delays-nobody",
                                                             "victims-have-lower-priority", "never-fits-is-true"};
  static_assert(kNames.size() == static_cast<std::size_t>(enum_last(QueueRule{})) + 1);
  return kNames;
}

Decision JobQueue::decide(const Capacity& free, const std::vector<RunningJob>& running, std::vector<WaitingJob> waiting, Duration now) {
  return QueueTurn(*this, free, running, now).run(std::move(waiting));
}

void JobQueue::forget() {
  reservation_.reset();
  on_empty_.clear();
}

std::optional<Duration> runs_for(const job::JobSpec& spec) {
  std::optional<Duration> most = spec.policy.active_deadline;
  if (spec.policy.expected > Duration::zero()) most = most ? std::min(*most, spec.policy.expected) : spec.policy.expected;
  return most;
}

}  // namespace dtrain::cluster
