// Carries the ledger's events to people who do not ask for them: as lines in the log of the coordinator's agent, and
// as runs of the jobs' notify hooks. Each event is logged once and each hook runs once, over restarts of agents,
// changes of the coordinator and snapshots, because the ledger keeps the number of the newest event that was carried
// out (LedgerState::told).
//
// A line is written as soon as the event is applied, and within kNoteEvery the ledger notes that it was: if all
// agents end within that time, the next coordinator writes the last lines again. A hook runs only once the note is in
// the ledger: if the coordinator is lost at that moment, the hook does not run at all, because it must not run twice.
#pragma once

#include <cstdint>
#include <set>

#include "common/cluster/state.h"
#include "common/node/context.h"
#include "common/node/part.h"

namespace dtrain::node {

inline constexpr Duration kNoteEvery = 5s;  // pause between notes, for events that no hook waits for

class History final : public Part {
 public:
  explicit History(Context& context) : Part(Runs::with_disk), c_(context) {}

  // To be called when another ledger is loaded: its events are no news.
  void begin_anew();
  // To be called when entries were applied. `leads`: with them this node began to coordinate. Returns true if there
  // are events that this class had not seen.
  bool applied(bool leads);
  // To be called when the job is gone: its hooks that run here are ended.
  void forget(JobId id) {
    if (ran_.erase(id) != 0) c_.emit(EndHooks{id});
  }
  void tick() override;
  Instant deadline() const override { return c_.serving ? due_ : kNever; }

 private:
  bool has_hook(const cluster::LedgerEvent& event) const;
  void run_hook(const cluster::LedgerEvent& event);
  void note();

  Context& c_;
  std::set<JobId> ran_;         // jobs whose hooks ran on this node
  std::uint64_t seen_ = 0;      // number of the newest event that was looked at here
  std::uint64_t hooked_ = 0;    // number of the newest event whose hook was run here, or is another coordinator's
  std::uint64_t proposed_ = 0;  // number of the newest event that a note in flight covers
  Instant due_ = kNever;        // when the next note is due
};

}  // namespace dtrain::node
