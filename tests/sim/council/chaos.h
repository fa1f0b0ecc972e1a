// Makes faults happen to the council at random times until a given instant, then heals everything. With all faults
// permitted each run draws a subset of them, so that rare combinations occur too; named ones all occur.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "common/base/rng.h"
#include "tests/sim/council/council_world.h"
#include "tests/sim/council/operator.h"
#include "tests/sim/undo_list.h"

namespace dtrain::sim::council {

class Chaos {
 public:
  Chaos(CouncilWorld& world, Operator& the_operator, const FaultSet& permitted, Rng rng, Instant until);
  void begin();
  void heal();

 private:
  void next(Fault fault);
  void strike(Fault fault);
  void lasting(Fault fault);
  void crash(Slot slot, Duration back_after);
  void outage();
  void come_back(Slot slot, Duration after);
  void told_gone(Slot leader);
  void partition();
  void isolate();
  void one_way();
  void stall();
  void lose_disk();
  void old_disk();
  void be_quiet(Duration length);
  bool quiet() const { return over_ || world_.now() < quiet_until_; }
  void recover_quorum();
  void recover_later(Slot survivor, Duration after, std::uint32_t tries);
  void come_back_one_by_one();
  void strike_while_one_catches_up(Slot survivor, Instant until);
  std::optional<Slot> someone();  // who runs; often the leader
  std::optional<Slot> leader() const { return world_.ready_leader(); }
  void cut_for(std::vector<std::pair<Slot, Slot>> links, Duration longest);
  // Ends what lasts after a random time up to `longest`, at the latest when the time of faults is over.
  void for_a_while(Duration longest, std::function<void()> undo);
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count())) + 1)); }
  Duration between(Duration least, Duration most) { return least + upto(most - least); }

  CouncilWorld& world_;
  Operator& operator_;
  FaultSet active_;
  Rng rng_;
  Instant until_;
  std::array<Duration, kFaults> mean_{};
  UndoList undo_;  // what still lasts
  std::uint32_t recoveries_ = 0;
  std::vector<Slot> away_;  // with disks of the older history, to come back one by one
  bool wrongly_ = false;    // a history was begun while a majority of the one before was alive
  Instant quiet_until_{};   // nothing new goes wrong before
  std::uint32_t cuts_ = 0;  // that last
  bool over_ = false;
};

}  // namespace dtrain::sim::council
