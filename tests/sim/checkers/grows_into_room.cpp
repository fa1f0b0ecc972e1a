// A job that dtrain begins again because there is room for all its tasks (docs/recovery.md, "A job that shrinks") has more of them
// afterwards: nothing is ended for nothing. Not judged if a fault was going on or began meanwhile, or a user or another job changed what is
// wanted.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "common/cluster/shrink.h"
#include "tests/sim/checkers/checkers.h"
#include "tests/sim/ledger_checker.h"

namespace dtrain::sim {
namespace {

class GrowsIntoRoom final : public LedgerChecker {
 public:
  using LedgerChecker::LedgerChecker;
  std::string_view name() const override { return "grows_into_room"; }

  void on_reply(const SentRequest& sent, const wire::Message&) override {
    if (sent.type == wire::MessageType::drain) drained_ = world_.now();
  }

 private:
  // For so long after its end the world counts a fault as one that other hosts may not know of; jobs grow sooner than that.
  static constexpr Duration kAftermath = 10s;
  static constexpr std::string_view kByDtrain = "restarted by dtrain: ";
  struct Growing {
    Generation generation = 0;  // that was ended for it
    std::size_t tasks = 0;      // that it had
    std::size_t wanted = 0;
    std::uint32_t preemptions = 0;
    std::optional<Instant> quiet;  // as at that time
  };

  void forget() override { growing_.clear(); }

  void look(const cluster::Ledger& ledger, std::uint64_t) override {
    for (const auto& [id, job] : ledger.state().jobs) {
      const auto known = growing_.find(id);
      if (known == growing_.end()) {
        if (!job.shrunk.empty() && job.halt != cluster::Halt::none && job.reason.starts_with(kByDtrain))
          growing_[id] = {job.generation, size_of(job.spec), size_of(cluster::whole_spec(job)), job.preemptions, quiet()};
        continue;
      }
      if (job.generation == known->second.generation && !is_final(job.state)) continue;
      const Growing before = known->second;
      growing_.erase(known);
      const bool changed = size_of(cluster::whole_spec(job)) != before.wanted || job.preemptions != before.preemptions;
      if (is_final(job.state) || changed || !before.quiet || quiet() != before.quiet) continue;
      if (size_of(job.spec) <= before.tasks)
        violation("job " + std::to_string(id) + " was begun again for more than its " + std::to_string(before.tasks) + " tasks, and has " +
                  std::to_string(size_of(job.spec)));
    }
  }

  static std::size_t size_of(const job::JobSpec& spec) {
    return std::accumulate(spec.roles.begin(), spec.roles.end(), std::size_t{0},
                           [](std::size_t sum, const auto& role) { return sum + role.second.replicas; });
  }

  // When the last fault of any kind was over; it changes with each further one. nullopt: one is going on.
  std::optional<Instant> quiet() const {
    Instant over = drained_;
    for (std::size_t i = 0; i < world_.hosts(); ++i) {
      if (world_.host_view(i).node() == nullptr) return {};
      over = std::max(over, world_.host_view(i).undisturbed_since());
    }
    return over <= world_.now() + kAftermath ? std::optional(over) : std::nullopt;
  }

  std::map<JobId, Growing> growing_;
  Instant drained_{};
};

}  // namespace

std::unique_ptr<Checker> grows_into_room(WorldView& world) { return std::make_unique<GrowsIntoRoom>(world); }

}  // namespace dtrain::sim
