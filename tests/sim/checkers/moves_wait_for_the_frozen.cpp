// While a job stands still, for a task of it that is frozen for want of a lease, no task that it lost with another host is begun elsewhere.
//
// The coordinator hears of the freeze by an entry of the log as everybody does, so it may have proposed the move before that was applied.
// When an entry was appended is known by the log's own time: in each term the least difference between that and the world's.
#include <algorithm>
#include <map>
#include <set>

#include "tests/sim/checkers/checkers.h"
#include "tests/sim/ledger_checker.h"

namespace dtrain::sim {
namespace {

class MovesWaitForTheFrozen final : public LedgerChecker {
 public:
  using LedgerChecker::LedgerChecker;
  std::string_view name() const override { return "moves_wait_for_the_frozen"; }

 private:
  static constexpr Duration kUnderWay = 250ms;
  struct Still {
    Instant since{};
    std::set<TaskId> lost;
  };

  void forget() override { still_.clear(); }

  void look(const cluster::Ledger& ledger, std::uint64_t before) override {
    const cluster::LedgerState& state = ledger.state();
    const Duration behind = (world_.now() - Instant{}) - state.log_elapsed;
    if (state.epoch != epoch_) behind_ = behind;
    epoch_ = state.epoch;
    behind_ = std::min(behind_, behind);
    const Instant appended = Instant{} + state.log_elapsed + behind_;
    const bool one = state.applied == before + 1;
    std::map<JobId, Still> now;
    for (const auto& [id, job] : state.jobs) {
      if (!job.still_since) continue;
      Still& still = now[id];
      const auto known = still_.find(id);
      still.since = known == still_.end() ? world_.now() : known->second.since;
      for (const auto& [task, t] : job.tasks) {
        if (t.lost) still.lost.insert(task);
        const bool begun = one && t.placed == state.applied && known != still_.end() && known->second.lost.contains(task);
        if (begun && appended > still.since + kUnderWay)
          return violation("job " + std::to_string(id) + " begins " + task.text() + " elsewhere by entry " + std::to_string(t.placed) +
                           ", though it stands still: " + job.must_be_frozen);
      }
    }
    still_ = std::move(now);
  }

  std::map<JobId, Still> still_;
  std::uint64_t epoch_ = 0;
  Duration behind_{0};
};

}  // namespace

std::unique_ptr<Checker> moves_wait_for_the_frozen(WorldView& world) { return std::make_unique<MovesWaitForTheFrozen>(world); }

}  // namespace dtrain::sim
