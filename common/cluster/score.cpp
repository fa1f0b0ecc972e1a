#include "common/cluster/score.h"

#include <algorithm>

namespace dtrain::cluster {

Score score(const HostNow& now, HostOrder order, std::uint32_t left) {
  const std::uint32_t avoided = now.avoided ? 1 : 0, elsewhere = now.own > 0 ? 0 : 1, unused = now.load > 0 ? 0 : 1;
  switch (order) {
    case HostOrder::pack: return {avoided, elsewhere, unused, now.slots, now.host};
    case HostOrder::close: {
      // Both halves in one number: hosts that hold all remaining tasks come before all others.
      const std::uint32_t fill = now.slots >= left ? std::min(now.slots, kSlotsCounted) : 2 * kSlotsCounted - now.slots;
      return {avoided, now.rack, elsewhere, fill, now.host};
    }
    case HostOrder::spread: return {avoided, now.own, now.load, 0, now.host};
    case HostOrder::tight: break;
  }
  return {now.slots, 0, 0, 0, now.host};
}

}  // namespace dtrain::cluster
