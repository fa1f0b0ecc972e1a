// What a run of world council counted, and how runs add up.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace dtrain::sim::council {

struct Figures {
  std::uint64_t events = 0, steps = 0, messages = 0, encoded = 0, persists = 0;
  std::uint64_t committed = 0, writes = 0, reads = 0, given_up = 0;
  std::uint64_t elections = 0, leaders = 0, changes = 0, snapshots = 0, installs = 0, restarts = 0, fenced = 0;
  std::uint64_t wiped = 0, rolled_back = 0, recoveries = 0, followed = 0, disk_errors = 0, crashes_in_persist = 0;
  void join(const Figures& run);
  nlohmann::json json() const;
};

}  // namespace dtrain::sim::council
