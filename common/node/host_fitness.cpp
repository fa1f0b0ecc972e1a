#include "common/node/host_fitness.h"

#include <algorithm>

#include "common/node/cluster_members.h"

namespace dtrain::node {

using cluster::JobRecord;

void HostFitness::changed(const GpuHealth::Change& change) {
  const auto gpu = std::ranges::find(c_.facts.gpus, change.pci, &Gpu::pci);
  if (gpu == c_.facts.gpus.end()) return;  // the GPU is excluded, and no task can have it
  const bool sick = !change.reason.empty();
  // A GPU that was unfit when the agent started (no driver, MIG) does not become fit because it is watched.
  if (!gpu->healthy && !fell_sick_.contains(change.pci)) return;
  if (sick) fell_sick_.insert(change.pci);
  else fell_sick_.erase(change.pci);
  gpu->healthy = !sick;
  gpu->reason = change.reason;
  const std::string which = "GPU " + std::to_string(gpu->index) + " (" + gpu->pci + ")";
  coordinator_.drains_changed();  // what the host offers changed, as after an undrain: waiting jobs are looked at again
  c_.members->tell(sick ? "gpu.sick" : "gpu.well", sick ? which + ": " + change.reason : which);
}

void HostFitness::sampled(const GpusSampled& e) {
  for (const GpuHealth::Change& change : gpu_health_.sampled(e.gpus)) changed(change);
}

void HostFitness::faulted(const GpuFaulted& e) {
  c_.log.write(LogLevel::warn, "gpu.fault", {{"gpu", e.fault.pci}, {"xid", std::to_string(e.fault.xid)}, {"text", e.fault.text}});
  // the GPU is excluded, or the log names none
  if (std::ranges::find(c_.facts.gpus, e.fault.pci, &Gpu::pci) == c_.facts.gpus.end()) return;
  faults_[e.fault.pci] = {c_.now.boot, describe(e.fault)};
  if (const auto change = gpu_health_.faulted(e.fault)) changed(*change);
}

void HostFitness::checked(const HostChecked& e) {
  const auto change = host_health_.checked(c_.now.boot, e.check);
  if (!change) return;
  failed_check_ = change->reason;
  if (change->turned && !failed_check_.empty()) report_sick(failed_check_);
}

void HostFitness::looked(const DiskLooked& e) {
  if (disk_room_.looked(e.seen) && !disk_room_.reason().empty()) report_sick(disk_room_.reason());
}

void HostFitness::no_health_check() {
  host_health_.forget();
  failed_check_.clear();
}

void HostFitness::drive() {
  std::string reason = failed_check_;
  const auto add = [&](const std::string& one) {
    if (!one.empty()) reason += (reason.empty() ? "" : "; ") + one;
  };
  add(disk_room_.reason());
  for (const Part* part : parts_) add(part->unfit());
  c_.facts.unchecked = !host_health_.known() && !failed_check_.empty() && reason.size() == failed_check_.size();
  if (c_.facts.unfit == reason) return;
  c_.facts.unfit = reason;
  c_.members->touch();
  coordinator_.drains_changed();
  // Reported once no reason is left, whichever was the last.
  if (reason.empty() && std::exchange(told_sick_, false)) c_.members->tell("host.well", "");
}

void HostFitness::report_sick(const std::string& reason) {
  told_sick_ = true;
  c_.members->tell("host.sick", reason);
}

task::Exit HostFitness::explained(const AttemptExited& e) const {
  task::Exit exit = e.exit;
  const bool explained = exit.success() || exit.with_host || exit.out_of_memory || !exit.cause.empty();
  const JobRecord* job = c_.ledger.find(e.id.job);
  // 126 and 127 with a cause mean that the program was not executed (job/restart.h).
  if (explained || faults_.empty() || job == nullptr || (exit.signal == 0 && exit.code >= 126)) return exit;
  const auto task = job->tasks.find(e.id.task);
  if (task == job->tasks.end() || job->generation != e.id.generation || task->second.place.node != c_.facts.id) return exit;
  for (const Gpu& gpu : c_.facts.gpus) {
    const auto fault = faults_.find(gpu.pci);
    if (fault == faults_.end() || c_.now.boot - fault->second.first > kFaultExplains) continue;
    if (std::ranges::find(task->second.place.gpus, gpu.index) != task->second.place.gpus.end())
      exit.cause = "GPU " + gpu.pci + ": " + fault->second.second;
  }
  return exit;
}

}  // namespace dtrain::node
