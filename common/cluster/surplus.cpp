#include "common/cluster/surplus.h"

#include <algorithm>

#include "common/transfer/format.h"

namespace dtrain::cluster {

std::vector<const CheckpointRecord*> surplus_of(const JobRecord& job, const std::function<bool(const NodeId&)>& is_gone) {
  std::vector<const CheckpointRecord*> good, half;
  const std::size_t keep = job.spec.checkpoint ? job.spec.checkpoint->keep : 0;
  if (keep == 0) return {};
  for (const CheckpointRecord& r : job.checkpoints) {
    if (!transfer::is_in(r.info, job.spec.checkpoint->dir) || !transfer::may_be_removed(r.info)) continue;
    if (is_half_removed(r)) half.push_back(&r);
    const auto gone = [&](const CheckpointPlace& p) { return is_gone(p.host); };
    const bool lost = r.state == CheckpointState::shares ? std::ranges::any_of(r.places, gone) : std::ranges::all_of(r.places, gone);
    if (is_verified(r) && !lost && !job.is_stale(r.generation, r.info.step)) good.push_back(&r);
  }
  std::ranges::stable_sort(good, [](const auto* a, const auto* b) { return a->info.step > b->info.step; });
  good.erase(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(std::min(keep, good.size())));
  std::erase_if(good,
                [&](const CheckpointRecord* r) { return r->info.digest == job.restored_digest && r->state != CheckpointState::shares; });
  good.insert(good.end(), half.begin(), half.end());
  return good;
}

}  // namespace dtrain::cluster
