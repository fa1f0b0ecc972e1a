#include "common/cluster/council.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace dtrain::cluster {

namespace {

using raft::ChangeKind;
using State = CouncilMember::State;
using Act = CouncilStep::Act;

constexpr std::size_t kThreeFrom = 3, kFiveFrom = 10;  // members

// Why a voter must go, the most urgent first.
enum class SeatFault : std::uint8_t { left, lost, never, too_old, none };

class Council {
 public:
  Council(const CouncilView& view, Instant now, const CouncilOptions& options)
      : view_(view), options_(options), now_(now), voters_(view.configuration.voters) {
    for (const CouncilMember& member : view.members) members_[member.id] = &member;
    for (const raft::FollowerView& follower : view.followers) followers_[follower.id] = &follower;
    std::size_t members = 0, may_vote = 0;
    for (const auto& [id, member] : members_) {
      if (member->state == State::left) continue;
      ++members;
      if (!member->never) ++may_vote;
    }
    for (const auto* ids : {&voters_, &view.configuration.learners})
      for (const MemberId& id : *ids)
        if (!members_.contains(id)) ++members, ++may_vote;
    target_ = council_size(members);
    while (target_ > 1 && target_ > may_vote) target_ -= 2;
  }

  CouncilStep next() const {
    for (const MemberId& id : learners())
      if (fault(id) == SeatFault::left) return change(ChangeKind::remove, id, name(id) + " left");
    const CouncilStep seats = next_of_voters();
    if (seats.act != Act::nothing) return seats;
    return next_of_learners().value_or(seats);
  }

  bool alone() const {
    if (voters_.size() != 1) return false;
    return std::none_of(learners().begin(), learners().end(), [this](const MemberId& id) { return has_log(id); });
  }

 private:
  CouncilStep next_of_voters() const {
    for (const MemberId& id : voters_)
      if (fault(id) == SeatFault::left && voters_.size() > 1)
        if (auto step = dismiss(id, ChangeKind::remove, name(id) + " left")) return *step;
    if (voters_.size() > target_) return shrink();
    if (voters_.size() < target_) return grow();
    return replace().value_or(wait(""));
  }

  // ---- facts about a member
  const std::vector<MemberId>& learners() const { return view_.configuration.learners; }
  const CouncilMember* member(const MemberId& id) const {
    const auto at = members_.find(id);
    return at == members_.end() ? nullptr : at->second;
  }
  std::string name(const MemberId& id) const {
    const CouncilMember* known = member(id);
    return known == nullptr || known->name.empty() ? id.text().substr(0, 8) : known->name;
  }
  Duration silent(const MemberId& id) const {
    if (id == view_.self) return {};
    const auto at = followers_.find(id);
    return at == followers_.end() ? Duration{} : at->second->silent;  // it was not asked yet
  }
  bool heard(const MemberId& id) const { return silent(id) <= options_.heard_within; }
  bool gone(const CouncilMember& known) const { return known.state == State::down || known.state == State::dead; }
  // The member counts towards the majority: it answers, and nobody saw it die (a new leader has not had time to notice silence).
  bool there(const MemberId& id) const {
    const CouncilMember* known = member(id);
    return heard(id) && (known == nullptr || !gone(*known));
  }
  // A new leader measures silence anew; gossip's states continue.
  bool lost(const MemberId& id) const {
    if (silent(id) >= options_.replace_after) return true;
    const CouncilMember* known = member(id);
    return known != nullptr && gone(*known) && !heard(id) && now_ - known->since >= options_.replace_after;
  }
  SeatFault fault(const MemberId& id) const {
    const CouncilMember* known = member(id);
    if (known != nullptr && known->state == State::left) return SeatFault::left;
    if (lost(id)) return SeatFault::lost;
    if (known != nullptr && known->never) return SeatFault::never;
    return known != nullptr && known->too_old ? SeatFault::too_old : SeatFault::none;
  }
  bool eligible(const MemberId& id) const {
    const CouncilMember* known = member(id);
    return known != nullptr && known->state == State::alive && !known->never && !known->too_old;
  }
  bool has_log(const MemberId& id) const {
    const auto at = followers_.find(id);
    return at != followers_.end() && heard(id) && at->second->match > 0 && at->second->match + options_.caught_up_lag >= view_.last_index;
  }
  bool full() const { return learners().size() >= wire::kMostLearners; }
  bool busy(const MemberId& id) const {
    const CouncilMember* known = member(id);
    return known != nullptr && known->busy;
  }
  bool ready(const MemberId& id) const { return eligible(id) && has_log(id); }
  bool coming(const MemberId& id) const { return eligible(id) && heard(id); }

