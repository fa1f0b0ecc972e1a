// What a founder does about the reports that it has: promises, begins, withdraws, joins.
#include <algorithm>
#include <utility>

#include "common/cluster/formation.h"

namespace dtrain::cluster::formation {

namespace {

std::size_t majority(std::size_t of) { return of / 2 + 1; }

Seat seat_of(const Founding& founding, const MemberId& id) {
  const auto at = std::find_if(founding.members.begin(), founding.members.end(), [&](const Founder& founder) { return founder.id == id; });
  return at == founding.members.end() ? Seat{} : at->seat;
}

bool lists(const std::vector<MemberId>& ids, const MemberId& id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

// ---------------------------------------------------------------- who is there

bool Formation::fresh(Seat seat) const { return seat == seat_ || (peers_[seat].answers && now_ - peers_[seat].heard <= options_.fresh); }

// This founder's own wish, or else that of the smallest id that has one. It lapses when a founder that it leaves out
// appears after all.
Formation::Seats Formation::wish() const {
  const Seats* wish = own_wish_.empty() ? nullptr : &own_wish_;
  const MemberId* whose = nullptr;
  for (Seat seat = 0; seat < peers_.size() && own_wish_.empty(); ++seat) {
    if (seat == seat_ || !fresh(seat) || peers_[seat].report.without.empty()) continue;
    if (whose != nullptr && *whose < peers_[seat].holder) continue;
    whose = &peers_[seat].holder;
    wish = &peers_[seat].report.without;
  }
  if (wish == nullptr) return {};
  for (const Seat seat : *wish)
    if (seat >= peers_.size() || fresh(seat)) return {};
  if ((peers_.size() - wish->size()) * 2 <= peers_.size() && with(Rule::majority_without)) return {};
  return *wish;
}

Formation::Seats Formation::wanted() const {
  const Seats without = wish();
  Seats seats;
  for (Seat seat = 0; seat < peers_.size(); ++seat)
    if (std::find(without.begin(), without.end(), seat) == without.end()) seats.push_back(seat);
  return seats;
}

bool Formation::complete(const Seats& seats) const {
  return std::all_of(seats.begin(), seats.end(), [this](Seat seat) { return fresh(seat); });
}

std::vector<Founder> Formation::holders(const Seats& seats) const {
  std::vector<Founder> out;
  for (const Seat seat : seats) out.push_back({seat, seat == seat_ ? id_ : peers_[seat].holder});
  return out;
}

bool Formation::someone_began(const Founding& founding) const {
  for (Seat seat = 0; seat < peers_.size(); ++seat)
    if (seat != seat_ && fresh(seat) && peers_[seat].report.cluster == founding.cluster) return true;
  return false;
}

// The one cluster whose log is known to work. If there are two, founders cannot decide; status() says so.
std::optional<Join> Formation::cluster_to_join() const {
  if (!cluster_.none() || !record_.promise.none()) return std::nullopt;
  std::optional<Join> join;
  for (Seat seat = 0; seat < peers_.size(); ++seat) {
    if (seat == seat_ || !fresh(seat) || !peers_[seat].report.established) continue;
    if (join && join->cluster != peers_[seat].report.cluster) return std::nullopt;
    if (!join) join = Join{peers_[seat].report.cluster, seat};
  }
  return join;
}

// ---------------------------------------------------------------- decisions

void Formation::decide() {
  if (std::any_of(own_wish_.begin(), own_wish_.end(), [this](Seat seat) { return fresh(seat); })) own_wish_.clear();
  if (record_.started && !established_) {
    // A founder that withdrew never takes part, so most voters of this founding never will, and nothing was ever
    // committed in its log.
    const bool given_up = with(Rule::abandoned_by_majority) ? is_void(record_.promise) : withdrawn_by_.contains(record_.promise.cluster);
    if (given_up) abandon();
  }
  if (!cluster_.none() || persisting_) return;
  if (record_.promise.none() || !with(Rule::one_promise)) decide_free();
  if (!record_.promise.none() && !persisting_) decide_promised();
}

void Formation::decide_promised() {
  watch_proposer();
  if (may_begin() || someone_began(record_.promise)) return begin();
  if (withdraws()) withdraw();
}

void Formation::decide_free() {
  if (cluster_to_join()) return;  // join that cluster at the next question
  accept_or_propose();
}

// All founders are up and have promised. The proposer begins, and the others follow; so a proposer that has not begun
// may withdraw, and knows that nobody has begun without it.
bool Formation::may_begin() const {
  const Founding& founding = record_.promise;
  if (founding.proposer != id_) return false;
  std::size_t promised = 0;
  for (const Founder& founder : founding.members) {
    const Peer& peer = peers_[founder.seat];
    if (founder.id == id_ || (fresh(founder.seat) && peer.holder == founder.id && peer.report.promise == founding)) ++promised;
  }
  const std::size_t needed = with(Rule::all_promised) ? founding.members.size() : majority(founding.members.size());
  return promised >= needed;
}

// A proposer that is gone for good, or that an operator leaves out, may have begun and told others: only their
// answers after that moment count. So a founder that begins to doubt starts a new round, and says that it did.
void Formation::watch_proposer() {
  const Founding& founding = record_.promise;
  if (founding.proposer == id_) return;
  const Seat seat = seat_of(founding, founding.proposer);
  // A founder that answers a round begun after the promise, and is another than the proposer, has taken the proposer's seat.
  if (fresh(seat) && peers_[seat].holder != founding.proposer) proposer_gone_ = true;
  const Seats without = wish();
  const bool left_out = std::find(without.begin(), without.end(), seat) != without.end();
  const bool is_there = fresh(seat) && !proposer_gone_;
  const bool doubts = proposer_gone_ || left_out || (doubts_ && !is_there);
  if (std::exchange(doubts_, doubts) != doubts) new_round();
}

bool Formation::withdraws() const {
  const Founding& founding = record_.promise;
  // Other founders have a cluster that works: this founding will never succeed.
  for (Seat seat = 0; seat < peers_.size(); ++seat)
    if (seat != seat_ && fresh(seat) && peers_[seat].report.established) return true;
  if (!with(Rule::proposer_withdraws)) {
    for (const Founder& founder : founding.members)
      if (founder.id != id_ && fresh(founder.seat) && peers_[founder.seat].holder != founder.id) return true;
  }
  return founding.proposer == id_ ? proposer_withdraws() : follower_withdraws();
}

// All founders are up, but not as the founding names them, or one of them is bound elsewhere or withdrew.
bool Formation::proposer_withdraws() const {
  const Founding& founding = record_.promise;
  const Seats seats = wanted();
  if (!complete(seats)) return false;
  if (holders(seats) != founding.members) return true;
  return std::any_of(seats.begin(), seats.end(), [&](Seat seat) {
    if (seat == seat_) return false;
    const FormationReport& report = peers_[seat].report;
    return lists(report.withdrawn, founding.cluster) || (!report.promise.none() && report.promise != founding);
  });
}

// The proposer withdrew; or it is gone, and none of the others began or can begin any more.
bool Formation::follower_withdraws() const {
  const Founding& founding = record_.promise;
  const auto gave_up = withdrawn_by_.find(founding.cluster);
  if (gave_up != withdrawn_by_.end() && gave_up->second.contains(founding.proposer)) return true;
  const Seats seats = wanted();
  if (!doubts_ || !complete(seats)) return false;
  return std::all_of(seats.begin(), seats.end(), [&](Seat seat) {
    if (seat == seat_) return true;
    const FormationReport& report = peers_[seat].report;
    return report.cluster != founding.cluster && (report.promise != founding || report.doubts);
  });
}

// Counts only the voters' own withdrawals: a founder whose disk is lost may have begun.
bool Formation::is_void(const Founding& founding) const {
  const auto known = withdrawn_by_.find(founding.cluster);
  const bool own =
      std::any_of(record_.withdrawn.begin(), record_.withdrawn.end(), [&](const Founding& one) { return one.cluster == founding.cluster; });
  std::size_t withdrew = 0;
  const auto voters = configuration_of(founding).voters;
  for (const MemberId& voter : voters)
    if (voter == id_ ? own : known != withdrawn_by_.end() && known->second.contains(voter)) ++withdrew;
  return withdrew >= majority(voters.size());
}

bool Formation::all_void() const {
  return !with(Rule::void_before_without) ||
         std::all_of(record_.withdrawn.begin(), record_.withdrawn.end(), [this](const Founding& one) { return is_void(one); });
}

bool Formation::acceptable(const Founding& founding, const MemberId& proposer) const {
  if (founding.none() || founding.proposer != proposer) return false;
  const bool full = founding.members.size() == peers_.size();
  if (founding.members.back().seat >= peers_.size()) return false;
  const bool named = std::any_of(founding.members.begin(), founding.members.end(), [this](const Founder& founder) {
    return founder.seat == seat_ && (founder.id == id_ || !with(Rule::founder_by_id));
  });
  if (!named) return false;
  if (founding.members.size() * 2 <= peers_.size() && with(Rule::majority_without)) return false;
  const bool given_up =
      std::any_of(record_.withdrawn.begin(), record_.withdrawn.end(), [&](const Founding& one) { return one.cluster == founding.cluster; });
  if (given_up && with(Rule::withdrawn_is_final)) return false;
  return full || all_void();
}

void Formation::accept_or_propose() {
  if (record_.withdrawn.size() >= wire::kMostWithdrawn) return;  // status() says so
  for (Seat seat = 0; seat < peers_.size(); ++seat) {
    if (seat == seat_ || !fresh(seat)) continue;
    const Founding& founding = peers_[seat].report.promise;
    if (founding == record_.promise || !acceptable(founding, peers_[seat].holder)) continue;
    record_.promise = founding;
    return commit();
  }
  const Seats seats = wanted();
  if (!record_.promise.none() || !complete(seats)) return;
  if (seats.size() != peers_.size() && !all_void()) return;
  const std::vector<Founder> members = holders(seats);
  std::set<MemberId> ids;
  for (const Founder& member : members) {
    if (member.id < id_ || !ids.insert(member.id).second) return;
    if (member.seat == seat_) continue;
    const FormationReport& report = peers_[member.seat].report;
    if (!report.cluster.none() || !report.promise.none()) return;
  }
  ++counters_.proposed;
  record_.promise = {{rng_.next() | 1, rng_.next()}, id_, members};
  commit();
}

void Formation::begin() {
  record_.started = true;
  cluster_ = record_.promise.cluster;
  commit(record_.promise);
}

void Formation::withdraw() {
  ++counters_.withdrawn;
  if (with(Rule::withdrawn_is_final)) record_.withdrawn.push_back(record_.promise);
  record_.promise = {};
  commit();
}

void Formation::abandon() {
  ++counters_.abandoned;
  record_.withdrawn.push_back(record_.promise);
  record_.promise = {};
  record_.started = false;
  cluster_ = {};
  commit({}, true);
}

}  // namespace dtrain::cluster::formation
