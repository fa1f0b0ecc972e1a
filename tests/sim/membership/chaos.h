// Makes faults happen to members at random times until a given instant, then heals everything. With all faults
// permitted each run draws a subset of them, so that rare combinations occur too; named ones all occur.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "tests/sim/membership/faults.h"
#include "tests/sim/membership/membership_world.h"
#include "tests/sim/undo_list.h"

namespace dtrain::sim::membership {

class Chaos {
 public:
  Chaos(MembershipWorld& world, const FaultSet& permitted, std::uint32_t nodes, Rng rng, Instant until);
  void begin();
  void heal();  // all that is held down comes back; copies and impostors go

 private:
  void draw(const FaultSet& permitted);
  void next(Fault fault);
  void strike(Fault fault);
  void restart(std::uint32_t slot, Duration back_after);
  void come_back(std::uint32_t slot, Duration after);
  void lasting(Fault fault);
  // `parts`: when it ends, both sides' verdicts about each other meet.
  void cut(Duration longest, bool parts, std::function<void(Cuts&, bool)> set, std::vector<std::uint32_t> unwell);
  void partition(std::vector<std::uint32_t> away, std::vector<std::uint32_t> unwell, Duration longest);
  void flip_flop(std::uint32_t a, std::uint32_t b, std::uint32_t times);
  void impostor(Fault fault);
  void stall(std::uint32_t slot);
  void mass_restart();
  void other_cluster();
  void churn();
  std::optional<std::uint32_t> someone();  // fit, of the first cluster
  std::vector<std::uint32_t> several(std::uint32_t most);
  std::vector<std::string> seeds();
  bool address_known(std::uint32_t slot) const;  // no member remembers an older one
  bool may_lose_one() const;                     // for ever: enough of the others stay for a quorum
  // Ends what lasts after a random time up to `longest`, at the latest when the time of faults is over.
  void for_a_while(Duration longest, std::function<void()> undo);
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count())) + 1)); }
  Duration between(Duration least, Duration most) { return least + upto(most - least); }

  MembershipWorld& world_;
  FaultSet active_;
  std::uint32_t nodes_;
  Rng rng_;
  Instant until_;
  std::array<Duration, kFaults> mean_{};
  UndoList undo_;  // what still lasts
  std::vector<std::uint32_t> coming_back_, impostors_, others_;
  std::uint32_t lost_ = 0, names_ = 0, partitions_ = 0;  // partitions_: a bit each
  bool over_ = false;
};

}  // namespace dtrain::sim::membership