  // Lower is better: proven members first, then zones with the fewest voters, then the members that have been up longest.
  using Rank = std::tuple<bool, std::size_t, Instant, MemberId>;
  Rank rank(const MemberId& id) const {
    const CouncilMember* known = member(id);
    if (known == nullptr) return {true, 0, kNever, id};
    const bool unproven = now_ - known->since < options_.proven_after;
    return {unproven, neighbours(*known), unproven ? Instant{} : known->since, id};
  }
  // How many other voters, present and coming, are in the member's zone.
  std::size_t neighbours(const CouncilMember& one) const {
    if (one.zone.empty()) return 0;
    std::size_t count = 0;
    for (const auto* ids : {&voters_, &learners()})
      for (const MemberId& id : *ids) {
        const CouncilMember* other = member(id);
        if (other != nullptr && other != &one && other->zone == one.zone && fault(id) == SeatFault::none) ++count;
      }
    return count;
  }

  // A change must not leave a council without a majority that is up if it had one.
  bool safe_without(const MemberId& id) const {
    std::size_t others = 0;
    for (const MemberId& voter : voters_)
      if (voter != id && there(voter)) ++others;
    return others > (voters_.size() - 1) / 2 || !there(id);
  }

  // ---- steps
  CouncilStep change(ChangeKind kind, const MemberId& id, std::string why) const {
    return {Act::change, kind, id, std::move(why), now_ + options_.look_while_busy};
  }
  CouncilStep wait(std::string why) const {
    const Duration look = why.empty() ? options_.look_at_rest : options_.look_while_busy;
    return {Act::nothing, {}, {}, std::move(why), now_ + look};
  }

  // A member that no longer votes keeps its copy if it can use it: it is alive, or has tasks that have not ended.
  ChangeKind departure(const MemberId& id) const {
    const CouncilMember* known = member(id);
    const bool of_use = known != nullptr && known->state != State::left && (known->busy || (!gone(*known) && !lost(id)));
    return of_use && !full() ? ChangeKind::demote : ChangeKind::remove;
  }

  // Dismisses a voter if the others can do without it; a leader hands over first.
  std::optional<CouncilStep> dismiss(const MemberId& id, ChangeKind kind, std::string why) const {
    if (!safe_without(id)) return std::nullopt;
    if (id != view_.self) return change(kind, id, std::move(why));
    const MemberId* heir = nullptr;
    for (const MemberId& other : voters_) {
      if (other == id || !there(other)) continue;
      if (heir == nullptr || std::pair(fault(*heir), rank(other)) < std::pair(fault(other), rank(*heir))) heir = &other;
    }
    if (heir == nullptr) return std::nullopt;
    return CouncilStep{Act::transfer, {}, *heir, std::move(why), now_ + options_.look_while_busy};
  }

  std::optional<MemberId> best_ready() const {
    std::optional<MemberId> best;
    for (const MemberId& id : learners())
      if (ready(id) && (!best || rank(id) < rank(*best))) best = id;
    return best;
  }
  std::size_t count_ready() const {
    return static_cast<std::size_t>(std::count_if(learners().begin(), learners().end(), [this](const MemberId& id) { return ready(id); }));
  }

  // Sees that `wanted` learners have caught up.
  CouncilStep prepare(std::size_t wanted, const std::string& purpose) const {
    std::size_t on_their_way = 0;
    std::string who;
    const MemberId* useless = nullptr;
    for (const MemberId& id : learners()) {
      if (!coming(id)) {
        if (!busy(id) && (useless == nullptr || fault(id) < fault(*useless))) useless = &id;
        continue;
      }
      ++on_their_way;
      if (!ready(id)) who += (who.empty() ? "" : ", ") + name(id);
    }
    if (on_their_way >= wanted) return wait(purpose + ": waits for " + who + " to catch up");
    std::optional<MemberId> best;
    for (const auto& [id, known] : members_)
      if (eligible(id) && !view_.configuration.has(id) && (!best || rank(id) < rank(*best))) best = id;
    if (!best) return wait(purpose + ": waits for another member that is alive and may vote");
    if (full()) return useless == nullptr ? wait(purpose) : change(ChangeKind::remove, *useless, purpose + ": room for others");
    return change(ChangeKind::add_learner, *best, purpose);
  }

