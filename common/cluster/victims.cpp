// Chooses which jobs of lower priority make room for one of higher priority.
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "common/cluster/queue_turn.h"

namespace dtrain::cluster {
namespace {

using Running = std::vector<const RunningJob*>;

class VictimSearch {
 public:
  VictimSearch(const WaitingJob& job, const Capacity& free, Running candidates)
      : job_(job), free_(free), candidates_(std::move(candidates)) {
    std::sort(candidates_.begin(), candidates_.end(), [](const RunningJob* a, const RunningJob* b) {
      const auto rank = [](const RunningJob& j) { return std::tuple(j.spec->policy.priority, -j.started, ~j.id); };
      return rank(*a) < rank(*b);
    });
    if (candidates_.size() > kVictimsWeighed) candidates_.resize(kVictimsWeighed);
  }

  std::optional<VictimChoice> run() {
    if (auto choice = try_set({})) return choice;
    auto all = try_set(candidates_);
    if (!all) return std::nullopt;
    if (auto few = by_number()) return few;
    return without_needless(std::move(*all));
  }

 private:
  bool tired() const { return tries_ >= kVictimTries; }

  std::optional<VictimChoice> try_set(const Running& ended) {
    Capacity then = free_;
    std::vector<Holding> holdings;
    for (const RunningJob* job : ended) holdings.push_back({job->spec, &job->placements});
    then.release(holdings);
    if (!may_fit(*job_.spec, job_.tasks, then.in_all())) return std::nullopt;
    ++tries_;
    auto placed = place(*job_.spec, job_.tasks, then, {}, job_.refused);
    if (!placed) return std::nullopt;
    VictimChoice choice;
    for (const RunningJob* job : ended) choice.victims.push_back(job->id);
    choice.placements = std::move(*placed);
    return choice;
  }

  // Tries one victim alone, then two, and so on, the cheapest first.
  std::optional<VictimChoice> by_number() {
    for (std::size_t number = 1; number < candidates_.size() && !tired(); ++number) {
      Running chosen;
      if (auto choice = extend(chosen, 0, number)) return choice;
    }
    return std::nullopt;
  }
  std::optional<VictimChoice> extend(Running& chosen, std::size_t from, std::size_t number) {
    if (chosen.size() == number) {
      ++sets_;
      return try_set(chosen);
    }
    for (std::size_t i = from; i < candidates_.size() && !tired() && sets_ < kSets; ++i) {
      chosen.push_back(candidates_[i]);
      if (auto choice = extend(chosen, i + 1, number)) return choice;
      chosen.pop_back();
    }
    return std::nullopt;
  }

  // Drops victims that are not needed: first those that hold nothing where the job would go, then one after the
  // other, the dearest first.
  std::optional<VictimChoice> without_needless(VictimChoice choice) {
    std::set<NodeId> nodes;
    for (const TaskPlacement& place : choice.placements) nodes.insert(place.node);
    Running kept;
    for (const RunningJob* job : candidates_)
      if (std::any_of(job->placements.begin(), job->placements.end(), [&](const TaskPlacement& p) { return nodes.contains(p.node); }))
        kept.push_back(job);
    if (auto fewer = try_set(kept)) choice = std::move(*fewer);
    else kept = candidates_;
    tries_ = 0;
    for (std::size_t i = kept.size(); i-- > 0 && !tired();) {
      Running fewer = kept;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      auto without = try_set(fewer);
      if (!without) continue;
      choice = std::move(*without);
      kept = std::move(fewer);
    }
    return choice;
  }

  static constexpr std::uint32_t kSets = 1000;  // sets that are judged by sums, whether searched or not

  const WaitingJob& job_;
  const Capacity& free_;
  Running candidates_;
  std::uint32_t tries_ = 0, sets_ = 0;
};

}  // namespace

std::optional<VictimChoice> choose_victims(const WaitingJob& job, const Capacity& free, std::vector<const RunningJob*> candidates) {
  return VictimSearch(job, free, std::move(candidates)).run();
}

}  // namespace dtrain::cluster
