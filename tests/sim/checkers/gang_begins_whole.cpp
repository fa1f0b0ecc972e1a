// The ranks of a collective job wait for each other: where a generation of it begins, none is left out because it was done in an earlier
// one.
#include <algorithm>
#include <map>

#include "tests/sim/checkers/checkers.h"
#include "tests/sim/ledger_checker.h"

namespace dtrain::sim {
namespace {

class GangBeginsWhole final : public LedgerChecker {
 public:
  using LedgerChecker::LedgerChecker;
  std::string_view name() const override { return "gang_begins_whole"; }

 private:
  static constexpr std::uint32_t kSince = 3;  // of the ledger: what began before that is not judged

  void forget() override { generations_.clear(); }

  void look(const cluster::Ledger& ledger, std::uint64_t) override {
    for (const auto& [id, job] : ledger.state().jobs) {
      const auto known = generations_.find(id);
      const bool begun = known != generations_.end() && known->second != job.generation && version_ >= kSince;
      generations_[id] = job.generation;
      if (!begun || is_final(job.state) || !job::is_collective(job.spec)) continue;
      for (const auto& [task, record] : job.tasks)
        if (record.completed && record.exit_attempt < record.first_attempt && job::is_rank_role(job.spec, task.role))
          violation("job " + std::to_string(id) + " began generation " + std::to_string(job.generation) + " without " + task.text());
    }
    version_ = ledger.state().version;
  }

  std::map<JobId, Generation> generations_;
  std::uint32_t version_ = 0;
};

}  // namespace

std::unique_ptr<Checker> gang_begins_whole(WorldView& world) { return std::make_unique<GangBeginsWhole>(world); }

}  // namespace dtrain::sim
