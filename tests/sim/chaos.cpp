#include "tests/sim/chaos.h"

#include <algorithm>
#include <csignal>
#include <string>

namespace dtrain::sim {
namespace {

constexpr std::int64_t kLongestJumpMs = 86'400'000;
constexpr Duration kBackAfterKill = 5s, kBackAfterReboot = 30s, kLongestPause = 3s, kLongestFull = 4s, kLongestSlow = 8s,
                   kLongestFailing = 12s, kLongestLeaving = 20s, kSlowCommit = 1500ms, kLongestCut = 12s, kLongestDrain = 40s,
                   kBetweenDrains = 60s, kBetweenStops = 40s, kTasksHave = 6s, kBetweenAways = 50s, kAwayAtLeast = 18s, kLongestAway = 35s;
constexpr std::uint64_t kMostLost = 200, kMostTwice = 300;  // of a thousand messages
// In a world of many hosts a fault of one host is up to this many times as frequent: otherwise such faults would
// hardly ever meet a task.
constexpr std::size_t kMoreOften = 4;
// An order that is on its way when the agent dies is over after this time: see SimRunner.
constexpr Duration kBackAtLeast = 30ms;
// A checkpoint rots only if its job has been left in peace for this long: the death that makes the loss matter comes later.
constexpr Duration kPeace = 2s;

// From 0 up to `most`, which is never drawn.
Duration within(Rng& rng, Duration most) {
  return Duration(static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(most.count()))));
}

}  // namespace

// A fault that comes again and again.
struct Chaos::Usual {
  Fault fault;
  Duration mean;  // mean time between two such faults, before the run's own factor
  void (*strike)(Chaos&, SimHost&);
  // Whether it comes in a run is drawn from a generator of its own, so that the runs without it do not change. So for each fault that is
  // added.
  bool added_later = false;
};
constexpr Chaos::Usual Chaos::kUsual[] = {
    {Fault::task_kill, 10s, [](Chaos& c, SimHost& host) { c.kill_some_task(host); }},
    {Fault::shim_kill, 30s, [](Chaos& c, SimHost& host) { c.kill_some_shim(host); }},
    {Fault::agent_kill, 20s, [](Chaos& c, SimHost& host) { host.kill_agent(c.until_back()); }},
    {Fault::reboot, 60s, [](Chaos& c, SimHost& host) { host.reboot(kBackAtLeast + c.upto(kBackAfterReboot)); }},
    {Fault::disk_error, 40s, [](Chaos&, SimHost& host) { host.storage().fail_next(); }},
    {Fault::slow_disk, 40s,
     [](Chaos& c, SimHost& host) {
       host.storage().set_slowest(c.upto(kSlowCommit));
       c.for_a_while(host, kLongestSlow, [&host] { host.storage().set_slowest(SimDisk::kUsualCommit); });
     }},
    {Fault::full_disk, 60s,
     [](Chaos& c, SimHost& host) {
       host.storage().set_full(true);
       c.for_a_while(host, kLongestFull, [&host] { host.storage().set_full(false); });
     }},
    {Fault::clock_jump, 20s,
     [](Chaos& c, SimHost& host) {
       const auto by = static_cast<std::int64_t>(c.rng_.below(2 * kLongestJumpMs)) - kLongestJumpMs;
       host.clock().jump(std::chrono::milliseconds(by));
     }},
    {Fault::pause, 25s, [](Chaos& c, SimHost& host) { host.pause_agent(c.upto(kLongestPause)); }},
    {Fault::checkpoint_damage, 10s, [](Chaos& c, SimHost&) { c.damage_some_checkpoint(); }},
    {Fault::stage_error, 25s,
     [](Chaos& c, SimHost& host) {
       host.tasks().set_failing(true);
       c.for_a_while(host, kLongestFailing, [&host] { host.tasks().set_failing(false); });
     }},
    {Fault::gpu_held, 15s,
     [](Chaos& c, SimHost& host) {
       host.tasks().set_leaving(true);
       c.for_a_while(host, kLongestLeaving, [&host] { host.tasks().set_leaving(false); });
     }},
    {Fault::coordinator_kill, 25s,
     [](Chaos& c, SimHost&) {
       for (std::size_t i = 0; i < c.world_.hosts(); ++i)
         if (SimHost& host = c.world_.host(i); host.node() != nullptr && host.node()->coordinates()) host.kill_agent(c.until_back());
     }},
    {Fault::partition, 40s,
     [](Chaos& c, SimHost& host) {
       const HostSet group = c.some_hosts();
       c.world_.network().part(group, true);
       c.for_a_while(host, kLongestCut, [&c, group] { c.world_.network().part(group, false); });
     }},
    {Fault::isolate, 40s,
     [](Chaos& c, SimHost& host) {
       c.world_.network().isolate(host.number(), true);
       c.for_a_while(host, kLongestCut, [&c, &host] { c.world_.network().isolate(host.number(), false); });
     }},
    {Fault::one_way, 40s,
     [](Chaos& c, SimHost& host) {
       c.world_.network().mute(host.number(), true);
       c.for_a_while(host, kLongestCut, [&c, &host] { c.world_.network().mute(host.number(), false); });
     }},
    {Fault::loss, 40s,
     [](Chaos& c, SimHost& host) {
       c.world_.network().set_loss(static_cast<std::uint32_t>(c.rng_.below(kMostLost)));
       c.for_a_while(host, kLongestCut, [&c] { c.world_.network().set_loss(0); });
     }},
    {Fault::duplicate, 40s,
     [](Chaos& c, SimHost& host) {
       c.world_.network().set_duplicates(static_cast<std::uint32_t>(c.rng_.below(kMostTwice)));
       c.for_a_while(host, kLongestCut, [&c] { c.world_.network().set_duplicates(0); });
     }},
    {Fault::delay, 40s,
     [](Chaos& c, SimHost& host) {
       c.world_.network().set_delays(true);
       c.for_a_while(host, kLongestCut, [&c] { c.world_.network().set_delays(false); });
     }},
};

