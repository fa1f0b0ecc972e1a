// Asks cluster::next_council_step() for the next change of the council, given membership and log, and has the log
// make that change. Acts only while this node coordinates.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "common/cluster/council.h"
#include "common/node/context.h"
#include "common/node/ledger_versions.h"
#include "common/node/part.h"

namespace dtrain::node {

class CouncilSeats final : public Part {
 public:
  CouncilSeats(Context& context, const LedgerVersions& versions) : Part(Runs::with_log), c_(context), versions_(versions) {}

  // To be called when jobs changed: a host that was given tasks and has no copy of the log gets one at once. touch()
  // is for changes of membership or of the log, which are looked at when it is due.
  void jobs_changed(const std::set<JobId>& jobs);
  void touch() { next_ = std::min(next_, c_.now.boot); }
  // To be called when this node is about to leave for good: others shall vote and lead in its place.
  void leave(bool on) {
    leaving_ = on;
    touch();
  }
  void members_changed() override { touch(); }
  void log_advanced() override;
  void answered(const raft::Answer& answer);
  void lost_leadership() { asked_ = 0; }
  Instant deadline() const override { return c_.serving && asked_ == 0 ? next_ : kNever; }

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
  std::uint64_t numbers_ = 0, asked_ = 0;  // asked_: number of the change under way; 0: none
  std::string why_;                        // the reason of the last change, as reported
  bool leaving_ = false;
};

}  // namespace dtrain::node
