// The ledger's record of a task's attempts in a place changes only by a report of the host of that place.
#include <map>
#include <utility>

#include "tests/sim/checkers/checkers.h"
#include "tests/sim/ledger_checker.h"

namespace dtrain::sim {
namespace {

class ReportsOfItsHost final : public LedgerChecker {
 public:
  using LedgerChecker::LedgerChecker;
  std::string_view name() const override { return "reports_of_its_host"; }

 private:
  // Only what no entry other than a report can change (HostLost, for example, ends a task and takes its pid).
  struct Seen {
    std::uint64_t placed = 0;
    AttemptNumber attempt = 0, exit_attempt = 0;
    std::int32_t pid = 0;
    bool staged = false;
    Duration stood_still{0};
  };
  using Key = std::pair<JobId, TaskId>;

  void forget() override { before_.clear(); }

  void look(const cluster::Ledger& ledger, std::uint64_t) override {
    if (world_.alone()) return;  // its reports have no mark
    const cluster::LedgerState& state = ledger.state();
    std::map<Key, Seen> now;
    for (const auto& [id, job] : state.jobs) {
      for (const auto& [task, t] : job.tasks) {
        const Seen seen{t.placed, t.attempt, t.exit_attempt, t.pid, t.reached_staged, t.stood_still};
        now[{id, task}] = seen;
        const auto before = before_.find({id, task});
        if (before == before_.end() || before->second.placed != t.placed) continue;
        const Seen& was = before->second;
        const bool told = seen.attempt != was.attempt || seen.exit_attempt != was.exit_attempt || seen.staged != was.staged ||
                          seen.stood_still != was.stood_still || (seen.pid != was.pid && seen.pid != 0);
        if (told && !reported(state, t.place.node))
          return violation("job " + std::to_string(id) + " heard of " + task.text() + ", attempt " + std::to_string(t.attempt) +
                           ", from another host than the one of its place");
      }
    }
    before_ = std::move(now);
    marks_ = state.reports;
  }

  bool reported(const cluster::LedgerState& state, const NodeId& node) const {
    const auto now = state.reports.find(node), before = marks_.find(node);
    return now != state.reports.end() && (before == marks_.end() || before->second < now->second);
  }

  std::map<Key, Seen> before_;
  std::map<NodeId, cluster::ReportMark> marks_;
};

}  // namespace

std::unique_ptr<Checker> reports_of_its_host(WorldView& world) { return std::make_unique<ReportsOfItsHost>(world); }

}  // namespace dtrain::sim
