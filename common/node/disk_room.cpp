#include "common/node/disk_room.h"

namespace dtrain::node {

bool DiskRoom::looked(const DiskSeen& seen) {
  const bool was_short = !short_.empty();
  const std::uint64_t keep = keep_.of(seen.total_bytes);
  const auto mib = [](std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  if (seen.free_bytes < keep)
    short_.try_emplace(
        seen.path, "its disk " + seen.path + " has " + mib(seen.free_bytes) + " free, and " + mib(keep) + " are kept (storage.minFree)");
  else if (seen.free_bytes >= keep + keep / 10) short_.erase(seen.path);
  return was_short == short_.empty();
}

std::string DiskRoom::reason() const {
  std::string all;
  for (const auto& [path, why] : short_) all += (all.empty() ? "" : "; ") + why;
  return all;
}

}  // namespace dtrain::node
