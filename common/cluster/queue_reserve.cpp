// The reservation of the first waiting job: what it will get, and whose ends it waits for.
#include <algorithm>
#include <bit>
#include <set>
#include <tuple>
#include <utility>

#include "common/cluster/queue_turn.h"

namespace dtrain::cluster {
namespace {

// True if the same placements could begin in `room`: nothing of them is held by others, and their hosts take tasks.
bool has_room(Capacity& room, const job::JobSpec& spec, const std::vector<TaskPlacement>& placements) {
  for (const TaskPlacement& place : placements) {
    const auto h = room.find(place.node);
    if (!h || !room.takes_tasks(*h) || !spec.roles.contains(place.task.role)) return false;
    const std::uint64_t before = room.room(*h).gpus;
    std::uint64_t wanted = 0;  // without GPUs that the host lost
    for (std::size_t g = 0; g < std::min(room.host(*h).gpus.size(), kGpusPerHost); ++g)
      if (std::count(place.gpus.begin(), place.gpus.end(), room.host(*h).gpus[g].index) > 0) wanted |= std::uint64_t{1} << g;
    if ((before & wanted) != wanted || std::popcount(wanted) != static_cast<int>(place.gpus.size())) return false;
    const job::Resources& each = spec.roles.at(place.task.role).resources;
    room.take(*h, each, wanted, 1);
    const Room& left = room.room(*h);
    if ((each.cpu_millis > 0 && left.cpu_millis < 0) || (each.memory_bytes > 0 && left.memory_bytes < 0)) return false;
  }
  return true;
}

bool same_tasks(const std::vector<TaskPlacement>& placements, const std::vector<TaskId>& tasks) {
  return std::equal(placements.begin(), placements.end(), tasks.begin(), tasks.end(),
                    [](const TaskPlacement& p, const TaskId& task) { return p.task == task; });
}

// True if the running job is ending and does not come before `job` when it wants a place again.
bool gives_back(const RunningJob& running, const WaitingJob& job) {
  const auto turn = [](const job::JobSpec& spec, bool resumes, Duration since, JobId id) {
    return std::tuple(-std::int64_t{spec.policy.priority}, !resumes, since, id);
  };
  return running.ending &&
         (!running.returns || turn(*running.spec, true, running.started, running.id) > turn(*job.spec, job.resumes, job.submitted, job.id));
}

bool on_one_of(const RunningJob& job, const std::set<NodeId>& nodes) {
  return std::any_of(job.placements.begin(), job.placements.end(), [&](const TaskPlacement& p) { return nodes.contains(p.node); });
}

}  // namespace

bool QueueTurn::reserve(const WaitingJob& job) { return keep_reservation(job) || make_victims(job) || reserve_after_ends(job); }

// A reservation is kept as it was made: a new one would wait for jobs that were back-filled ahead of the old one.
bool QueueTurn::keep_reservation(const WaitingJob& job) {
  const auto& kept = queue_.reservation_;
  if (!kept || !queue_.rules_.hold(QueueRule::reservation_is_kept)) return false;
  if (kept->job != job.id || !same_tasks(kept->placements, job.tasks)) return false;
  if (std::ranges::any_of(kept->placements, [&](const TaskPlacement& p) { return job.refused.contains(p.node); })) return false;
  // The victims have gone and it is not enough: other jobs came first, or a host changed.
  const bool victims_left = std::ranges::any_of(kept->victims, [&](const StartedJob& run) { return find(run) != nullptr; });
  if (!victims_left && make_victims(job)) return true;
  Running ended;
  for (const StartedJob& run : kept->waits_for)
    if (const RunningJob* running = find(run)) ended.push_back(running);
  Capacity then = after(ended);
  if (!has_room(then, *job.spec, kept->placements)) return false;
  shadow_ = std::move(then);
  decision_.reservation = kept;
  report_victims();
  return true;
}

bool QueueTurn::make_victims(const WaitingJob& job) {
  if (!queue_.preempt_ || !job.preempts) return false;
  const std::int64_t below = std::int64_t{job.spec->policy.priority} + (queue_.rules_.hold(QueueRule::victims_have_lower_priority) ? 0 : 1);
  Running ending, candidates;
  for (const RunningJob* running : running_) {
    if (gives_back(*running, job)) ending.push_back(running);
    else if (!running->ending && !running->spared && running->spec->policy.priority < below) candidates.push_back(running);
  }
  if (candidates.empty()) return false;
  auto choice = choose_victims(job, after(ending), candidates);
  if (!choice) return false;
  Running ended = ending;
  for (const RunningJob* candidate : candidates)
    if (std::count(choice->victims.begin(), choice->victims.end(), candidate->id) > 0) ended.push_back(candidate);
  set_reservation(job, std::move(choice->placements), ended, choice->victims);
  report_victims();
  return true;
}

void QueueTurn::report_victims() {
  for (const StartedJob& run : decision_.reservation->victims) {
    const RunningJob* victim = find(run);
    if (victim == nullptr || victim->ending) continue;
    decision_.preemptions.push_back({run.job, decision_.reservation->job, victim->spec->policy.stop_grace_period});
  }
}

std::optional<Duration> QueueTurn::end_of(const RunningJob& job) const {
  if (!job.ends_by || *job.ends_by <= now_) return std::nullopt;  // it should have ended: its end is not known
  return job.ends_by;
}

// Finds the earliest end after which there is room: first jobs that are ending, then known ends in order, then, as a
// guess, by age. More ends never take room away, so a binary search finds it; where the search for places is not that
// regular, a later end is found.
bool QueueTurn::reserve_after_ends(const WaitingJob& job) {
  Running order = running_;
  std::sort(order.begin(), order.end(), [&](const RunningJob* a, const RunningJob* b) {
    const auto rank = [&](const RunningJob& j) {
      return std::tuple(!gives_back(j, job), end_of(j).value_or(Duration::max()), j.started, j.id);
    };
    return rank(*a) < rank(*b);
  });
  const auto release = [&](Capacity then, std::size_t from, std::size_t to) {
    std::vector<Holding> holdings;
    for (std::size_t i = from; i < to; ++i) holdings.push_back({order[i]->spec, &order[i]->placements});
    then.release(holdings);
    return then;
  };
  const auto room_in = [&](const Capacity& then) {
    return may_fit(*job.spec, job.tasks, then.in_all()) ? place(*job.spec, job.tasks, then, {}, job.refused)
                                                        : fail(ErrorCode::unavailable, "no room by sums");
  };
  std::size_t too_few = 0, enough = order.size();
  Capacity after_too_few = free_;  // each end is released once, not once for each step
  auto placed = room_in(release(free_, 0, enough));
  if (!placed) return false;
  while (too_few + 1 < enough) {
    const std::size_t middle = too_few + (enough - too_few) / 2;
    Capacity then = release(after_too_few, too_few, middle);
    if (auto earlier = room_in(then)) {
      placed = std::move(earlier);
      enough = middle;
    } else {
      after_too_few = std::move(then);
      too_few = middle;
    }
  }
  order.resize(enough);
  set_reservation(job, std::move(*placed), order, {});
  return true;
}

void QueueTurn::set_reservation(const WaitingJob& job, std::vector<TaskPlacement> placements, const Running& ended,
                                const std::vector<JobId>& victims) {
  Reservation reservation;
  reservation.job = job.id;
  std::set<NodeId> nodes;
  for (TaskPlacement& place : placements) {
    place.address.port = 0;
    nodes.insert(place.node);
  }
  Running needed;
  reservation.begins_by = now_;
  for (const RunningJob* running : ended) {
    if (!on_one_of(*running, nodes)) continue;
    needed.push_back(running);
    reservation.waits_for.push_back({running->id, running->run});
    const bool victim = std::count(victims.begin(), victims.end(), running->id) > 0;
    if (victim) reservation.victims.push_back({running->id, running->run});
    const auto end = victim ? std::optional(now_ + running->spec->policy.stop_grace_period) : end_of(*running);
    if (!end) reservation.begins_by.reset();
    else if (reservation.begins_by) reservation.begins_by = std::max(*reservation.begins_by, *end);
  }
  std::sort(reservation.waits_for.begin(), reservation.waits_for.end());
  reservation.placements = std::move(placements);
  shadow_ = after(needed);
  shadow_->hold(*job.spec, reservation.placements);
  decision_.reservation = std::move(reservation);
}

std::string QueueTurn::words_of_reservation() const {
  const Reservation& r = *decision_.reservation;
  std::string text = "; it is next in the queue";
  std::string first;
  std::size_t others = 0;
  for (const StartedJob& run : r.waits_for)
    for (const RunningJob* running : running_) {
      if (running->id != run.job || running->run != run.run) continue;
      if (first.empty()) first = running->spec->name;
      else ++others;
    }
  if (first.empty()) return text;
  text += ", and waits for the end of " + first;
  if (others > 0) text += " and " + std::to_string(others) + (others == 1 ? " other job" : " other jobs");
  if (!r.victims.empty()) text += others > 0 ? ", which make room for its higher priority" : ", which makes room for its higher priority";
  if (r.begins_by && *r.begins_by > now_)
    text += ", at most " + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(*r.begins_by - now_).count()) + " s";
  return text;
}

}  // namespace dtrain::cluster
