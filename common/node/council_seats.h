// Asks cluster::next_council_step() what the next change of the council should be, with what membership and the log
// say, and has the log make it. Only where this node coordinates.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "common/cluster/council.h"
#include "common/node/context.h"
#include "common/node/ledger_versions.h"

namespace dtrain::node {

class CouncilSeats {
 public:
  CouncilSeats(Context& context, const LedgerVersions& versions) : c_(context), versions_(versions) {}

  // Membership or the log may have changed: looked at when it is due.
  // These jobs changed: who has been given tasks without a copy of the log gets one at once.
  void follow(const std::set<JobId>& jobs);
  void touch() { next_ = std::min(next_, c_.now.boot); }
  // This node is about to leave for good: others shall vote and lead in its place.
  void leave(bool on) {
    leaving_ = on;
    touch();
  }
  void drive();
  void answered(const raft::Answer& answer);
  void lost_leadership() { asked_ = 0; }
  Instant deadline() const { return c_.serving && asked_ == 0 ? next_ : kNever; }

 private:
  cluster::CouncilView view();

  Context& c_;
  const LedgerVersions& versions_;
  struct Held {
    cluster::CouncilMember::State state{};
    Instant since{};
  };
  std::map<MemberId, Held> states_;
  Instant next_{};
  std::uint64_t numbers_ = 0, asked_ = 0;  // asked_: of the change under way; 0: none
  std::string why_;                        // as last said
  bool leaving_ = false;
};

}  // namespace dtrain::node
