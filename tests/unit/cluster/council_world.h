// A cluster whose council is decided by next_council_step(), without a log: members live, die and come back,
// learners catch up after a while, and the leader's steps are carried out at once if a majority is there.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/cluster/council.h"
#include "common/raft/configuration.h"

namespace dtrain::cluster {

class CouncilWorld {
 public:
  static constexpr std::uint64_t kLastIndex = 1000;
  struct Member {
    CouncilMember known;
    Instant heard{};          // by the leader
    std::uint64_t match = 0;  // of the log it has
    bool alive() const { return known.state == CouncilMember::State::alive || leaving_but_there; }
    bool leaving_but_there = false;
  };

  static MemberId id(std::uint64_t n) { return {n, n}; }

  MemberId join(std::string zone = "") {
    const MemberId fresh = id(++joined_);
    Member member;
    member.known = {fresh, "h" + std::to_string(joined_), std::move(zone), CouncilMember::State::alive, now_, false};
    members_[fresh] = member;
    if (joined_ == 1) {
      configuration_.voters = {fresh};
      leader_ = fresh;
    }
    return fresh;
  }
  // The leader notices at once: what it cannot know it cannot be judged by.
  void die(const MemberId& who, CouncilMember::State how = CouncilMember::State::dead) {
    set(who, how);
    members_[who].heard = now_ - options_.heard_within - 1ns;
  }
  void revive(const MemberId& who) { set(who, CouncilMember::State::alive); }
  void leave(const MemberId& who, bool still_there = false) {
    set(who, CouncilMember::State::left);
    members_[who].leaving_but_there = still_there;
    if (!still_there) members_[who].heard = now_ - options_.heard_within - 1ns;
  }
  void set_never(const MemberId& who, bool never = true) { members_[who].known.never = never; }
  Member& at(const MemberId& who) { return members_[who]; }
  const std::map<MemberId, Member>& members() const { return members_; }
  const raft::Configuration& configuration() const { return configuration_; }
  std::size_t voters() const { return configuration_.voters.size(); }
  MemberId leader() const { return leader_; }
  Instant now() const { return now_; }

  bool there(const MemberId& who) const {
    const auto at = members_.find(who);
    return at != members_.end() && at->second.alive();
  }
  bool majority_of(const raft::Configuration& configuration) const {
    std::size_t there_are = 0;
    for (const MemberId& voter : configuration.voters) there_are += there(voter) ? 1 : 0;
    return there_are > configuration.voters.size() / 2;
  }

  // Another voter takes over if the leader is gone. False: nobody can lead.
  bool lead() {
    if (!majority_of(configuration_)) return false;
    if (there(leader_) && configuration_.votes(leader_)) return true;
    for (const MemberId& voter : configuration_.voters)
      if (there(voter)) leader_ = voter;
    for (auto& [who, member] : members_) member.heard = now_;  // it begins to count anew
    return true;
  }
  void pass(Duration time, bool catching_up = true) {
    now_ += time;
    for (auto& [who, member] : members_) {
      if (!member.alive()) continue;
      member.heard = now_;
      if (configuration_.has(who) && catching_up) member.match = kLastIndex;
    }
  }

  CouncilView view() const {
    CouncilView view;
    view.self = leader_;
    view.configuration = configuration_;
    view.last_index = kLastIndex;
    for (const auto& [who, member] : members_) view.members.push_back(member.known);
    for (const auto* ids : {&configuration_.voters, &configuration_.learners})
      for (const MemberId& who : *ids) {
        if (who == leader_) continue;
        const Member& member = members_.at(who);
        view.followers.push_back({who, configuration_.votes(who), member.match, member.match + 1, false, now_ - member.heard});
      }
    return view;
  }
  CouncilStep ask() const { return next_council_step(view(), now_, options_); }

  // What raft makes of a step; its refusal.
  raft::Refusal carry_out(const CouncilStep& step) {
    if (step.act == CouncilStep::Act::transfer) {
      if (!configuration_.votes(step.member) || !there(step.member)) return raft::Refusal::no_such_member;
      leader_ = step.member;
      for (auto& [who, member] : members_) member.heard = now_;
      return raft::Refusal::none;
    }
    raft::Configuration after;
    const raft::Refusal refusal = raft::changed(configuration_, step.change, step.member, after);
    if (refusal != raft::Refusal::none) return refusal;
    if (!after.votes(leader_)) return raft::Refusal::transferring;
    if (step.change == raft::ChangeKind::promote && members_[step.member].match < kLastIndex) return raft::Refusal::not_caught_up;
    if (step.change == raft::ChangeKind::add_learner) members_[step.member].heard = now_;
    configuration_ = after;
    return raft::Refusal::none;
  }
  // Until nothing is to be done, learners catching up meanwhile. The number of steps; none: more than `most`.
  std::optional<std::size_t> settle(std::size_t most = 100) {
    std::size_t idle = 0;
    for (std::size_t steps = 0; steps <= most;) {
      if (!lead()) return std::nullopt;
      const CouncilStep step = ask();
      if (step.act == CouncilStep::Act::nothing) {
        if (++idle > 3) return steps;
        pass(step.again - now_);  // a new leader sees only then who is silent
        continue;
      }
      idle = 0;
      ++steps;
      if (carry_out(step) != raft::Refusal::none) return std::nullopt;
      pass(100ms);
    }
    return std::nullopt;
  }

  CouncilOptions options_;

 private:
  void set(const MemberId& who, CouncilMember::State state) {
    members_[who].known.state = state;
    members_[who].known.since = now_;
    members_[who].leaving_but_there = false;
  }

  std::map<MemberId, Member> members_;
  raft::Configuration configuration_;
  MemberId leader_;
  Instant now_{std::chrono::hours(1)};
  std::uint64_t joined_ = 0;
};

}  // namespace dtrain::cluster
