// The ledger's events on their way to people who do not ask: lines in the log of the node that coordinates, and the notify hooks of
// jobs. Each event is logged and each hook run once in the event's life, over restarts of agents, changes of the coordinator and
// snapshots: the ledger keeps the number of the newest event that was told (LedgerState::told).
//
// A line is written as soon as the event is applied, and that it was is noted in the ledger within kNoteEvery: where all agents end
// within that time, the last lines are written again by the next coordinator. A hook runs once the note is in the ledger: where the
// coordinator is lost in that moment it does not run at all, for it must not run twice.
#pragma once

#include <cstdint>
#include <set>

#include "common/cluster/state.h"
#include "common/node/context.h"

namespace dtrain::node {

inline constexpr Duration kNoteEvery = 5s;  // of events that no hook waits for

class History {
 public:
  explicit History(Context& context) : c_(context) {}

  // Another ledger is here: what it tells of is no news.
  void begin_anew();
  // Entries were applied; `leads`: with them this node begins to coordinate. True: there are events that nobody here has seen.
  bool applied(bool leads);
  // The job is gone: its hooks that this node runs end.
  void forget(JobId id) {
    if (ran_.erase(id) != 0) c_.emit(EndHooks{id});
  }
  void tick();
  Instant deadline() const { return c_.serving ? due_ : kNever; }

 private:
  bool has_hook(const cluster::LedgerEvent& event) const;
  void run_hook(const cluster::LedgerEvent& event);
  void note();

  Context& c_;
  std::set<JobId> ran_;         // jobs whose hooks this node ran
  std::uint64_t seen_ = 0;      // newest event that was looked at here
  std::uint64_t hooked_ = 0;    // newest whose hook was run, or is another's
  std::uint64_t proposed_ = 0;  // newest that a note in flight names
  Instant due_ = kNever;        // of the next note
};

}  // namespace dtrain::node
