// One host and the agent on it, as world membership keeps them: what is durable, what runs, and how its clock
// goes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/gossip/membership.h"
#include "tests/sim/membership/checker.h"

namespace dtrain::sim::membership {

// CLOCK_BOOTTIME of a host: begins with each boot, and may run fast or slow.
class SimClock {
 public:
  void boot(Instant world, Duration up_already) {
    boot_ = world;
    base_ = up_already;
  }
  void drift(Instant world, std::int32_t per_million) {  // from now on; never jumps
    base_ = local(world).time_since_epoch();
    boot_ = world;
    drift_ = per_million;
  }
  Instant local(Instant world) const {
    const Duration since = world - boot_;
    return Instant{} + base_ + since + Duration(since.count() / 1'000'000 * drift_);
  }
  // The first instant of the world at which local() has reached `local_time`.
  Instant world(Instant local_time) const {
    if (local_time == kNever) return kNever;
    const Duration since = local_time - Instant{} - base_;
    if (since > kFar) return kNever;
    Instant at = boot_ + Duration(since.count() / (1'000'000 + drift_) * 1'000'000);
    while (local(at) < local_time) at += std::max(Duration(1), (local_time - local(at)) * 9 / 10);
    return at;
  }

 private:
  static constexpr Duration kFar = std::chrono::hours(24 * 365);
  Instant boot_{};
  Duration base_{0};
  std::int32_t drift_ = 0;
};

// What outlives the agent.
struct SimDisk {
  MemberId id;
  std::uint64_t life = 0;  // the last that was started
  gossip::MemberRecord record;
  bool founds = false;  // begins a cluster when the record knows none
};

struct SimMember {
  Truth truth;
  SimDisk disk, old_disk;
  gossip::MemberRecord unsaved;
  bool saving = false;
  std::string name;
  std::vector<std::string> seeds;
  std::uint64_t boot = 1;
  std::vector<wire::Fact> facts;  // values now; the next process begins with them
  SimClock clock;
  std::unique_ptr<gossip::Membership> core;
  Instant tick_at = kNever;  // of the earliest Tick that is in the queue
  Instant ticked{};
  std::uint32_t ticks_in_place = 0;
  int troubles = 0;
  std::uint32_t pauses = 0;  // counted, so that an older resume is not taken for this one's
};

}  // namespace dtrain::sim::membership
