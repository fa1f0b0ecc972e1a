// Decides which waiting jobs start now: by priority, then age, with a reservation for the first that does not fit, so
// that small jobs never starve a big one. Pure: free capacity, running and waiting jobs are passed in, and the
// decision is returned, not carried out.
//
// Source: EASY back-filling. Lifka, "The ANL/IBM SP Scheduling System" (JSSPP 1995); Mu'alem and Feitelson,
// "Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling"
// (IEEE TPDS 12(6), 2001). As there, only the first waiting job has a reservation. Unlike there, run times need not
// be known: a reservation names hosts, resources and the jobs whose ends it waits for, and is kept until its job
// starts. Other jobs go ahead of it (back-fill) only on what it does not need, or if they are known to end before it
// can begin.
//
// It follows, as long as hosts stay and no job of higher priority comes:
// - the first waiting job starts at the latest when the last job has ended that ran when it became the first. If a
// job was
//   back-filled by time and runs longer than it had said, the first may wait until that job ends
//   (Reservation::begins_by), as with EASY; QueueOptions::back_fill_by_time = false excludes that;
// - jobs are placed whole, so no two of them can each hold a part and wait for the other's;
// - a job that does not fit the empty cluster reserves nothing and delays nobody. A job that has run before and waits
// again (a recovery) goes before the others of its priority.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/broken_rule.h"
#include "common/cluster/placement.h"
#include "common/cluster/queue_rules.h"

namespace dtrain::cluster {

// Hosts and tasks that are looked at in one decision, over all searches for room (10,000 hosts: some 50 searches, 100
// ms). Later jobs are not looked at this time (Decision::more) and wait as if they did not fit. A job costs nothing
// if sums show that it has no room, if it asks for the same as one that found none, or if it is known never to fit.
inline constexpr std::uint64_t kHostLooks = 500'000;
// Jobs without room whose exact reason is determined in one decision; further ones get a general reason.
inline constexpr std::uint32_t kReasonTries = 10;
// Running jobs of lower priority that are considered as victims, cheapest first.
inline constexpr std::size_t kVictimsWeighed = 1000;
// Searches for room to find which victims suffice; beyond, the best set found so far is used.
inline constexpr std::uint32_t kVictimTries = 64;

struct QueueOptions {
  bool preempt = true;            // false: no victims, whatever the priorities
  bool back_fill_by_time = true;  // false: no job uses reserved room, however short its run is said to be
  BrokenRule broken_rule{};       // of rule_names()
};

// A job that holds resources and will give them back. All times are elapsed time of the cluster.
struct RunningJob {
  JobId id = 0;
  const job::JobSpec* spec = nullptr;
  std::vector<TaskPlacement> placements;  // of tasks that have not ended
  Duration started{0};
  std::optional<Duration> ends_by;  // the latest end; past or nullopt: not known
  bool ending = false;              // it is ending already: never a victim
  bool returns = false;             // after its end it waits again at once, as a job that ran before (restart, recovery, preemption)
  bool spared = false;              // never a victim, for another reason
  std::uint64_t run = 0;            // tells its runs apart; see WaitingJob::run
};

struct WaitingJob {
  JobId id = 0;
  const job::JobSpec* spec = nullptr;
  std::vector<TaskId> tasks;
  Duration submitted{0};
  std::optional<Duration> runs_for;  // the longest run, once it has started
  bool resumes = false;              // it ran before (a recovery)
  // not empty: these are more tasks for a running job, which gets no reservation and preempts nobody
  std::vector<TaskPlacement> standing;
  bool preempts = true;   // false: it never preempts others
  std::uint64_t run = 0;  // the RunningJob::run that it will have
  // By role: the fewest tasks with which it may start. It gets as many as there is room for; those left out are the
  // last of their role.
  std::map<std::string, std::uint32_t> least = {};
  // The same, once it has waited long enough for all of its tasks: a job that will have room then is not reported as never fitting.
  std::map<std::string, std::uint32_t> least_later = {};
  Refusals refused = {};  // hosts that refuse the job at present
};

// One run of a job; another run of the same job differs.
struct StartedJob {
  JobId job = 0;
  std::uint64_t run = 0;
  auto operator<=>(const StartedJob&) const = default;
};

struct Reservation {
  JobId job = 0;
  std::vector<TaskPlacement> placements;  // ports are chosen anew at the start
  std::vector<StartedJob> waits_for;      // sorted; these jobs hold what it needs, or are known to end before
  std::optional<Duration> begins_by;      // the latest start; nullopt: not known
  std::vector<StartedJob> victims;        // those of waits_for that were told to end for it
};

struct Start {
  JobId job = 0;
  std::vector<TaskPlacement> placements;  // for all its tasks, or for fewer if WaitingJob::least allows that
  bool back_filled = false;               // it goes ahead of the job with the reservation
};

struct Preemption {
  JobId victim = 0, beneficiary = 0;
  Duration grace{0};  // between stop signal and kill: time for a checkpoint
};

enum class WaitKind : unsigned char {
  never_fits,  // it would not fit the empty cluster, not even with fewer tasks
  reserved,    // it has the reservation
  behind       // other jobs come first, or there is no room now
};
struct Waits {
  JobId job = 0;
  WaitKind kind = WaitKind::behind;
  std::string reason;  // for people
};

struct Decision {
  std::vector<Start> starts;
  std::optional<Reservation> reservation;
  std::vector<Preemption> preemptions;
  std::vector<Waits> waits;  // in the order of the queue
  bool more = false;         // some jobs were not looked at: decide again soon
};

class JobQueue {
 public:
  explicit JobQueue(QueueOptions options = {})
      : preempt_(options.preempt), by_time_(options.back_fill_by_time), rules_(options.broken_rule) {}

  // `free`: without what `running` holds. Each job occurs once, except that a running job may also wait with
  // `standing`. The reservation is remembered until the next call.
  Decision decide(const Capacity& free, const std::vector<RunningJob>& running, std::vector<WaitingJob> waiting, Duration now);

  // As of the last call of decide().
  const std::optional<Reservation>& reservation() const { return reservation_; }
  // To be called when another node decided meanwhile: forgets the reservation.
  void forget();

 private:
  friend class QueueTurn;

  bool preempt_, by_time_;
  BreakableRules<QueueRule> rules_;
  std::optional<Reservation> reservation_;
  // For each demand (queue_turn.h) of the waiting jobs: why it does not fit the empty cluster, or "" if it does. Computed once.
  std::map<std::string, std::string> on_empty_;
  std::uint64_t shape_ = 0;  // of the cluster for which on_empty_ holds
};

// The longest that a job can be expected to run: what ends it (activeDeadlineSeconds) or what its user said
// (expectedSeconds), whichever is shorter. A job that runs longer than its user said delays the reservation that it
// was back-filled ahead of by the difference.
std::optional<Duration> runs_for(const job::JobSpec& spec);

}  // namespace dtrain::cluster
