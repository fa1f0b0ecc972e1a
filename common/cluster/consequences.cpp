// Exits that are consequences of another task's end, such as workers that leave because their parameter server's host
// reboots. They cost nothing and are no first fault, whichever of the two is reported first (docs/recovery.md).
#include <algorithm>

#include "common/cluster/job_transition.h"

namespace dtrain::cluster {
namespace {

constexpr std::size_t kMostCharges = 1024;  // remembered at most

}  // namespace

bool JobTransition::is_consequence() const {
  return job_.disturbed && ledger_.state_.elapsed - *job_.disturbed <= kConsequence && ledger_.broken_rule != "consequence-costs-nothing";
}

void JobTransition::charge(std::uint32_t restarts) {
  const Duration now = ledger_.state_.elapsed;
  job_.budget_spent += restarts;
  std::erase_if(job_.charges, [&](Duration at) { return now - at > kConsequence; });
  job_.charges.insert(job_.charges.end(), std::min<std::size_t>(restarts, kMostCharges - std::min(kMostCharges, job_.charges.size())), now);
}

// A task ended in order with its host, or its host was lost. Exits shortly before are consequences of that, too.
void JobTransition::disturb() {
  const Duration now = ledger_.state_.elapsed;
  if (job_.goal == Goal::end || is_final(job_.state)) return;
  job_.disturbed = now;
  if (!is_consequence()) return;
  const auto lately = [&](Duration at) { return now - at <= kConsequence; };
  for (auto& [id, t] : job_.tasks) {
    if (std::erase_if(t.failures, lately) == 0) continue;
    t.consecutive_failures = 0;
    if (job_.doubted && job_.spec.policy.success_percent > 0) t.given_up = false;  // the whole job begins anew
    if (job_.first_fault && job_.first_fault->task == id && job_.first_fault->generation == job_.generation) job_.first_fault.reset();
  }
  const auto refunded = static_cast<std::uint32_t>(std::erase_if(job_.charges, lately));
  job_.budget_spent -= std::min(job_.budget_spent, refunded);
  if (job_.charged && lately(*job_.charged)) {
    job_.charged.reset();
    job_.recoveries_in_row -= std::min(job_.recoveries_in_row, 1u);
    job_.fruitless_restores -= std::min(job_.fruitless_restores, 1u);
    job_.not_before = std::min(job_.not_before, now);
  }
  if (!job_.doubted || job_.goal != Goal::run) return;
  // The failure that was about to end the job was a consequence, and is no fault of the job.
  job_.doubted.reset();
  job_.doubt.clear();
  if (job_.halt == Halt::none) halt(Halt::recovery, false, true);
  set_state(JobState::recovering, "what failed did so since another task of it, or its host, was being ended");
}

// A task has failed for good just now, and tasks on other hosts take part in the job: the log does not show yet whether
// one of those hosts is being lost. The coordinator can tell, and ends the job if none is (JobWatch::watch_doubt).
bool JobTransition::in_doubt(const TaskRecord& task, const std::string& reason) {
  const Duration now = ledger_.state_.elapsed;
  const bool alone = std::ranges::all_of(job_.tasks, [&](const auto& entry) { return entry.second.place.node == task.place.node; });
  // The task's last failure is what would end the job. Version 1 looked at the first failure that still counts.
  const auto counts = [&] { return ledger_.state_.version >= 2 ? task.failures.back() : task.failures.front(); };
  const bool lately = !task.failures.empty() && now - counts() <= kConsequence;
  if (alone || !lately || job_.goal != Goal::run || ledger_.broken_rule == "consequence-costs-nothing") return false;
  if (job_.doubted) return true;  // the first failure gives the reason
  job_.doubted = now;
  job_.doubt = reason;
  set_state(JobState::recovering, reason);
  return true;
}

void JobTransition::watch_progress() {
  const bool ends = job_.goal != Goal::run || job_.halt != Halt::none;
  const bool progressing = job_.state == JobState::running && !ends && !job_.still_since && job_.waits_for_host.empty() && !job_.doubted;
  if (progressing == job_.progressing && job_.progress_since != WallTime{}) return;
  job_.progressing = progressing;
  job_.progress_since = wall_;
}

}  // namespace dtrain::cluster
