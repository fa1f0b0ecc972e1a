#include "common/cluster/lease_grants.h"

#include <algorithm>
#include <utility>

namespace dtrain::cluster {

void LeaseGrants::begin(Instant now) {
  end();
  elected_ = now;
}

void LeaseGrants::end() {
  places_.clear();
  waiting_.clear();
  in_round_.clear();
  under_way_ = 0;
}

void LeaseGrants::placed(const AssignmentId& id, const MemberId& host, std::uint64_t index) {
  Place& place = places_[id];
  if (place.index != index) place = {host, index, 0ns, elected_, false, false};
}

void LeaseGrants::leased(Instant now, const AssignmentId& id, Duration lease) {
  const auto it = places_.find(id);
  if (it == places_.end()) return;
  Place& place = it->second;
  if (place.lease == 0ns) place.last_answer = std::max(place.last_answer, now);
  place.lease = std::max(place.lease, lease);
}

void LeaseGrants::set_decided(const AssignmentId& id, bool decided) {
  if (const auto it = places_.find(id); it != places_.end()) it->second.decided = decided;
}

// ---------------------------------------------------------------- granting

void LeaseGrants::request(Instant now, LeaseRequest request, LeaseOutputs& out) {
  if (!rules_.hold(Rule::fresh_round)) return answer(now, request, out);
  if (under_way_ != 0 && !rules_.hold(Rule::round_after_arrival)) return in_round_.push_back(std::move(request));
  if (waiting_.size() >= options_.most_waiting && !waiting_.contains(request.id)) {
    ++counters_.dropped;
    return;
  }
  waiting_[request.id] = std::move(request);
  if (under_way_ == 0) begin_round(out);
}

void LeaseGrants::begin_round(LeaseOutputs& out) {
  for (auto& [id, request] : waiting_) in_round_.push_back(std::move(request));
  waiting_.clear();
  under_way_ = ++round_;
  out.begin_round = under_way_;
  ++counters_.rounds;
}

void LeaseGrants::round_done(Instant now, std::uint64_t round, LeaseOutputs& out) {
  if (round == 0 || round != under_way_) return;
  under_way_ = 0;
  for (const LeaseRequest& request : std::exchange(in_round_, {})) answer(now, request, out);
  if (!waiting_.empty()) begin_round(out);
}

void LeaseGrants::round_lost(std::uint64_t round, LeaseOutputs& out) {
  if (round == 0 || round != under_way_) return;
  under_way_ = 0;
  counters_.unanswered += in_round_.size();
  in_round_.clear();
  if (!waiting_.empty()) begin_round(out);
}

// The round showed that no other ledger can be newer than this one was when the round began.
void LeaseGrants::answer(Instant now, const LeaseRequest& request, LeaseOutputs& out) {
  const auto it = places_.find(request.id);
  if (it == places_.end() || it->second.host != request.host) {
    ++counters_.superseded;
    out.answers.push_back({false, request});
    return;
  }
  Place& place = it->second;
  if (place.decided && rules_.hold(Rule::no_grant_after_decision)) {
    ++counters_.unanswered;
    return;
  }
  place.last_answer = std::max(place.last_answer, now);
  place.granted = true;
  ++counters_.granted;
  out.answers.push_back({true, request});
}

// ---------------------------------------------------------------- how long it may run

Instant LeaseGrants::over_at(const AssignmentId& id, const HostAway& host) const {
  const auto it = places_.find(id);
  if (it == places_.end()) return elected_;
  const Place& place = it->second;
  const Duration lease = std::max(options_.lease, place.lease);
  const Duration counted = rules_.hold(Rule::margin) ? counted_lease(lease) : lease;
  const bool from_election = rules_.hold(Rule::count_from_election) || place.granted;
  const Instant runs_out = from_election ? place.last_answer + counted : elected_;
  if (!host.down || !rules_.hold(Rule::agent_grace)) return runs_out;
  return std::max(runs_out, host.since + options_.agent_grace);
}

Renewed LeaseGrants::renewed(const AssignmentId& id) const {
  const auto it = places_.find(id);
  if (it == places_.end() || it->second.lease == 0ns) return {};
  const Place& place = it->second;
  return {place.last_answer + std::max(options_.lease, place.lease) - kFreezeAhead, place.granted};
}

}  // namespace dtrain::cluster