  // From 1 and 3 voters by two, both caught up before the first becomes a voter; from 2 and 4 by one.
  CouncilStep grow() const {
    const std::size_t wanted = voters_.size() % 2 == 1 ? 2 : 1;
    const std::string purpose = "council of " + std::to_string(voters_.size() + wanted);
    if (count_ready() < wanted) return prepare(wanted, purpose);
    return change(ChangeKind::promote, *best_ready(), purpose);
  }

  CouncilStep shrink() const {
    std::vector<MemberId> order = voters_;
    // Dismissed first are voters that must go anyway, then absent ones, then the last of the others; the leader only
    // when nobody else is left.
    const auto urgency = [this](const MemberId& id) {
      const SeatFault why = fault(id);
      return std::tuple(why, why == SeatFault::none && id == view_.self, there(id));
    };
    std::sort(order.begin(), order.end(),
              [&](const MemberId& a, const MemberId& b) { return std::pair(urgency(a), rank(b)) < std::pair(urgency(b), rank(a)); });
    const std::string purpose = "council of " + std::to_string(target_);
    for (const MemberId& id : order)
      if (auto step = dismiss(id, departure(id), purpose)) return *step;
    return wait(purpose + ": waits until a majority is left without the others");
  }

  // A lost voter has nothing to lose: it makes room first, so that the newcomer's death cannot cost the majority. A
  // living voter goes only when the newcomer votes, if there is room for both.
  std::optional<CouncilStep> replace() const {
    std::vector<std::pair<SeatFault, MemberId>> order;
    for (const MemberId& id : voters_)
      if (fault(id) != SeatFault::none) order.emplace_back(fault(id), id);
    if (order.empty()) return std::nullopt;
    std::sort(order.begin(), order.end());
    const std::string purpose = "another in the place of " + name(order.front().second);
    if (count_ready() == 0) return prepare(1, purpose);
    for (const auto& [why, id] : order) {
      if (there(id) && voters_.size() < wire::kMostVoters) return change(ChangeKind::promote, *best_ready(), "in the place of " + name(id));
      if (auto step = dismiss(id, departure(id), "to be replaced")) return step;
    }
    return wait(purpose + ": waits until a majority is left without it");
  }

  std::optional<CouncilStep> next_of_learners() const {
    const std::string purpose = "a copy of the log";
    std::optional<MemberId> needs, other;
    for (const auto& [id, known] : members_) {
      if (known->state != State::alive || known->too_old || view_.configuration.has(id)) continue;
      (known->busy ? needs : other) = id;
    }
    if (needs && !full()) return change(ChangeKind::add_learner, *needs, purpose + ": it is given tasks");
    const auto idle = least_of_use();
    if (needs && idle) return change(ChangeKind::remove, *idle, purpose + ": room for others");
    if (!other) return std::nullopt;
    if (learners().size() < options_.standing_learners) return change(ChangeKind::add_learner, *best_outside(), purpose);
    if (idle && fault(*idle) == SeatFault::lost) return change(ChangeKind::remove, *idle, purpose + ": room for others");
    return std::nullopt;
  }
  std::optional<MemberId> best_outside() const {
    std::optional<MemberId> best;
    for (const auto& [id, known] : members_)
      if (known->state == State::alive && !known->too_old && !view_.configuration.has(id) && (!best || rank(id) < rank(*best))) best = id;
    return best;
  }
  // The learner without need of a copy that is of least use: one that is lost, or at least silent.
  std::optional<MemberId> least_of_use() const {
    std::optional<MemberId> least;
    const auto use = [this](const MemberId& id) { return std::pair(fault(id), heard(id)); };
    for (const MemberId& id : learners())
      if (!busy(id) && (!least || use(id) < use(*least))) least = id;
    return least;
  }

  const CouncilView& view_;
  const CouncilOptions& options_;
  const Instant now_;
  const std::vector<MemberId>& voters_;
  std::map<MemberId, const CouncilMember*> members_;
  std::map<MemberId, const raft::FollowerView*> followers_;
  std::size_t target_ = 1;  // number of voters
};

}  // namespace

std::uint32_t council_size(std::size_t members) { return members < kThreeFrom ? 1 : members < kFiveFrom ? 3 : 5; }

CouncilStep next_council_step(const CouncilView& view, Instant now, const CouncilOptions& options) {
  return Council(view, now, options).next();
}

bool one_disk_holds_everything(const CouncilView& view, const CouncilOptions& options) { return Council(view, Instant{}, options).alone(); }

}  // namespace dtrain::cluster
