#include "common/node/gpu_reclaim.h"

#include <algorithm>

#include "common/node/cluster_members.h"

namespace dtrain::node {

void GpuReclaim::begin(const AssignmentId& id, const std::string& job_name, const job::User& user, Instant since,
                       std::vector<task::OwnGpu> gpus) {
  if (gpus.empty() || c_.options.broken_rule == "gpus-reclaimed") return over_.push_back(id);
  Reclaim reclaim;
  reclaim.id = id;
  reclaim.task = job_name + "/" + id.task.text();
  reclaim.user = user;
  reclaim.since = since;
  reclaim.begun = reclaim.next = c_.now.boot;
  reclaim.gpus = std::move(gpus);
  reclaims_.emplace(c_.next_token(), std::move(reclaim));
}

void GpuReclaim::drive() {
  for (auto& [token, reclaim] : reclaims_) {
    if (reclaim.looking || c_.now.boot < reclaim.next) continue;
    reclaim.looking = true;
    c_.emit(FindGpuHolders{token, reclaim.gpus});
  }
}

Instant GpuReclaim::deadline() const {
  Instant earliest = kNever;
  for (const auto& [token, reclaim] : reclaims_)
    if (!reclaim.looking) earliest = std::min(earliest, reclaim.next);
  return earliest;
}

std::vector<GpuHolder> GpuReclaim::culprits(const Reclaim& reclaim, const std::vector<GpuHolder>& holders) const {
  std::vector<GpuHolder> found;
  for (const GpuHolder& holder : holders) {
    const bool as_task = holder.uid == reclaim.user.uid && holder.began >= reclaim.since;
    if (!holder.in_task && (holder.uid >= kFirstUserUid || as_task)) found.push_back(holder);
  }
  return found;
}

std::string GpuReclaim::describe(const Reclaim& reclaim, const std::vector<GpuHolder>& culprits) const {
  std::string text;
  for (std::size_t i = 0; i < std::min(culprits.size(), kHoldersNamed); ++i) {
    const GpuHolder& holder = culprits[i];
    const std::string whose = holder.uid == reclaim.user.uid ? reclaim.user.name : "uid " + std::to_string(holder.uid);
    text += (i == 0 ? "" : ", ") + std::string("process ") + std::to_string(holder.pid) + " (" + holder.program + " of " + whose +
            ") holds GPU " + holder.pci;
  }
  if (culprits.size() > kHoldersNamed) text += " and " + std::to_string(culprits.size() - kHoldersNamed) + " more";
  return text + " after the end of " + reclaim.task;
}

void GpuReclaim::found(const GpuHoldersFound& e) {
  const auto it = reclaims_.find(e.token);
  if (it == reclaims_.end()) return;
  Reclaim& reclaim = it->second;
  reclaim.looking = false;
  const bool patient = c_.now.boot < reclaim.begun + kReclaimPatience;
  reclaim.next = c_.now.boot + (patient ? kReclaimLook : kHeldLook);
  if (!e.holders && (patient || !reclaim.held.empty())) return;
  if (!e.holders)
    c_.log.write(LogLevel::warn, "gpu.holders-unknown", {{"task", reclaim.id.text()}, {"error", e.holders.error().text()}});
  const std::vector<GpuHolder> holders = e.holders ? culprits(reclaim, *e.holders) : std::vector<GpuHolder>();
  if (holders.empty()) {
    if (reclaim.held.empty())
      over_.push_back(reclaim.id);
    else
      c_.members->tell("gpu.released", "the GPUs of " + reclaim.task + " are free");
    reclaims_.erase(it);
    return;
  }
  if (patient) return;
  const bool first = reclaim.held.empty();
  reclaim.held = describe(reclaim, holders);
  if (!first) return;
  over_.push_back(reclaim.id);
  c_.members->tell("gpu.held", reclaim.held);
}

bool GpuReclaim::refuses(const task::TaskOrder& order) {
  for (const auto& [token, reclaim] : reclaims_) {
    if (reclaim.held.empty()) continue;
    for (const task::OwnGpu& gpu : order.gpus) {
      if (std::ranges::find(reclaim.gpus, gpu) == reclaim.gpus.end()) continue;
      staged_.push_back({order.id, fail(ErrorCode::unavailable, "could not stage " + order.id.task.text() + ": " + reclaim.held,
                                        "end that process, or use other hosts")});
      return true;
    }
  }
  return false;
}

std::string GpuReclaim::reason() const {
  for (const auto& [token, reclaim] : reclaims_)
    if (!reclaim.held.empty()) return reclaim.held;
  return "";
}

}  // namespace dtrain::node
