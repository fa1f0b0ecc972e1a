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

// The jobs that must end for a job, and its places afterwards.
struct VictimChoice {
  std::vector<JobId> victims;  // empty: those that are ending already suffice
  std::vector<TaskPlacement> placements;
};
// Chooses from `candidates` (all of which may be ended) the fewest jobs, then those of the lowest priority, then the
// youngest, whose end makes room in `free`, as far as kVictimTries searches show; none of them can be left out.
// nullopt: all together do not suffice.
std::optional<VictimChoice> choose_victims(const WaitingJob& job, const Capacity& free, std::vector<const RunningJob*> candidates);

// A text of what a job asks for: jobs with equal texts find room in the same places. "": its demand is unique (more
// tasks beside running ones).
std::string demand_of(const WaitingJob& job);

class QueueTurn {
 public:
  QueueTurn(JobQueue& queue, const Capacity& free, const std::vector<RunningJob>& running, Duration now);

  Decision run(std::vector<WaitingJob> waiting);

 private:
  using Running = std::vector<const RunningJob*>;

  void look_at(const WaitingJob& job);
  void back_fill(const WaitingJob& job);
  // Searches `where` and starts a job that fits.
  bool start(const WaitingJob& job, const Capacity& where, bool ends_before);
  // The same with fewer tasks than it wants.
  bool start_fewer(const WaitingJob& job, const Capacity& where, bool ends_before);
  // The job with as many tasks as have room in `where`; nullopt: not even the fewest have room, or it wants all.
  std::optional<WaitingJob> fewer(const WaitingJob& job, const Capacity& where);
  const Capacity& emptied();
  // Why the empty cluster has no room for the job; nullopt: it has room, or was not searched now.
  std::optional<std::string> never_fits(const WaitingJob& job);
  // True if the job can use a part of its tasks, now or later, although all of them never fit.
  bool goes_on_with_fewer(const WaitingJob& job);
  bool all_take_tasks() const;
  std::string words_of_never() const;
  // For a job that never fits with all its tasks.
  void wait_for_less(const WaitingJob& job, const std::string& never);
  void wait(const WaitingJob& job, WaitKind kind, std::string reason);
  // Why the job has no room in `where`; nullopt: it has room.
  std::optional<std::string> short_of(const WaitingJob& job, const Capacity& where);

  bool tired();  // this decision may search no more
  void searched(const WaitingJob& job) { looks_ += free_.size() + job.tasks.size(); }

  // Makes the reservation for the first waiting job. Returns false if nothing was found for it; it then delays nobody.
  bool reserve(const WaitingJob& job);
  bool keep_reservation(const WaitingJob& job);
  bool make_victims(const WaitingJob& job);
  bool reserve_after_ends(const WaitingJob& job);
  void set_reservation(const WaitingJob& job, std::vector<TaskPlacement> placements, const Running& ended,
                       const std::vector<JobId>& victims);
  void report_victims();
  std::string words_of_reservation() const;

  const RunningJob* find(const StartedJob& run) const;  // nullptr: the run has ended
  // What is free once these jobs have ended.
  Capacity after(const Running& ended) const;
  std::optional<Duration> end_of(const RunningJob& job) const;

  JobQueue& queue_;
  Duration now_;
  Capacity free_;
  const Capacity at_first_;         // free_ before anything was started
  Running running_;                 // including those started in this turn
  std::deque<RunningJob> started_;  // of this turn
  std::map<JobId, const RunningJob*> by_id_;
  std::optional<RoomInAll> in_all_;                   // of free_
  std::optional<Capacity> emptied_;                   // what is free when nothing runs
  std::optional<Capacity> shadow_;                    // what is free when the reservation begins, without the reserved room
  std::optional<Capacity> both_;                      // what is free now and also then
  std::deque<WaitingJob> fewer_;                      // jobs that reserve for fewer tasks than they want
  const WaitingJob* first_ = nullptr;                 // the job with the reservation
  bool blocked_ = false;                              // a rule is switched off
  std::string demand_;                                // of the job under consideration
  std::map<std::string, std::string> on_empty_;       // as in JobQueue, for the jobs that wait now
  std::set<std::string> no_room_now_, no_room_then_;  // demands that found no room in free_, in both_
  std::uint64_t looks_ = 0;
  std::uint32_t reasons_ = 0;
  Decision decision_;
};

}  // namespace dtrain::cluster
