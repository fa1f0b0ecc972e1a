// Decides in world council which machines vote: grows and shrinks the council, replaces members whose disks are lost,
// and gives an empty disk to members that may not vote any more. Asks the leader; may be told to ask hastily. In half
// of the runs that resize, cluster::next_council_step() decides, and members come, die and leave.
#pragma once

#include <map>
#include <optional>

#include "common/base/rng.h"
#include "common/cluster/council.h"
#include "tests/sim/council/council_world.h"

namespace dtrain::sim::council {

class Operator {
 public:
  Operator(CouncilWorld& world, std::uint32_t nodes, std::uint32_t voters, Rng rng)
      : world_(world), nodes_(nodes), target_(voters), rng_(rng) {}

  void begin();  // acts from now on
  void stop();
  void set_resizing(bool on) {
    resizing_ = on;
    by_council_ = on && rng_.chance(1, 2);
  }
  void set_hasty(bool on) { hasty_ = on; }

  // A voter whose disk may be lost or restored to an older copy now: all the other voters, of three or more, run and
  // have the same configuration on their disks, so that they decide without it.
  std::optional<Slot> expendable();
  // From now on `id` is lost: only its removal is asked for until that is done.
  void lost(const MemberId& id) { lost_ = id; }
  // All voters have the same configuration on their disks and run.
  bool settled() const;

 private:
  void act();
  void repair();
  void resize(Slot leader);
  void ask_hastily();
  // council_decides.cpp
  void decide(Slot leader);
  cluster::CouncilStep council_step(Slot leader) const;
  void keep_members();
  void let_one_leave();
  bool removed(const MemberId& id) const;
  std::optional<MemberId> candidate(const raft::Configuration& configuration);
  void later();

  CouncilWorld& world_;
  std::uint32_t nodes_, target_;
  Rng rng_;
  bool resizing_ = false, hasty_ = false, stopped_ = false, by_council_ = false;
  std::map<MemberId, cluster::CouncilMember> members_;  // as gossip would have them
  Instant leave_at_{};
  MemberId lost_;
  Instant resize_at_{};
};

}  // namespace dtrain::sim::council
