#include "common/node/copy_check.h"

#include <algorithm>

#include "common/node/cluster_members.h"

namespace dtrain::node {

void CopyCheck::applied() {
  const std::uint64_t index = c_.ledger.state().applied;
  if (index % c_.options.compare_every != 0 || c_.ledger.behind() || !c_.among_others()) return;
  c_.copy.mark = {index, c_.ledger.hash()};
  marks_[index] = c_.copy.mark.hash;
  if (marks_.size() > kRememberedMarks) marks_.erase(marks_.begin());
  c_.members->touch();
  touched_ = true;
}

void CopyCheck::begin_anew() {
  marks_.clear();
  c_.copy = {};
  touched_ = true;
}

struct CopyCheck::Told {
  MemberId id;
  std::string name;
  bool alive = false;
  CouncilFact fact;
};

std::vector<CopyCheck::Told> CopyCheck::told() const {
  std::vector<Told> all;
  each_copy(c_, [&](const std::string& name, const gossip::MemberView* member) {
    if (member == nullptr) all.push_back({{}, name, false, {}});
    else all.push_back({member->identity->id, name, member->state == wire::MemberState::alive, council_fact_of(*member)});
  });
  return all;
}

void CopyCheck::log_advanced() {
  if (!c_.replicated || c_.storage_failed || deadline() > c_.now.boot) return;
  touched_ = false;
  looked_ = c_.now.boot;
  next_ = kNever;
  if (marks_.empty() && !c_.serving) return;
  const std::vector<Told> others = told();
  send_state(others);
  if (c_.ledger.behind()) return;
  const auto wrong = std::ranges::find_if(marks_, [&](const auto& mark) { return differs(mark.first, mark.second, others); });
  if (wrong == marks_.end()) return;
  c_.ledger.stop({wrong->first, 0,
                  "the state after entry " + std::to_string(wrong->first) +
                      " is another one here than in the other copies; the coordinator's takes its place"});
  begin_anew();
  c_.copy.wants_state = true;
  c_.replicated->step(c_.now.boot, raft::WantState{});
}

bool CopyCheck::differs(std::uint64_t index, std::uint64_t hash, const std::vector<Told>& others) const {
  std::map<std::uint64_t, std::size_t> votes{{hash, 1}};
  std::optional<std::uint64_t> coordinators = c_.serving ? std::optional(hash) : std::nullopt;
  bool all_said = true;
  for (const Told& other : others) {
    if (other.fact.mark.index == index) {
      ++votes[other.fact.mark.hash];
      if (other.fact.role == "coordinator") coordinators = other.fact.mark.hash;
    } else if (other.alive && !other.fact.behind) {
      all_said = false;
    }
  }
  for (const auto& [one, count] : votes)
    if (2 * count > others.size() + 1) return one != hash;
  return all_said && coordinators && *coordinators != hash;
}

// The copy that asks has passed no entry since it stopped: the state of now covers all that it has applied.
void CopyCheck::send_state(const std::vector<Told>& others) {
  if (!c_.serving) return sent_.clear();
  for (const Told& other : others) {
    if (!other.fact.wants_state) continue;
    Instant& sent = sent_.try_emplace(other.id, c_.now.boot - kSendStateEvery).first->second;
    if (sent + kSendStateEvery <= c_.now.boot) {
      sent = c_.now.boot;
      c_.log.write(LogLevel::warn, "ledger.differs", {{"node", other.name}, {"next", "its copy is given the state of this one"}});
      c_.replicated->step(c_.now.boot, raft::Snapshotted{c_.ledger.state().applied, c_.ledger.snapshot()});
      c_.replicated->step(c_.now.boot, raft::SendState{other.id});
      next_ = c_.now.boot + kComparePause;  // one copy at each look: the state may be large, and many copies may ask
      return;
    }
    next_ = std::min(next_, sent + kSendStateEvery);
  }
}

}  // namespace dtrain::node
