// A small world for the queue: random hosts and jobs, virtual time, and checkers that judge by what the world itself
// knows: who came when, who runs where, who ends when. One seed, one course.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/rng.h"
#include "common/cluster/queue.h"
#include "tests/sim/event_queue.h"
#include "tests/unit/cluster/hosts.h"

namespace dtrain::cluster {

class QueueWorld {
 public:
  struct Options {
    std::uint64_t seed = 0;
    std::string_view broken_rule;
  };
  // What broke; "": every invariant held.
  static std::string run(const Options& options) { return QueueWorld(options).go(); }

 private:
  enum class What : unsigned char { submit, end };
  using Events = sim::EventQueueOf<What>;

  struct Job {
    job::JobSpec spec;
    Duration length{0};  // in truth
    Duration submitted{0};
    bool arrived = false;
    bool ended = false;
    bool recovers = false;  // its first run dies, and it goes on
    bool resumes = false;
    std::uint32_t least = 0;  // tasks with which it goes on then
    bool made_room = false;   // since its last start
    std::uint32_t run = 0;    // counts starts: an end of an earlier run is void
    std::optional<RunningJob> running;
  };

  explicit QueueWorld(const Options& options)
      : rng_(options.seed), elastic_(~options.seed), options_{true, true, options.broken_rule}, queue_(options_) {
    options_.preempt = rng_.chance(1, 2);
    options_.back_fill_by_time = rng_.chance(1, 2);
    liars_ = !options_.back_fill_by_time && rng_.chance(1, 2);
    recoveries_ = rng_.chance(1, 3);
    queue_ = JobQueue(options_);
    make_hosts();
    make_jobs();
  }

  std::uint32_t draw(std::uint64_t low, std::uint64_t high) { return static_cast<std::uint32_t>(low + rng_.below(high - low + 1)); }

  void make_hosts() {
    const std::uint32_t count = draw(1, 6);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t cpus = draw(2, 8);
      const std::uint32_t gpus = rng_.chance(1, 2) ? draw(1, 4) : 0;
      hosts_.push_back(host("h" + std::to_string(i), cpus, gpus));
    }
  }

  void make_jobs() {
    const std::uint32_t count = draw(10, 60), priorities = draw(1, 3), pause = draw(1, 40);
    jobs_.resize(count);
    Duration at{0};
    for (std::uint32_t i = 0; i < count; ++i) {
      const bool big = rng_.chance(1, 5);
      const std::uint32_t tasks = big ? draw(2, 8) : draw(1, 2);
      const std::uint32_t cpus = draw(1, big ? 8 : 3);
      const std::uint32_t gpus = rng_.chance(1, 3) ? draw(1, 2) : 0;
      Job& job = jobs_[i];
      job.spec = rng_.chance(1, 3) ? ranks_job(tasks, cpus, gpus) : workers_job(tasks, cpus, gpus);
      if (rng_.chance(1, 8)) job.spec.roles["worker"].anti_affinity = "host";
      job.spec.name = "j" + std::to_string(i);
      job.spec.policy.priority = static_cast<std::int32_t>(rng_.below(priorities));
      job.spec.policy.stop_grace_period = std::chrono::seconds(draw(0, 10));
      job.length = std::chrono::seconds(draw(1, 100));
      if (rng_.chance(1, 2)) job.spec.policy.expected = job.length + std::chrono::seconds(draw(0, 20));
      if (liars_) job.spec.policy.expected = std::chrono::seconds(draw(1, 100));
      job.recovers = recoveries_ && rng_.chance(1, 4);
      job.least = elastic_.chance(1, 2) ? 1 + static_cast<std::uint32_t>(elastic_.below(tasks)) : tasks;
      at += std::chrono::seconds(draw(0, pause));
      job.submitted = at;
      events_.push(Instant(at), What::submit, i);
    }
  }

  std::string go() {
    while (!events_.empty()) {
      const Instant now = events_.next();
      now_ = now.time_since_epoch();
      while (!events_.empty() && events_.next() == now) happen(events_.pop());
      decide();
      if (!broken_.empty()) return "at " + std::to_string(now_ / 1s) + " s: " + broken_;
    }
    for (const Job& job : jobs_)
      if (!job.ended && ever_fits(job)) return job.spec.name + " never ran";
    return "";
  }

