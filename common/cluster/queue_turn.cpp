#include "common/cluster/queue_turn.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/cluster/cluster_change.h"
#include "common/wire/codec.h"

namespace dtrain::cluster {

std::string demand_of(const WaitingJob& job) {
  if (!job.standing.empty()) return "";
  const job::JobSpec& spec = *job.spec;
  std::string words = std::to_string(static_cast<int>(spec.framework)) + (needs_ports(spec) ? " ports " : " ") +
                      std::to_string(static_cast<int>(spec.policy.placement));
  for (std::size_t from = 0, to = 0; from < job.tasks.size(); from = to) {
    while (to < job.tasks.size() && job.tasks[to].role == job.tasks[from].role) ++to;
    const job::RoleSpec& role = spec.roles.at(job.tasks[from].role);
    words += ' ' + job.tasks[from].role + ' ' + std::to_string(to - from) + wire::encode(role.resources) +
             wire::encode(role.node_selector) + role.anti_affinity + std::to_string(static_cast<int>(role.avoid_gpu_hosts));
  }
  return words;
}

QueueTurn::QueueTurn(JobQueue& queue, const Capacity& free, const std::vector<RunningJob>& running, Duration now)
    : queue_(queue), now_(now), free_(free), at_first_(free) {
  for (const RunningJob& job : running) {
    running_.push_back(&job);
    by_id_[job.id] = &job;
  }
}

Decision QueueTurn::run(std::vector<WaitingJob> waiting) {
  std::sort(waiting.begin(), waiting.end(), [](const WaitingJob& a, const WaitingJob& b) {
    const auto rank = [](const WaitingJob& j) { return std::tuple(-std::int64_t{j.spec->policy.priority}, !j.resumes, j.submitted, j.id); };
    return rank(a) < rank(b);
  });
  if (queue_.shape_ != free_.shape()) queue_.on_empty_.clear();
  queue_.shape_ = free_.shape();
  for (const WaitingJob& job : waiting) look_at(job);
  queue_.on_empty_ = std::move(on_empty_);
  // A job that had the reservation, and was not reached this time, keeps it.
  if (decision_.reservation || !decision_.more) queue_.reservation_ = decision_.reservation;
  return std::move(decision_);
}

void QueueTurn::look_at(const WaitingJob& job) {
  demand_ = demand_of(job);
  if (const auto known = queue_.on_empty_.extract(demand_)) on_empty_.insert({demand_, known.mapped()});
  if (first_ != nullptr) return back_fill(job);
  if (blocked_) return wait(job, WaitKind::behind, "waits behind a job that never fits");
  if (start(job, free_, false) || start_fewer(job, free_, false)) return;
  auto never = never_fits(job);
  // There will never be room for all of its tasks: its turn comes with as many as there can be.
  if (auto fits = never ? fewer(job, emptied()) : std::nullopt) {
    fewer_.push_back(std::move(*fits));
    fewer_.back().least.clear();
    return look_at(fewer_.back());
  }
  if (never && goes_on_with_fewer(job)) return wait_for_less(job, *never);
  if (never) {
    blocked_ = !queue_.rules_.hold(QueueRule::never_fits_delays_nobody);
    return wait(job, WaitKind::never_fits, words_of_never() + *never);
  }
  if (tired()) return wait(job, WaitKind::behind, "was not looked at yet: many jobs wait");
  const std::string reason = short_of(job, free_).value_or("waits for a place");
  if (!job.standing.empty() || !queue_.rules_.hold(QueueRule::first_is_reserved) || !reserve(job))
    return wait(job, WaitKind::behind, reason);
  first_ = &job;
  wait(job, WaitKind::reserved, reason + words_of_reservation());
}

void QueueTurn::back_fill(const WaitingJob& job) {
  const auto& begins_by = decision_.reservation->begins_by;
  const bool ends_before = (queue_.by_time_ && begins_by && job.runs_for && now_ + *job.runs_for <= *begins_by) ||
                           !queue_.rules_.hold(QueueRule::back_fill_delays_nobody);
  if (!ends_before && !both_) {
    both_ = free_;
    both_->meet(*shadow_);
  }
  const Capacity& where = ends_before ? free_ : *both_;
  if (start(job, where, ends_before) || start_fewer(job, where, ends_before)) return;
  if (auto never = never_fits(job))
    return goes_on_with_fewer(job) ? wait_for_less(job, *never) : wait(job, WaitKind::never_fits, words_of_never() + *never);
  if (reasons_ >= kReasonTries) return wait(job, WaitKind::behind, "waits behind " + first_->spec->name);
  const auto reason = short_of(job, free_);
  wait(job, WaitKind::behind,
       reason ? *reason
              : "there is room, but it is reserved for " + first_->spec->name + ", which comes first" +
                    (job.runs_for || !begins_by || !queue_.by_time_ ? "" : " (expectedSeconds could let it go ahead)"));
}

bool QueueTurn::start(const WaitingJob& job, const Capacity& where, bool ends_before) {
  if (!in_all_) in_all_ = free_.in_all();
  const auto known = on_empty_.find(demand_);
  if ((known != on_empty_.end() && !known->second.empty()) || !may_fit(*job.spec, job.tasks, *in_all_)) return false;
  auto& no_room = &where == &free_ ? no_room_now_ : no_room_then_;
  if (no_room_now_.contains(demand_) || no_room.contains(demand_) || tired()) return false;
  searched(job);
  auto placed = place(*job.spec, job.tasks, where, job.standing, job.refused);
  if (!placed) {
    // Other jobs with the same demand may find room where this one is refused.
    if (!demand_.empty() && job.refused.empty()) no_room.insert(demand_);
    return false;
  }
  free_.hold(*job.spec, *placed);
  if (shadow_ && !ends_before) shadow_->hold(*job.spec, *placed);
  in_all_.reset();
  both_.reset();
  RunningJob now_running{.id = job.id, .spec = job.spec, .placements = *placed, .started = now_, .ends_by = {}, .run = job.run};
  if (job.runs_for) now_running.ends_by = now_ + *job.runs_for;
  started_.push_back(std::move(now_running));
  running_.push_back(&started_.back());
  if (first_ != nullptr && ends_before) {
    auto& waits_for = decision_.reservation->waits_for;
    const StartedJob run{job.id, job.run};
    waits_for.insert(std::lower_bound(waits_for.begin(), waits_for.end(), run), run);
  }
  decision_.starts.push_back({job.id, std::move(*placed), first_ != nullptr});
  return true;
}

bool QueueTurn::start_fewer(const WaitingJob& job, const Capacity& where, bool ends_before) {
  const auto& reserved = queue_.reservation_;
  const bool others_end_for_it = reserved && reserved->job == job.id &&
                                 std::ranges::any_of(reserved->victims, [&](const StartedJob& run) { return find(run) != nullptr; });
  if (others_end_for_it) return false;
  const auto fits = fewer(job, where);
  if (!fits) return false;
  const std::string whole = std::exchange(demand_, demand_of(*fits));
  const bool started = start(*fits, where, ends_before);
  demand_ = whole;
  return started;
}

// Reduces role by role, the other roles keeping the sizes found so far. If many tasks have room, so have fewer; so a
// binary search finds the most, or fewer where the search for places is not that regular.
std::optional<WaitingJob> QueueTurn::fewer(const WaitingJob& job, const Capacity& where) {
  if (job.least.empty() || tired()) return std::nullopt;
  auto sizes = job.least;
  WaitingJob some = job;
  const RoomInAll room = where.in_all();
  const auto fits = [&] {
    some.tasks.clear();
    for (const TaskId& task : job.tasks)
      if (const auto size = sizes.find(task.role); size == sizes.end() || task.index < size->second) some.tasks.push_back(task);
    if (!may_fit(*job.spec, some.tasks, room)) return false;
    searched(some);
    return place(*job.spec, some.tasks, where, {}, job.refused).has_value();
  };
  if (!fits()) return std::nullopt;
  for (auto& [role, size] : sizes) {
    const auto wanted = static_cast<std::uint32_t>(std::ranges::count(job.tasks, role, &TaskId::role));
    std::uint32_t enough = size, too_many = std::max(wanted, size) + 1;
    while (enough + 1 < too_many) {
      size = enough + (too_many - enough) / 2;
      (fits() ? enough : too_many) = size;
    }
    size = enough;
  }
  if (!fits()) return std::nullopt;
  return some;
}

const Capacity& QueueTurn::emptied() {
  if (!emptied_) {
    emptied_ = at_first_;
    emptied_->give_copies_to_all();
    std::vector<Holding> all;
    if (queue_.rules_.hold(QueueRule::never_fits_is_true))
      for (const auto& [id, running] : by_id_) all.push_back({running->spec, &running->placements});
    emptied_->release(all);
  }
  return *emptied_;
}

// Otherwise a drained or unfit host may take it later.
bool QueueTurn::all_take_tasks() const {
  for (HostNumber h = 0; h < free_.size(); ++h)
    if (!free_.host(h).schedulable) return false;
  return true;
}

std::string QueueTurn::words_of_never() const { return all_take_tasks() ? "can never run here: " : "cannot run now: "; }

std::optional<std::string> QueueTurn::never_fits(const WaitingJob& job) {
  const auto known = on_empty_.find(demand_);
  if (known != on_empty_.end()) return known->second.empty() ? std::nullopt : std::optional(known->second);
  if (tired()) return std::nullopt;
  Capacity empty = emptied();
  if (!job.standing.empty()) empty.hold(*job.spec, job.standing);
  searched(job);
  const auto placed = place(*job.spec, job.tasks, empty, job.standing);
  const std::string reason = placed ? "" : placed.error().message;
  if (!demand_.empty()) on_empty_[demand_] = reason;
  return placed ? std::nullopt : std::optional(reason);
}

bool QueueTurn::goes_on_with_fewer(const WaitingJob& job) {
  if (!job.standing.empty()) return true;
  for (const auto* least : {&job.least, &job.least_later}) {
    if (least->empty()) continue;
    WaitingJob some = job;
    std::erase_if(some.tasks, [&](const TaskId& task) {
      const auto size = least->find(task.role);
      return size != least->end() && task.index >= size->second;
    });
    const std::string whole = std::exchange(demand_, demand_of(some));
    if (const auto known = queue_.on_empty_.extract(demand_)) on_empty_.insert({demand_, known.mapped()});
    const bool fits = !never_fits(some);
    demand_ = whole;
    if (fits) return true;
  }
  return false;
}

void QueueTurn::wait_for_less(const WaitingJob& job, const std::string& never) {
  wait(job, WaitKind::behind,
       (all_take_tasks() ? "there is never room for all of it, so it goes on with fewer tasks: " : "there is no room for all of it now: ") +
           never);
}

std::optional<std::string> QueueTurn::short_of(const WaitingJob& job, const Capacity& where) {
  ++reasons_;
  const auto placed = place(*job.spec, job.tasks, where, job.standing, job.refused);
  if (placed) return std::nullopt;
  return placed.error().message;
}

bool QueueTurn::tired() {
  decision_.more = decision_.more || looks_ >= kHostLooks;
  return decision_.more;
}

const RunningJob* QueueTurn::find(const StartedJob& run) const {
  const auto it = by_id_.find(run.job);
  return it == by_id_.end() || it->second->run != run.run ? nullptr : it->second;
}

void QueueTurn::wait(const WaitingJob& job, WaitKind kind, std::string reason) {
  decision_.waits.push_back({job.id, kind, std::move(reason)});
}

Capacity QueueTurn::after(const Running& ended) const {
  Capacity capacity = free_;
  std::vector<Holding> holdings;
  for (const RunningJob* job : ended) holdings.push_back({job->spec, &job->placements});
  capacity.release(holdings);
  return capacity;
}

}  // namespace dtrain::cluster
