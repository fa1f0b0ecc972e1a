#include "common/task/assignments.h"

#include <algorithm>
#include <set>
#include <utility>

namespace dtrain::task {

std::pair<Assignments::Tasks::const_iterator, Assignments::Tasks::const_iterator> Assignments::of(JobId job) const {
  return {tasks_.lower_bound(AssignmentId{job, 0, {}}), tasks_.lower_bound(AssignmentId{job + 1, 0, {}})};
}

void Assignments::adopt(std::vector<FoundShim> found) {
  for (auto& f : found) {
    const AssignmentId id = f.id;
    if (f.shim_alive) bound_.found(id, f.cpus);
    found_.emplace(id, std::move(f));
  }
}

void Assignments::found_frozen(const AssignmentId& id, bool frozen) {
  changed_.insert(id.job);
  if (frozen && found_.contains(id)) found_frozen_.insert(id);
  else found_frozen_.erase(id);
}

void Assignments::update(Instant now, const JobOrder& order) {
  budget_left_[order.job] = order.budget_left;
  std::set<AssignmentId> wanted;
  for (const auto& t : order.tasks) wanted.insert(t.id);
  const auto [first, last] = of(order.job);
  for (auto it = first; it != last; ++it) {
    if (wanted.contains(it->first)) continue;
    TaskOrder end = it->second->order();
    end.desire = Desire::kill;
    it->second->update(now, std::move(end));
    unwanted_.insert(it->first);
  }
  for (const auto& t : order.tasks) {
    // The task was given back to this host, which may or may not have seen it ordered away in between.
    if (const auto old = tasks_.find(t.id);
        old != tasks_.end() && old->second->over() && (unwanted_.erase(t.id) > 0 || old->second->order().placed != t.placed))
      tasks_.erase(old);
    if (Task* known = find(t.id)) {
      known->update(now, t);
      continue;
    }
    auto task = std::make_unique<Task>(t, host_, actions_, static_cast<RestartGate&>(*this));
    Task& added = *tasks_.emplace(t.id, std::move(task)).first->second;
    const auto found = found_.find(t.id);
    added.begin(now, found == found_.end() ? nullptr : &found->second);
    if (found_frozen_.erase(t.id) > 0) added.lease_froze(now, added.attempt(), true);
    if (found != found_.end()) found_.erase(found);
  }
  if (order.tasks.empty() && quiet(order.job)) budget_left_.erase(order.job);
  settle(now, order.job);
}

void Assignments::finish_adoption() {
  for (const auto& [id, found] : found_) {
    if (!found.shim_alive) continue;
    ending_[id] = true;
    actions_.end(id);
  }
  found_.clear();
  for (const AssignmentId& id : std::exchange(found_frozen_, {})) changed_.insert(id.job);
}

void Assignments::need_leases(Instant now) {
  if (!std::exchange(host_.needs_leases, true)) advance_all(now);
}

void Assignments::cut_off(Instant now, bool is) {
  if (std::exchange(cut_off_, is) != is) advance_all(now);
}

void Assignments::advance_all(Instant now) {
  for (auto& [id, task] : tasks_) {
    changed_.insert(id.job);
    task->advance(now);
  }
}

std::vector<std::pair<AssignmentId, AttemptNumber>> Assignments::running() const {
  std::vector<std::pair<AssignmentId, AttemptNumber>> all;
  for (const auto& [id, task] : tasks_)
    if (task->running()) all.emplace_back(id, task->attempt());
  return all;
}

// The caller is about to change it.
Task* Assignments::find(const AssignmentId& id) {
  changed_.insert(id.job);
  const auto it = tasks_.find(id);
  return it == tasks_.end() ? nullptr : it->second.get();
}

const Task* Assignments::find(const AssignmentId& id) const {
  const auto it = tasks_.find(id);
  return it == tasks_.end() ? nullptr : it->second.get();
}

void Assignments::shim_gone(Instant now, const AssignmentId& id) {
  bound_.release(id);
  if (ending_.erase(id) > 0) return settle(now, id.job);
  if (Task* task = find(id)) task->shim_gone(now);
  settle(now, id.job);
}

void Assignments::settle(Instant now, JobId job) {
  changed_.insert(job);
  // A task that is over and reported stays until its order is withdrawn: the ledger then knows that it ended.
  const auto [first, last] = of(job);
  for (auto it = first; it != last;) {
    const bool gone = it->second->over() && !it->second->dirty() && it->second->order().desire == Desire::kill;
    if (gone) unwanted_.erase(it->first);
    it = gone ? tasks_.erase(it) : std::next(it);
  }
  const auto [begin, end] = of(job);
  for (auto it = begin; it != end; ++it) it->second->advance(now);
}

void Assignments::tick(Instant now) {
  if (deadline() > now) return;
  for (const auto& [job, at] : deadlines_) {
    if (at > now) continue;
    changed_.insert(job);
    const auto [first, last] = of(job);
    for (auto it = first; it != last; ++it)
      if (it->second->deadline() <= now) it->second->advance(now);
  }
}

Instant Assignments::deadline() const {
  for (const JobId job : std::exchange(changed_, {})) {
    Instant earliest = kNever;
    const auto [first, last] = of(job);
    for (auto it = first; it != last; ++it) earliest = std::min(earliest, it->second->deadline());
    if (earliest == kNever) deadlines_.erase(job);
    else deadlines_[job] = earliest;
  }
  Instant next = kNever;
  for (const auto& [job, at] : deadlines_) next = std::min(next, at);
  return next;
}

std::vector<job::TaskObservation> Assignments::take_observations(std::size_t most) {
  std::vector<job::TaskObservation> seen;
  const auto take = [&](auto first, auto last) {
    while (first != last && seen.size() < most) {
      if (Task* task = find(*first); task != nullptr && task->dirty()) seen.push_back(task->take_observation());
      first = news_.erase(first);
    }
  };
  // Begins after the tasks that had their turn, so that frequent changes of some do not keep the others waiting.
  take(news_.upper_bound(observed_to_), news_.end());
  take(news_.begin(), news_.upper_bound(observed_to_));
  if (most > 0) observed_to_ = seen.size() == most ? seen.back().id : AssignmentId{};
  return seen;
}

bool Assignments::quiet(JobId job) const {
  const auto [first, last] = of(job);
  const bool tasks_over = std::all_of(first, last, [](const auto& entry) { return entry.second->over(); });
  const auto found = found_.lower_bound(AssignmentId{job, 0, {}});
  for (auto it = found; it != found_.end() && it->first.job == job; ++it)
    if (it->second.shim_alive) return false;
  const auto shim = ending_.lower_bound(AssignmentId{job, 0, {}});
  return tasks_over && (shim == ending_.end() || shim->first.job != job);
}

bool Assignments::quiet() const {
  return ending_.empty() && std::ranges::all_of(tasks_, [](const auto& entry) { return entry.second->over(); }) &&
         std::ranges::none_of(found_, [](const auto& entry) { return entry.second.shim_alive; });
}

bool Assignments::may_run(const AssignmentId& id) const {
  const Task* task = find(id);
  return (task != nullptr && !task->over()) || ending_.contains(id) || found_.contains(id);
}

bool Assignments::settled() const {
  const bool none = std::none_of(tasks_.begin(), tasks_.end(),
                                 [](const auto& entry) { return entry.second->order().desire == Desire::kill && !entry.second->over(); });
  return none && ending_.empty() && found_.empty();
}

bool Assignments::budget_allows(const AssignmentId& id) const {
  const auto left = budget_left_.find(id.job);
  if (left == budget_left_.end() || !left->second || broken_rule == "budget") return true;
  std::uint32_t booked = 0;
  const auto [first, last] = of(id.job);
  for (auto it = first; it != last; ++it) booked += it->second->unreported_restarts();
  return booked < *left->second;
}

bool Assignments::halt_expected(const AssignmentId& id) const {
  const auto [first, last] = of(id.job);
  return std::any_of(first, last,
                     [&](const auto& entry) { return entry.first.generation == id.generation && entry.second->awaits_coordinator(); });
}

bool Assignments::stands_still(const AssignmentId& id, bool beside_leased) const {
  if (broken_rule == "restarts-wait-for-the-frozen") return false;
  if (cut_off_ && beside_leased) return true;
  const auto alike = [&](const AssignmentId& other) { return other.job == id.job && other.generation == id.generation; };
  if (std::ranges::any_of(found_frozen_, alike)) return true;
  const auto [first, last] = of(id.job);
  // A task that an order froze does not count: it stays frozen until the order ends, and the ps that the order waits
  // for must not wait for it.
  return std::any_of(
      first, last, [&](const auto& entry) { return alike(entry.first) && entry.second->lease_frozen() && !entry.second->order().freeze; });
}

bool Assignments::predecessor_gone(const AssignmentId& id) const {
  if (broken_rule == "kill-before-next-generation") return true;
  const auto [first, last] = of(id.job);
  const bool tasks_over =
      std::all_of(first, last, [&](const auto& entry) { return entry.first.generation >= id.generation || entry.second->over(); });
  const auto shim = ending_.lower_bound(AssignmentId{id.job, 0, {}});
  const bool shims_gone = shim == ending_.end() || shim->first.job != id.job || shim->first.generation >= id.generation;
  return tasks_over && shims_gone;
}

}  // namespace dtrain::task
