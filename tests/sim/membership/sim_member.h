// One host and the agent on it, as world membership keeps them: durable state and running state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/gossip/membership.h"
#include "tests/sim/membership/checker.h"
#include "tests/sim/sim_clock.h"

namespace dtrain::sim::membership {

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
