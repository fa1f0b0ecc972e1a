#include "common/raft/configuration.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace dtrain::raft {

namespace {

void insert(std::vector<MemberId>& ids, const MemberId& id) { ids.insert(std::lower_bound(ids.begin(), ids.end(), id), id); }
void erase(std::vector<MemberId>& ids, const MemberId& id) { std::erase(ids, id); }

}  // namespace

const Configuration& ConfigurationHistory::at(std::uint64_t index) const {
  const auto behind =
      std::upper_bound(steps_.begin(), steps_.end(), index, [](std::uint64_t i, const Step& step) { return i < step.index; });
  CHECK(behind != steps_.begin());
  return std::prev(behind)->configuration;
}

void ConfigurationHistory::push(std::uint64_t index, Configuration configuration) {
  while (steps_.size() > 1 && steps_.back().index >= index) steps_.pop_back();
  steps_.push_back({index, std::move(configuration)});
}

void ConfigurationHistory::truncate_from(std::uint64_t index) {
  while (steps_.size() > 1 && steps_.back().index >= index) steps_.pop_back();
}

void ConfigurationHistory::compact_to(std::uint64_t index) {
  while (steps_.size() > 1 && steps_[1].index <= index) steps_.erase(steps_.begin());
}

void ConfigurationHistory::reset(std::uint64_t index, Configuration base) { steps_.assign(1, {index, std::move(base)}); }

Refusal changed(const Configuration& before, ChangeKind kind, const MemberId& member, Configuration& after) {
  after = before;
  if (member.none()) return Refusal::no_such_member;
  switch (kind) {
    case ChangeKind::add_learner:
      if (before.has(member)) return Refusal::already;
      if (before.learners.size() >= wire::kMostLearners) return Refusal::full;
      insert(after.learners, member);
      return Refusal::none;
    case ChangeKind::promote:
      if (before.votes(member)) return Refusal::already;
      if (!before.learns(member)) return Refusal::no_such_member;
      if (before.voters.size() >= wire::kMostVoters) return Refusal::full;
      erase(after.learners, member);
      insert(after.voters, member);
      return Refusal::none;
    case ChangeKind::demote:
      if (before.learns(member)) return Refusal::already;
      if (!before.votes(member)) return Refusal::no_such_member;
      if (before.voters.size() == 1) return Refusal::last_voter;
      if (before.learners.size() >= wire::kMostLearners) return Refusal::full;
      erase(after.voters, member);
      insert(after.learners, member);
      return Refusal::none;
    case ChangeKind::remove:
      if (!before.has(member)) return Refusal::no_such_member;
      if (before.votes(member) && before.voters.size() == 1) return Refusal::last_voter;
      erase(after.voters, member);
      erase(after.learners, member);
      return Refusal::none;
  }
  return Refusal::no_such_member;
}

}  // namespace dtrain::raft
