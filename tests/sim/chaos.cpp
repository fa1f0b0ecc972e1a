#include "tests/sim/chaos.h"

#include <algorithm>
#include <csignal>
#include <string>

namespace dtrain::sim {
namespace {

struct Usual {
  Fault fault;
  Duration mean;      // between two of them, before the run's own factor
};
constexpr Usual kUsual[] = {
    {Fault::task_kill, 10s},  {Fault::shim_kill, 30s}, {Fault::agent_kill, 20s}, {Fault::reboot, 60s},
    {Fault::disk_error, 40s}, {Fault::slow_disk, 40s}, {Fault::full_disk, 60s},  {Fault::clock_jump, 20s},
    {Fault::pause, 25s},      {Fault::checkpoint_damage, 10s}, {Fault::stage_error, 25s},
};
constexpr std::int64_t kLongestJumpMs = 86'400'000;
constexpr Duration kBackAfterKill = 5s, kBackAfterReboot = 30s, kLongestPause = 3s, kLongestFull = 4s, kLongestSlow = 8s,
                   kLongestFailing = 12s, kSlowCommit = 1500ms;
// An order on its way when the agent dies is over by then: see SimRunner.
constexpr Duration kBackAtLeast = 30ms;
// A checkpoint rots only while its job has been left in peace that long: the death that makes it matter comes later.
constexpr Duration kPeace = 2s;

}  // namespace

Chaos::Chaos(ClusterWorld& world, FaultSet allowed, Rng rng, Instant until) : world_(world), rng_(rng), until_(until) {
  for (const Usual& usual : kUsual) {
    if (!allowed.has(usual.fault) || !rng_.chance(1, 2)) continue;
    active_.set(usual.fault);
    mean_[static_cast<std::size_t>(usual.fault)] = usual.mean * static_cast<std::int64_t>(3 + rng_.below(25)) / 10;
  }
}

void Chaos::begin() {
  for (const Usual& usual : kUsual)
    if (active_.has(usual.fault)) next(usual.fault);
}

void Chaos::next(Fault fault) {
  world_.timeline().after(upto(2 * mean_[static_cast<std::size_t>(fault)]), [this, fault] {
    if (world_.now() >= until_) return;
    strike(fault);
    next(fault);
  });
}

void Chaos::for_a_while(Duration longest, std::function<void()> undo) {
  const Instant end = std::min(until_, world_.now() + upto(longest));
  world_.disk_disturbed_until(end);
  world_.timeline().at(end, std::move(undo));
}

void Chaos::strike(Fault fault) {
  world_.note(to_string(fault));
  switch (fault) {
    case Fault::task_kill: return kill_some_task();
    case Fault::shim_kill: return kill_some_shim();
    case Fault::agent_kill: return world_.kill_agent(kBackAtLeast + upto(rng_.chance(1, 2) ? kBackAfterKill / 50 : kBackAfterKill));
    case Fault::reboot: return world_.reboot(kBackAtLeast + upto(kBackAfterReboot));
    case Fault::disk_error: return world_.storage().fail_next();
    case Fault::slow_disk:
      world_.storage().set_slowest(upto(kSlowCommit));
      return for_a_while(kLongestSlow, [this] { world_.storage().set_slowest(SimDisk::kUsualCommit); });
    case Fault::full_disk:
      world_.storage().set_full(true);
      return for_a_while(kLongestFull, [this] { world_.storage().set_full(false); });
    case Fault::clock_jump: {
      const auto by = static_cast<std::int64_t>(rng_.below(2 * kLongestJumpMs)) - kLongestJumpMs;
      return world_.clock().jump(std::chrono::milliseconds(by));
    }
    case Fault::pause: return world_.pause_agent(upto(kLongestPause));
    case Fault::checkpoint_damage: return damage_some_checkpoint();
    case Fault::stage_error:
      world_.host().set_failing(true);
      return for_a_while(kLongestFailing, [this] { world_.host().set_failing(false); });
  }
}

void Chaos::kill_some_task() {
  const auto& shims = world_.host().shims();
  if (world_.host().live_processes() == 0) return;
  std::uint64_t nth = rng_.below(world_.host().live_processes());
  for (const auto& [id, shim] : shims) {
    if (!shim.running || nth-- != 0) continue;
    world_.note("kill -9 " + id.text());
    return world_.host().kill_process(AssignmentId(id), SIGKILL);
  }
}

void Chaos::kill_some_shim() {
  std::uint64_t alive = 0;
  for (const auto& [id, shim] : world_.host().shims()) alive += shim.alive;
  if (alive == 0) return;
  std::uint64_t nth = rng_.below(alive);
  for (const auto& [id, shim] : world_.host().shims()) {
    if (!shim.alive || nth-- != 0) continue;
    world_.note("kill -9 shim of " + id.text());
    return world_.host().kill_shim(AssignmentId(id));
  }
}

void Chaos::damage_some_checkpoint() {
  if (!world_.agent_runs()) return;
  for (const std::string& dir : world_.files().directories()) {
    const auto& found = world_.files().in(dir);
    if (found.empty() || !found.front().good) continue;
    const JobId job = found.front().job;
    bool peace = !world_.files().looking_at(job), any = false;
    for (const auto& [id, shim] : world_.host().shims()) {
      if (id.job != job || !shim.alive) continue;
      any = true;
      peace = peace && shim.running && world_.now() - shim.started_at > kPeace;
    }
    if (!any || !peace) continue;
    world_.note("rot " + found.front().info.path);
    return world_.files().rot(dir, std::string(found.front().info.path));
  }
}

}  // namespace dtrain::sim
