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

void LeaseGrants::placed(const AssignmentId& id, const LeasedPlace& place, const Fence& fence) {
  const auto [it, added] = places_.try_emplace(id);
  if (!added && it->second.fence == fence) return;
  it->second = Place{};
  it->second.place = place;
  it->second.fence = fence;
  it->second.last_answer = elected_;
}

void LeaseGrants::leased(Instant now, const AssignmentId& id, Duration lease) {
  const auto it = places_.find(id);
  if (it == places_.end()) return;
  LeasedPlace& place = it->second.place;
  place.lease = std::max(place.lease, lease);
  if (std::exchange(place.leased, true)) return;
  it->second.last_answer = std::max(it->second.last_answer, now);
}

void LeaseGrants::withdraw(const AssignmentId& id, const Fence& fence) {
  const auto it = places_.find(id);
  if (it == places_.end()) return;
  it->second.withdrawn = true;
  it->second.stop = fence;
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
  if (it == places_.end() || it->second.place.host != request.host) {
    ++counters_.superseded;
    out.answers.push_back({false, request});
    return;
  }
  Place& place = it->second;
  const bool other_boot = place.place.boot != request.boot && rules_.hold(Rule::one_boot);
  const bool decided = place.decided && rules_.hold(Rule::no_grant_after_decision);
  if (other_boot || decided || place.withdrawn || place.rebooted) {
    ++counters_.unanswered;
    return;
  }
  place.last_answer = std::max(place.last_answer, now);
  place.granted = std::max(place.granted, request.attempt);
  ++counters_.granted;
  out.answers.push_back({true, request});
}

// ---------------------------------------------------------------- replacing

void LeaseGrants::report(const LeaseReport& report) {
  for (auto& [own_id, place] : places_) {
    const AssignmentId& id = own_id;
    if (place.place.host != report.host) continue;
    if (report.fence < place.fence && rules_.hold(Rule::accepted_before_proof)) continue;
    if (report.boot != place.place.boot) place.rebooted = true;
    const auto entry = std::find_if(report.entries.begin(), report.entries.end(),
                                    [&](const LeaseReport::Entry& candidate) { return candidate.id == id; });
    if (entry == report.entries.end()) {
      if (!rules_.hold(Rule::silence_is_no_proof)) place.rebooted = true;
      continue;
    }
    // Without a lease its host restarts the task by itself, unless it was told to stop it.
    const bool told = place.withdrawn && report.fence >= place.stop;
    if (!place.place.leased && !told && rules_.hold(Rule::exempt_stays)) continue;
    if (!entry->exited) continue;
    place.proven_exit = true;
    place.exited = std::max(place.exited, entry->attempt);
  }
}

Replaceable LeaseGrants::replaceable(const AssignmentId& id, const HostSeen& host) const {
  using Why = Replaceable::Why;
  const auto it = places_.find(id);
  if (it == places_.end()) return {elected_, Why::exited};
  const Place& place = it->second;
  if (host.state == HostSeen::State::forgotten) return {elected_, Why::forgotten};
  if (place.rebooted) return {elected_, Why::rebooted};
  // A restart needs a grant, which shows in `granted`; a grant of a predecessor would be refused by the host, which
  // has accepted this epoch.
  if (place.proven_exit && (place.exited >= place.granted || !rules_.hold(Rule::newest_attempt)))
    return {elected_, Why::exited};
  if (!place.place.leased && rules_.hold(Rule::exempt_stays)) return {kNever, Why::exempt};
  if (host.state == HostSeen::State::alive && !place.withdrawn) return {kNever, Why::in_service};
  const Duration lease = std::max(options_.lease, place.place.lease);
  const Duration counted = rules_.hold(Rule::margin) ? counted_lease(lease) : lease;
  const bool from_election = rules_.hold(Rule::count_from_election) || place.granted != 0;
  const Instant runs_out = from_election ? place.last_answer + counted : elected_;
  if (host.state != HostSeen::State::down || !rules_.hold(Rule::agent_grace)) return {runs_out, Why::lease};
  const Instant grace = host.since + options_.agent_grace;
  return grace > runs_out ? Replaceable{grace, Why::grace} : Replaceable{runs_out, Why::lease};
}

Renewed LeaseGrants::renewed(const AssignmentId& id) const {
  const auto it = places_.find(id);
  if (it == places_.end() || !it->second.place.leased) return {};
  const Place& place = it->second;
  return {place.last_answer + std::max(options_.lease, place.place.lease) - kFreezeAhead, place.granted != 0};
}

}  // namespace dtrain::cluster