Chaos::Chaos(ClusterWorld& world, FaultSet allowed, Rng rng, Instant until)
    : world_(world), rng_(rng), operator_(rng.next() ^ 0xd2a1), until_(until) {
  for (const Usual& usual : kUsual) {
    Rng own(Rng(rng).next() ^ static_cast<std::uint64_t>(usual.fault));
    Rng& draws = usual.added_later ? own : rng_;
    if (!allowed.has(usual.fault) || (among_several(usual.fault) && world_.alone()) || !draws.chance(1, 2)) continue;
    Duration& mean = mean_[static_cast<std::size_t>(usual.fault)];
    mean = usual.mean * static_cast<std::int64_t>(3 + draws.below(25)) / 10;
    if (world_.many() && !among_several(usual.fault)) mean /= static_cast<std::int64_t>(std::min(world_.hosts() / kFewHosts, kMoreOften));
  }
  drains_ = allowed.has(Fault::drain) && !world_.alone() && operator_.chance(1, 2);
}

void Chaos::begin() {
  for (const Usual& usual : kUsual)
    if (mean_[static_cast<std::size_t>(usual.fault)] != Duration{}) next(usual);
  if (drains_) drain_later();
}

// The operator draws from an own random generator, so that a run without drains is not changed by them.
void Chaos::drain_later() {
  world_.timeline().after(within(operator_, kBetweenDrains), [this] {
    if (world_.now() >= until_) return;
    const std::size_t number = operator_.below(world_.hosts());
    world_.note(number, to_string(Fault::drain));
    world_.drain(number, true, operator_.chance(1, 2) ? Duration{} : within(operator_, kLongestDrain));
    world_.timeline().at(std::min(until_, world_.now() + within(operator_, kLongestDrain)),
                         [this, number] { world_.drain(number, false, {}); });
    drain_later();
  });
}

void Chaos::stop_hosts(Rng rng) {
  stops_ = rng;
  stop_later();
}

void Chaos::stop_later() {
  world_.timeline().after(within(stops_, kBetweenStops), [this] {
    if (world_.now() >= until_) return;
    const std::size_t number = busy_from(stops_.below(world_.hosts()));
    world_.note(number, to_string(Fault::host_stop));
    const Duration tasks_have = within(stops_, kTasksHave);
    world_.host(number).stop(tasks_have, kBackAtLeast + within(stops_, kBackAfterReboot));
    stop_later();
  });
}

void Chaos::lose_hosts(Rng rng) {
  aways_ = rng;
  lose_later();
}

void Chaos::lose_later() {
  world_.timeline().after(within(aways_, kBetweenAways), [this] {
    if (world_.now() >= until_) return;
    const std::size_t number = busy_from(aways_.below(world_.hosts()));
    world_.note(number, to_string(Fault::host_away));
    world_.host(number).reboot(kAwayAtLeast + within(aways_, kLongestAway - kAwayAtLeast));
    lose_later();
  });
}

