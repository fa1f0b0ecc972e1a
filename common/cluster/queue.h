// Which waiting jobs start now: by priority, then age, with a reservation for the first that does not fit, so that small
// jobs never starve a big one. Pure: what is free, what runs and what waits is handed in; the answer is told, not done.
//
// Source: EASY back-filling. Lifka, "The ANL/IBM SP Scheduling System" (JSSPP 1995); Mu'alem and Feitelson, "Utilization,
// Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling" (IEEE TPDS 12(6), 2001).
// As there, only the first that waits has a reservation. Unlike there, run times need not be known: a reservation names
// hosts and resources and the jobs whose ends it waits for, and is kept until its job starts. Others go ahead of it
// (back-fill) only on what it does not need, or where they are known to end before it can begin.
//
// What follows, as long as hosts stay and nobody of higher priority comes:
// - the first that waits starts at the latest when the last job has ended that ran when it became the first. Where somebody
//   was back-filled by time and that job ends before it had said, the first may wait on until then
//   (Reservation::begins_by), as with EASY; QueueOptions::back_fill_by_time = false keeps it strictly;
// - jobs are placed whole, so no two of them can each hold a part and wait for the other's;
// - a job that fits no empty cluster reserves nothing and delays nobody.
// A job that has run before and waits again (a recovery) goes before the others of its priority.
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

// Hosts and tasks that are looked at in one decision, over all searches for room (10,000 hosts: some 50 searches, 100 ms).
// Jobs behind are not looked at this time (Decision::more); they wait as if they did not fit. What has no room by sums, or
// asks for the same as one that found none, or is known never to fit, costs nothing.
inline constexpr std::uint64_t kHostLooks = 500'000;
// Jobs without room whose reason is looked for in one decision; of the others it is said in general words.
inline constexpr std::uint32_t kReasonTries = 10;
// Running jobs of lower priority that are weighed as victims, cheapest first.
inline constexpr std::size_t kVictimsWeighed = 1000;
// Searches for room in finding which victims suffice; beyond, what was found so far counts.
inline constexpr std::uint32_t kVictimTries = 64;

struct QueueOptions {
  bool preempt = true;           // false: no victims, whatever the priorities
  bool back_fill_by_time = true; // false: nobody uses reserved room, however short its run is said to be
  BrokenRule broken_rule{};    // of rule_names()
};

// A job that holds something and will give it back. All times are elapsed time of the cluster.
struct RunningJob {
  JobId id = 0;
  const job::JobSpec* spec = nullptr;
  std::vector<TaskPlacement> placements;  // what has not ended
  Duration started{0};
  std::optional<Duration> ends_by;  // at the latest; past or nullopt: not known
  bool ending = false;              // stops already: never a victim
  bool returns = false;             // and waits again at once, as one that ran before: a restart, a recovery, who made room
  bool spared = false;              // never a victim, though it does not stop
  std::uint64_t run = 0;            // tells its runs from each other; of one that waits: that it will have
};

struct WaitingJob {
  JobId id = 0;
  const job::JobSpec* spec = nullptr;
  std::vector<TaskId> tasks;
  Duration submitted{0};
  std::optional<Duration> runs_for;     // at most, once it has started
  bool resumes = false;                 // ran before: a recovery
  std::vector<TaskPlacement> standing;  // not empty: more tasks of a job that runs; has no reservation, preempts nobody
  bool preempts = true;                 // false: never ends others
  std::uint64_t run = 0;                // RunningJob::run once it has started
  // Of some roles, by name: the fewest tasks with which it may start; it gets as many as there is room for. The tasks that are
  // left out are the last of their role.
  std::map<std::string, std::uint32_t> least = {};
  // The same of once it has waited long enough for all of them: who will have room then is not told that it never fits.
  std::map<std::string, std::uint32_t> least_later = {};
  Refusals refused = {};  // of hosts that will not have it now, later perhaps
};

// A run of a job: started again it is another.
struct StartedJob {
  JobId job = 0;
  std::uint64_t run = 0;
  auto operator<=>(const StartedJob&) const = default;
};

struct Reservation {
  JobId job = 0;
  std::vector<TaskPlacement> placements;  // ports are chosen anew when it starts
  std::vector<StartedJob> waits_for;      // sorted: they hold what it needs, or are known to end before
  std::optional<Duration> begins_by;      // at the latest; nullopt: not known
  std::vector<StartedJob> victims;        // of waits_for, those that were told to end for it
};

struct Start {
  JobId job = 0;
  std::vector<TaskPlacement> placements;  // of all its tasks, or of fewer where WaitingJob::least allows it
  bool back_filled = false;  // ahead of the one with the reservation
};

struct Preemption {
  JobId victim = 0, beneficiary = 0;
  Duration grace{0};  // between the stop signal and the kill: time for a checkpoint
};

enum class WaitKind : unsigned char {
  never_fits,  // not even on the empty cluster, nor with fewer tasks
  reserved,    // the first that waits
  behind       // others come first, or there is no room now
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
  bool more = false;         // some were not looked at: decide again soon
};

class JobQueue {
 public:
  explicit JobQueue(QueueOptions options = {})
      : preempt_(options.preempt), by_time_(options.back_fill_by_time), rules_(options.broken_rule) {}

  // `free`: what is free now; what `running` holds is taken already. Each job is there once, except that a running one
  // may wait with `standing`. What was reserved is remembered until the next call.
  Decision decide(const Capacity& free, const std::vector<RunningJob>& running, std::vector<WaitingJob> waiting,
                  Duration now);

  // Another node decided meanwhile.
  void forget();

 private:
  friend class QueueTurn;

  bool preempt_, by_time_;
  BreakableRules<QueueRule> rules_;
  std::optional<Reservation> reservation_;
  // Why a demand (queue_turn.h) does not fit the empty cluster, "" where it does; of those that wait. Found out once.
  std::map<std::string, std::string> on_empty_;
  std::uint64_t shape_ = 0;  // of the cluster that on_empty_ is about
};

// How long a job is known to run: what ends it (activeDeadlineSeconds) or what its user said (expectedSeconds), whichever
// is shorter. Who says less than is true delays the reservation behind which it was back-filled by the difference.
std::optional<Duration> runs_for(const job::JobSpec& spec);

}  // namespace dtrain::cluster