  void happen(const Events::Event& event) {
    Job& job = jobs_[event.slot];
    if (event.what == What::submit) {
      job.arrived = true;
    } else if (job.running && job.run == event.a) {
      job.ended = !job.running->ending || event.b == 0;  // ended for another, it waits again
      if (job.ended && job.recovers && !job.running->ending) {
        job.ended = job.recovers = false;
        job.resumes = true;
      }
      job.running.reset();
    }
  }

  void decide() {
    Capacity free(hosts_);
    std::vector<RunningJob> running;
    std::vector<WaitingJob> waiting;
    for (std::uint32_t i = 0; i < jobs_.size(); ++i) {
      const Job& job = jobs_[i];
      if (job.running) {
        free.hold(job.spec, job.running->placements);
        running.push_back(*job.running);
      } else if (job.arrived && !job.ended) {
        waiting.push_back({.id = i,
                           .spec = &job.spec,
                           .tasks = wanted_tasks(job.spec),
                           .submitted = job.submitted,
                           .runs_for = runs_for(job.spec),
                           .resumes = job.resumes,
                           .standing = {},
                           .preempts = !job.made_room,
                           .run = job.run + 1,
                           .least = {}});
        if (fewest(job) < total_replicas(job.spec)) waiting.back().least["worker"] = fewest(job);
      }
    }
    Decision decision = queue_.decide(free, running, waiting, now_);
    for (Start& s : decision.starts) start(s);
    for (const Preemption& p : decision.preemptions) preempt(p);
    nothing_is_over_booked();
    somebody_runs();
    what_never_fits(decision);
    reservation_holds(decision);
    the_first_waits_for_nobody_who_came_later(decision);
  }

  void start(Start& s) {
    Job& job = jobs_[s.job];
    ++job.run;
    job.made_room = false;
    job.running =
        RunningJob{.id = s.job, .spec = &job.spec, .placements = std::move(s.placements), .started = now_, .ends_by = {}, .run = job.run};
    if (const auto most = runs_for(job.spec)) job.running->ends_by = now_ + *most;
    events_.push(Instant(now_ + job.length), What::end, static_cast<std::uint32_t>(s.job), job.run);
  }

  void preempt(const Preemption& p) {
    Job& victim = jobs_[p.victim];
    if (!victim.running || victim.spec.policy.priority >= jobs_[p.beneficiary].spec.policy.priority)
      return broke(victim.spec.name + " had to make room for " + jobs_[p.beneficiary].spec.name + ", its equal");
    if (jobs_[p.beneficiary].made_room) return broke(jobs_[p.beneficiary].spec.name + " made room itself, and ends another");
    if (victim.running->ending) return broke(victim.spec.name + " has to make room twice");
    victim.running->ending = victim.running->returns = victim.made_room = true;
    const Duration by = now_ + p.grace;
    victim.running->ends_by = victim.running->ends_by ? std::min(*victim.running->ends_by, by) : by;
    events_.push(Instant(by), What::end, static_cast<std::uint32_t>(p.victim), victim.run, 1);
  }

  // ---- checkers

  void broke(std::string what) {
    if (broken_.empty()) broken_ = std::move(what);
  }

  void nothing_is_over_booked() {
    for (const HostCapacity& h : hosts_) {
      std::uint64_t cpu = 0;
      std::set<std::uint32_t> gpus;
      for (const Job& job : jobs_) {
        if (!job.running) continue;
        std::uint32_t here = 0;
        for (const TaskPlacement& p : job.running->placements) {
          if (p.node != h.id) continue;
          ++here;
          const job::RoleSpec& role = job.spec.roles.at(p.task.role);
          cpu += role.resources.cpu_millis;
          if (p.gpus.size() != role.resources.gpus) broke(job.spec.name + " has another number of GPUs than it asked for");
          for (const std::uint32_t gpu : p.gpus)
            if (gpu >= h.gpus.size() || !gpus.insert(gpu).second) broke("a GPU of " + h.id + " is given out twice");
        }
        if (here > 1 && job.spec.roles.at("worker").anti_affinity == "host") broke(job.spec.name + " has two tasks on " + h.id);
        const std::size_t tasks = job.running->placements.size();
        if (tasks < fewest(job) || tasks > total_replicas(job.spec)) broke(job.spec.name + " runs in part");
      }
      if (cpu > h.cpu_millis) broke("more runs on " + h.id + " than it has");
    }
  }