void Chaos::next(const Usual& usual) {
  world_.timeline().after(upto(2 * mean_[static_cast<std::size_t>(usual.fault)]), [this, &usual] {
    if (world_.now() >= until_) return;
    SimHost& host = some_host(usual.fault);
    world_.note(host.number(), to_string(usual.fault));
    usual.strike(*this, host);
    next(usual);
  });
}

SimHost& Chaos::some_host(Fault fault) {
  const std::size_t number = world_.alone() ? 0 : rng_.below(world_.hosts());
  const bool busy = world_.many() && (fault == Fault::task_kill || fault == Fault::shim_kill);
  return world_.host(busy ? busy_from(number) : number);
}

void Chaos::for_a_while(SimHost& host, Duration longest, std::function<void()> undo) {
  const Instant end = std::min(until_, world_.now() + upto(longest));
  host.disturbed_until(end);
  world_.cluster_disturbed_until(end);
  world_.timeline().at(end, std::move(undo));
}

// Returns the next host, from `number` on, on which a task runs, or `number` itself if there is none.
std::size_t Chaos::busy_from(std::size_t number) {
  for (std::size_t i = 0; i < world_.hosts(); ++i) {
    const std::size_t next = (number + i) % world_.hosts();
    if (world_.host(next).tasks().live_processes() != 0) return next;
  }
  return number;
}

HostSet Chaos::some_hosts() {
  if (!world_.many()) return {1 + rng_.below((1ull << world_.hosts()) - 2)};
  // Draws the size of the group first: with so many hosts, only halves would be drawn otherwise.
  HostSet group;
  std::size_t wanted = 1 + rng_.below(world_.hosts() - 1);
  for (std::size_t i = 0; wanted != 0; ++i) {
    if (rng_.below(world_.hosts() - i) >= wanted) continue;
    group.set(i);
    --wanted;
  }
  return group;
}

Duration Chaos::until_back() { return kBackAtLeast + upto(rng_.chance(1, 2) ? kBackAfterKill / 50 : kBackAfterKill); }

void Chaos::kill_some_task(SimHost& host) {
  const auto& shims = host.tasks().shims();
  if (host.tasks().live_processes() == 0) return;
  std::uint64_t nth = rng_.below(host.tasks().live_processes());
  for (const auto& [id, shim] : shims) {
    if (!shim.running || nth-- != 0) continue;
    world_.note(host.number(), "kill -9 " + id.text());
    return host.tasks().kill_process(AssignmentId(id), SIGKILL);
  }
}

void Chaos::kill_some_shim(SimHost& host) {
  std::uint64_t alive = 0;
  for (const auto& [id, shim] : host.tasks().shims()) alive += shim.alive;
  if (alive == 0) return;
  std::uint64_t nth = rng_.below(alive);
  for (const auto& [id, shim] : host.tasks().shims()) {
    if (!shim.alive || nth-- != 0) continue;
    world_.note(host.number(), "kill -9 shim of " + id.text());
    return host.tasks().kill_shim(AssignmentId(id));
  }
}

void Chaos::damage_some_checkpoint() {
  for (std::size_t i = 0; i < world_.hosts(); ++i)
    if (!world_.host(i).agent_runs()) return;
  SimCheckpoints& files = world_.host(world_.alone() ? 0 : rng_.below(world_.hosts())).files();
  for (const std::string& dir : files.directories()) {
    const auto& found = files.in(dir);
    if (found.empty() || !found.front().good) continue;
    const JobId job = found.front().job;
    // No checkpoint rots between a choice and the start that follows it either, while an older generation runs on a
    // host that is cut off (13716, 15117).
    const cluster::JobRecord* record = world_.ledger().find(job);
    bool peace = record != nullptr && !record->needs_generation && record->halt == cluster::Halt::none, any = false;
    for (std::size_t i = 0; i < world_.hosts(); ++i) {
      peace = peace && !world_.host(i).files().looking_at(job);
      for (const auto& [id, shim] : world_.host(i).runner().shims()) {
        if (id.job != job || !shim.alive) continue;
        any = true;
        peace = peace && shim.running && id.generation == record->generation && world_.now() - shim.started_at > kPeace;
      }
    }
    if (!any || !peace) continue;
    world_.note(0, "rot " + found.front().info.path);
    return files.rot(dir, std::string(found.front().info.path));
  }
}

}  // namespace dtrain::sim
