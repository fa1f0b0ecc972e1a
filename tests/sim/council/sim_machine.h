// One machine of world council: its disk, the running process of its agent, and its clock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/sim/council/checker.h"
#include "tests/sim/council/event.h"
#include "tests/sim/sim_clock.h"

namespace dtrain::sim::council {

struct SimDisk {
  MemberId id;
  std::uint64_t life = 0;  // the last that was started
  raft::Stored stored;
};

struct Flight {  // a message under way
  Slot from = 0;
  raft::Send send;
};

struct SimMachine {
  static constexpr std::uint32_t kChange = 0xffffffff;

  SimMachine(std::uint64_t window, const raft::Rules& rules) : machine(window, rules) {}

  Truth truth;
  SimDisk disk;
  std::optional<SimDisk> copy;
  SimClock clock;

  // Of the process.
  std::unique_ptr<raft::Raft> core;
  RegisterMachine machine;
  std::optional<raft::Persist> under_way;
  bool persist_fails = false, stored_already = false;  // of what is under way
  Instant tick_at = kNever;                            // of the earliest Tick that is in the queue
  Instant ticked{};
  std::uint32_t ticks_in_place = 0;
  bool snapshot_under_way = false;
  std::uint64_t numbers = 0;                                                 // of what the core was asked
  std::map<std::uint64_t, std::uint32_t> asks;                               // number -> the client's attempt; kChange: the operator's
  std::vector<std::pair<std::uint64_t, std::uint32_t>> reads;                // from which index on an attempt may be served
  std::vector<std::pair<std::uint64_t, RegisterMachine::Outcome>> outcomes;  // of this step, by index
  std::vector<Event> held;                                                   // while it is stopped

  bool fail_next_persist = false;
  std::function<void()> in_next_persist;  // happens while it is written
  Duration disk_takes{0};                 // at most, beside the usual
  std::uint32_t pauses = 0;               // counted, so that an older resume is not taken for this one's
};

}  // namespace dtrain::sim::council
