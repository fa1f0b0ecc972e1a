#include "tests/sim/chaos.h"

#include <algorithm>
#include <csignal>
#include <string>

namespace dtrain::sim {
namespace {

struct Usual {
  Fault fault;
  Duration mean;      // mean time between two such faults, before the run's own factor
};
constexpr Usual kUsual[] = {
    {Fault::task_kill, 10s},  {Fault::shim_kill, 30s}, {Fault::agent_kill, 20s}, {Fault::reboot, 60s},
    {Fault::disk_error, 40s}, {Fault::slow_disk, 40s}, {Fault::full_disk, 60s},  {Fault::clock_jump, 20s},
    {Fault::pause, 25s},      {Fault::checkpoint_damage, 10s}, {Fault::stage_error, 25s}, {Fault::gpu_held, 15s},
    {Fault::coordinator_kill, 25s}, {Fault::partition, 40s}, {Fault::isolate, 40s}, {Fault::one_way, 40s},
    {Fault::loss, 40s}, {Fault::duplicate, 40s}, {Fault::delay, 40s},
};
constexpr std::int64_t kLongestJumpMs = 86'400'000;
constexpr Duration kBackAfterKill = 5s, kBackAfterReboot = 30s, kLongestPause = 3s, kLongestFull = 4s, kLongestSlow = 8s,
                   kLongestFailing = 12s, kLongestLeaving = 20s, kSlowCommit = 1500ms,
                   kLongestCut = 12s, kLongestDrain = 40s, kBetweenDrains = 60s, kBetweenStops = 40s, kTasksHave = 6s;
constexpr std::uint64_t kMostLost = 200, kMostTwice = 300;  // of a thousand messages
// In a world of many hosts a fault of one host is up to this many times as frequent: otherwise such faults would
// hardly ever meet a task.
constexpr std::size_t kMoreOften = 4;
// An order that is on its way when the agent dies is over after this time: see SimRunner.
constexpr Duration kBackAtLeast = 30ms;
// A checkpoint rots only if its job has been left in peace for this long: the death that makes the loss matter comes later.
constexpr Duration kPeace = 2s;

}  // namespace

Chaos::Chaos(ClusterWorld& world, FaultSet allowed, Rng rng, Instant until) : world_(world), rng_(rng), operator_(rng.next() ^ 0xd2a1), until_(until) {
  for (const Usual& usual : kUsual) {
    if (!allowed.has(usual.fault) || (among_several(usual.fault) && world_.alone()) || !rng_.chance(1, 2)) continue;
    active_.set(usual.fault);
    Duration& mean = mean_[static_cast<std::size_t>(usual.fault)];
    mean = usual.mean * static_cast<std::int64_t>(3 + rng_.below(25)) / 10;
    if (world_.many() && !among_several(usual.fault)) mean /= static_cast<std::int64_t>(std::min(world_.hosts() / kFewHosts, kMoreOften));
  }
  drains_ = allowed.has(Fault::drain) && !world_.alone() && operator_.chance(1, 2);
}

void Chaos::begin() {
  for (const Usual& usual : kUsual)
    if (active_.has(usual.fault)) next(usual.fault);
  if (drains_) drain_later();
}

// The operator draws from an own random generator, so that a run without drains is not changed by them.
void Chaos::drain_later() {
  const auto within = [this](Duration most) { return Duration(static_cast<std::int64_t>(operator_.below(static_cast<std::uint64_t>(most.count())))); };
  world_.timeline().after(within(kBetweenDrains), [this, within] {
    if (world_.now() >= until_) return;
    const std::size_t number = operator_.below(world_.hosts());
    world_.note(number, to_string(Fault::drain));
    world_.drain(number, true, operator_.chance(1, 2) ? Duration{} : within(kLongestDrain));
    world_.timeline().at(std::min(until_, world_.now() + within(kLongestDrain)), [this, number] { world_.drain(number, false, {}); });
    drain_later();
  });
}

void Chaos::stop_hosts(Rng rng) {
  stops_ = rng;
  stop_later();
}

void Chaos::stop_later() {
  const auto within = [this](Duration most) {
    return Duration(static_cast<std::int64_t>(stops_.below(static_cast<std::uint64_t>(most.count()))));
  };
  world_.timeline().after(within(kBetweenStops), [this, within] {
    if (world_.now() >= until_) return;
    const std::size_t number = busy_from(stops_.below(world_.hosts()));
    world_.note(number, to_string(Fault::host_stop));
    const Duration tasks_have = within(kTasksHave);
    world_.host(number).stop(tasks_have, kBackAtLeast + within(kBackAfterReboot));
    stop_later();
  });
}

void Chaos::next(Fault fault) {
  world_.timeline().after(upto(2 * mean_[static_cast<std::size_t>(fault)]), [this, fault] {
    if (world_.now() >= until_) return;
    strike(fault);
    next(fault);
  });
}

void Chaos::for_a_while(SimHost& host, Duration longest, std::function<void()> undo) {
  const Instant end = std::min(until_, world_.now() + upto(longest));
  host.disturbed_until(end);
  world_.cluster_disturbed_until(end);
  world_.timeline().at(end, std::move(undo));
}

void Chaos::strike(Fault fault) {
  if (among_several(fault)) return strike_between(fault);
  std::size_t number = world_.alone() ? 0 : rng_.below(world_.hosts());
  if (world_.many() && (fault == Fault::task_kill || fault == Fault::shim_kill)) number = busy_from(number);
  SimHost& host = world_.host(number);
  world_.note(number, to_string(fault));
  switch (fault) {
    case Fault::task_kill: return kill_some_task(host);
    case Fault::shim_kill: return kill_some_shim(host);
    case Fault::agent_kill: return host.kill_agent(until_back());
    case Fault::reboot: return host.reboot(kBackAtLeast + upto(kBackAfterReboot));
    case Fault::disk_error: return host.storage().fail_next();
    case Fault::slow_disk:
      host.storage().set_slowest(upto(kSlowCommit));
      return for_a_while(host, kLongestSlow, [&host] { host.storage().set_slowest(SimDisk::kUsualCommit); });
    case Fault::full_disk:
      host.storage().set_full(true);
      return for_a_while(host, kLongestFull, [&host] { host.storage().set_full(false); });
    case Fault::clock_jump: {
      const auto by = static_cast<std::int64_t>(rng_.below(2 * kLongestJumpMs)) - kLongestJumpMs;
      return host.clock().jump(std::chrono::milliseconds(by));
    }
    case Fault::pause: return host.pause_agent(upto(kLongestPause));
    case Fault::checkpoint_damage: return damage_some_checkpoint();
    case Fault::stage_error:
      host.tasks().set_failing(true);
      return for_a_while(host, kLongestFailing, [&host] { host.tasks().set_failing(false); });
    case Fault::gpu_held:
      host.tasks().set_leaving(true);
      return for_a_while(host, kLongestLeaving, [&host] { host.tasks().set_leaving(false); });
    default: return;
  }
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

Duration Chaos::until_back() {
  return kBackAtLeast + upto(rng_.chance(1, 2) ? kBackAfterKill / 50 : kBackAfterKill);
}

void Chaos::strike_between(Fault fault) {
  const std::size_t number = rng_.below(world_.hosts());
  SimHost& host = world_.host(number);
  ClusterNetwork& network = world_.network();
  world_.note(number, to_string(fault));
  switch (fault) {
    case Fault::coordinator_kill:
      for (std::size_t i = 0; i < world_.hosts(); ++i)
        if (world_.host(i).node() != nullptr && world_.host(i).node()->coordinates()) world_.host(i).kill_agent(until_back());
      return;
    case Fault::partition: {
      const HostSet group = some_hosts();
      network.part(group, true);
      return for_a_while(host, kLongestCut, [&network, group] { network.part(group, false); });
    }
    case Fault::isolate:
      network.isolate(number, true);
      return for_a_while(host, kLongestCut, [&network, number] { network.isolate(number, false); });
    case Fault::one_way:
      network.mute(number, true);
      return for_a_while(host, kLongestCut, [&network, number] { network.mute(number, false); });
    case Fault::loss:
      network.set_loss(static_cast<std::uint32_t>(rng_.below(kMostLost)));
      return for_a_while(host, kLongestCut, [&network] { network.set_loss(0); });
    case Fault::duplicate:
      network.set_duplicates(static_cast<std::uint32_t>(rng_.below(kMostTwice)));
      return for_a_while(host, kLongestCut, [&network] { network.set_duplicates(0); });
    case Fault::delay:
      network.set_delays(true);
      return for_a_while(host, kLongestCut, [&network] { network.set_delays(false); });
    default: return;
  }
}

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
