// Node's handling of the health of its host and of its GPUs.
#include <algorithm>
#include <utility>

#include "common/node/node_impl.h"

namespace dtrain::node {

using cluster::JobRecord;

namespace {

constexpr Duration kFaultExplains = 30s;  // a fault explains the end of a task for so long

}  // namespace

void Node::Impl::gpu_changed(const GpuHealth::Change& change) {
  const auto gpu = std::ranges::find(c.facts.gpus, change.pci, &Gpu::pci);
  if (gpu == c.facts.gpus.end()) return;  // the GPU is excluded, and no task can have it
  const bool sick = !change.reason.empty();
  // A GPU that was unfit when the agent started (no driver, MIG) does not become fit because it is watched.
  if (!gpu->healthy && !fell_sick.contains(change.pci)) return;
  if (sick) fell_sick.insert(change.pci);
  else fell_sick.erase(change.pci);
  gpu->healthy = !sick;
  gpu->reason = change.reason;
  const std::string which = "GPU " + std::to_string(gpu->index) + " (" + gpu->pci + ")";
  coordinator.drains_changed();  // what the host offers changed, as after an undrain: waiting jobs are looked at again
  members.tell(sick ? "gpu.sick" : "gpu.well", sick ? which + ": " + change.reason : which);
}

void Node::Impl::gpus_sampled(const GpusSampled& e) {
  for (const GpuHealth::Change& change : gpu_health.sampled(e.gpus)) gpu_changed(change);
}

void Node::Impl::gpu_faulted(const GpuFaulted& e) {
  c.log.write(LogLevel::warn, "gpu.fault", {{"gpu", e.fault.pci}, {"xid", std::to_string(e.fault.xid)}, {"text", e.fault.text}});
  // the GPU is excluded, or the log names none
  if (std::ranges::find(c.facts.gpus, e.fault.pci, &Gpu::pci) == c.facts.gpus.end()) return;
  gpu_faults[e.fault.pci] = {c.now.boot, describe(e.fault)};
  if (const auto change = gpu_health.faulted(e.fault)) gpu_changed(*change);
}

void Node::Impl::host_checked(const HostChecked& e) {
  const auto change = host_health.checked(c.now.boot, e.check);
  if (!change) return;
  failed_check = change->reason;
  if (change->turned && !failed_check.empty()) tell_sick(failed_check);
}

void Node::Impl::disk_looked(const DiskLooked& e) {
  if (disk_room.looked(e.seen) && !disk_room.reason().empty()) tell_sick(disk_room.reason());
}

void Node::Impl::no_health_check() {
  host_health.forget();
  failed_check.clear();
}

void Node::Impl::set_unfit() {
  std::string reason = failed_check;
  for (const std::string& one : {disk_room.reason(), host_hooks.unfit(), gpu_reclaim.reason(), versions.unfit()})
    if (!one.empty()) reason += (reason.empty() ? "" : "; ") + one;
  c.facts.unchecked = !host_health.known() && !failed_check.empty() && reason.size() == failed_check.size();
  if (c.facts.unfit == reason) return;
  c.facts.unfit = reason;
  members.touch();
  coordinator.drains_changed();
  // Reported once no reason is left, whichever was the last.
  if (reason.empty() && std::exchange(told_sick, false)) members.tell("host.well", "");
}

void Node::Impl::tell_sick(const std::string& reason) {
  told_sick = true;
  members.tell("host.sick", reason);
}

task::Exit Node::Impl::with_gpu_fault(const AttemptExited& e) const {
  task::Exit exit = e.exit;
  const bool explained = exit.success() || exit.with_host || exit.out_of_memory || !exit.cause.empty();
  const JobRecord* job = c.ledger.find(e.id.job);
  // 126 and 127 with a cause mean that the program was not executed (job/restart.h).
  if (explained || gpu_faults.empty() || job == nullptr || (exit.signal == 0 && exit.code >= 126)) return exit;
  const auto task = job->tasks.find(e.id.task);
  if (task == job->tasks.end() || job->generation != e.id.generation || task->second.place.node != c.facts.id) return exit;
  for (const Gpu& gpu : c.facts.gpus) {
    const auto fault = gpu_faults.find(gpu.pci);
    if (fault == gpu_faults.end() || c.now.boot - fault->second.first > kFaultExplains) continue;
    if (std::ranges::find(task->second.place.gpus, gpu.index) != task->second.place.gpus.end())
      exit.cause = "GPU " + gpu.pci + ": " + fault->second.second;
  }
  return exit;
}

}  // namespace dtrain::node
