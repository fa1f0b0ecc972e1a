// One decision of the queue, in steps: start what fits in order, reserve for the first that does not, back-fill.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/cluster/queue.h"

namespace dtrain::cluster {

// Jobs that have to end for a job, and where it then goes.
struct VictimChoice {
  std::vector<JobId> victims;  // none: those that end already suffice
  std::vector<TaskPlacement> placements;
};
// The fewest whole jobs, then those of the lowest priority, then the youngest, of `candidates` (all may be ended) whose
// end makes room in `free`, as far as kVictimTries searches show; always a set of which none can be left out. Nothing: all
// together do not suffice.
std::optional<VictimChoice> choose_victims(const WaitingJob& job, const Capacity& free,
                                           std::vector<const RunningJob*> candidates);

// What a job asks for, in words: jobs with the same words find room in the same places. "": it asks for something of its
// own (more tasks beside others that stand).
std::string demand_of(const WaitingJob& job);

class QueueTurn {
 public:
  QueueTurn(JobQueue& queue, const Capacity& free, const std::vector<RunningJob>& running, Duration now);

  Decision run(std::vector<WaitingJob> waiting);

 private:
  using Running = std::vector<const RunningJob*>;

  void look_at(const WaitingJob& job);
  void back_fill(const WaitingJob& job);
  // Searches `where`; a job that fits is started.
  bool start(const WaitingJob& job, const Capacity& where, bool ends_before);
  // The same with fewer tasks than it wants.
  bool start_fewer(const WaitingJob& job, const Capacity& where, bool ends_before);
  // With as many tasks as there is room for in `where`; nullopt: not even for the least, or it wants all.
  std::optional<WaitingJob> fewer(const WaitingJob& job, const Capacity& where);
  const Capacity& emptied();
  // Why the empty cluster has no room for it; nullopt: it has, or was not searched now.
  std::optional<std::string> never_fits(const WaitingJob& job);
  // Though all of it never does: some of it fits, now or later, or runs beside what it lacks.
  bool goes_on_with_fewer(const WaitingJob& job);
  bool all_take_tasks() const;
  std::string words_of_never() const;
  // Of one that never fits whole.
  void wait_for_less(const WaitingJob& job, const std::string& never);
  void wait(const WaitingJob& job, WaitKind kind, std::string reason);
  // Why it has no room in `where`; nullopt: it has.
  std::optional<std::string> short_of(const WaitingJob& job, const Capacity& where);

  bool tired();  // no search for room is left in this decision
  void searched(const WaitingJob& job) { looks_ += free_.size() + job.tasks.size(); }

  // For the first that waits. False: nothing was found for it, and it delays nobody.
  bool reserve(const WaitingJob& job);
  bool keep_reservation(const WaitingJob& job);
  bool make_victims(const WaitingJob& job);
  bool reserve_after_ends(const WaitingJob& job);
  void set_reservation(const WaitingJob& job, std::vector<TaskPlacement> placements, const Running& ended,
                       const std::vector<JobId>& victims);
  void tell_victims();
  std::string words_of_reservation() const;

  const RunningJob* find(const StartedJob& run) const;  // nullptr: it has ended
  // What is free once these have ended.
  Capacity after(const Running& ended) const;
  std::optional<Duration> end_of(const RunningJob& job) const;

  JobQueue& queue_;
  Duration now_;
  Capacity free_;
  const Capacity at_first_;              // free_ before anything was started
  Running running_;                      // those of this turn included
  std::deque<RunningJob> started_;       // of this turn
  std::map<JobId, const RunningJob*> by_id_;
  std::optional<RoomInAll> in_all_;      // of free_
  std::optional<Capacity> emptied_;      // what is free when nothing runs
  std::optional<Capacity> shadow_;       // what is free when the reservation begins, its own room taken off
  std::optional<Capacity> both_;         // free now and then
  std::deque<WaitingJob> fewer_;         // jobs that reserve for fewer tasks than they want
  const WaitingJob* first_ = nullptr;    // that has the reservation
  bool blocked_ = false;               // a rule is switched off
  std::string demand_;                                // of the job that is looked at
  std::map<std::string, std::string> on_empty_;       // as JobQueue's, of those that wait now
  std::set<std::string> no_room_now_, no_room_then_;  // demands that found none: in free_, in both_
  std::uint64_t looks_ = 0;
  std::uint32_t reasons_ = 0;
  Decision decision_;
};

}  // namespace dtrain::cluster