  static std::uint32_t fewest(const Job& job) { return job.resumes ? job.least : total_replicas(job.spec); }

  // All tasks of a job are alike here: counting decides.
  bool ever_fits(const Job& job) const {
    const job::RoleSpec& role = job.spec.roles.at("worker");
    std::uint64_t slots = 0;
    for (const HostCapacity& h : hosts_) {
      std::uint64_t here = h.cpu_millis / role.resources.cpu_millis;
      if (role.resources.gpus > 0) here = std::min<std::uint64_t>(here, h.gpus.size() / role.resources.gpus);
      slots += role.anti_affinity == "host" ? std::min<std::uint64_t>(here, 1) : here;
    }
    return slots >= fewest(job);
  }

  bool waits(const Job& job) const { return job.arrived && !job.ended && !job.running; }

  void somebody_runs() {
    const bool any = std::any_of(jobs_.begin(), jobs_.end(), [](const Job& j) { return j.running.has_value(); });
    for (const Job& job : jobs_)
      if (!any && waits(job) && ever_fits(job)) broke(job.spec.name + " waits, and nothing runs");
  }

  void what_never_fits(const Decision& decision) {
    for (const Waits& w : decision.waits)
      if (w.kind == WaitKind::never_fits && ever_fits(jobs_[w.job])) broke(jobs_[w.job].spec.name + " is said never to fit");
  }

  // The first that waits is there at the latest when all have ended that ran when it became the first.
  void the_first_waits_for_nobody_who_came_later(const Decision& decision) {
    std::optional<std::uint32_t> first;
    const auto rank = [&](std::uint32_t i) { return std::tuple(-jobs_[i].spec.policy.priority, !jobs_[i].resumes, jobs_[i].submitted, i); };
    for (std::uint32_t i = 0; i < jobs_.size(); ++i)
      if (waits(jobs_[i]) && ever_fits(jobs_[i]) && (!first || rank(i) < rank(*first))) first = i;
    // Who starts before it by right may take what it waited for: it waits anew.
    const bool overtaken = first && std::any_of(decision.starts.begin(), decision.starts.end(),
                                                [&](const Start& s) { return rank(static_cast<std::uint32_t>(s.job)) < rank(*first); });
    if (first != first_ || overtaken) {
      first_ = first;
      ran_then_.clear();
      for (std::uint32_t i = 0; i < jobs_.size(); ++i)
        if (jobs_[i].running) ran_then_.insert({i, jobs_[i].run});
    }
    if (!first || (options_.back_fill_by_time && promised_)) return;  // then the promise counts
    for (const auto& [i, run] : ran_then_)
      if (jobs_[i].running && jobs_[i].run == run) return;
    broke(jobs_[*first].spec.name + " still waits, and all have ended that ran when it became the first");
  }

  // Back-fill delays nobody: what was promised is kept.
  void reservation_holds(const Decision& decision) {
    if (!decision.reservation || liars_) return promised_.reset();
    const Reservation& r = *decision.reservation;
    const bool overtaken = std::any_of(decision.starts.begin(), decision.starts.end(), [](const Start& s) { return !s.back_filled; });
    if (!promised_ || promised_->first != r.job || overtaken) promised_.reset();
    if (r.begins_by && !promised_) promised_ = {r.job, *r.begins_by};
    if (r.begins_by && promised_) promised_->second = std::min(promised_->second, *r.begins_by);
    if (promised_ && promised_->second < now_) broke(jobs_[r.job].spec.name + " should have begun by now");
  }

  Rng rng_, elastic_;
  bool liars_ = false;       // some run longer than they say
  bool recoveries_ = false;  // some run twice, and go before others then
  QueueOptions options_;
  JobQueue queue_;
  std::vector<HostCapacity> hosts_;
  std::vector<Job> jobs_;
  Events events_;
  Duration now_{0};
  std::string broken_;
  std::optional<std::uint32_t> first_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> ran_then_;  // job and its run
  std::optional<std::pair<JobId, Duration>> promised_;
};

}  // namespace dtrain::cluster
