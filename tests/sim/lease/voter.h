// An abstract quorum: three voters agree on one small ledger, which is replaced as a whole. Elections, and the rule
// that a leader serves nothing before it has committed in its own term, are Raft's (thesis, 3.4 and 3.6); logs, disks
// and snapshots belong to world council. A round is an append that a majority answered. Hosts learn what is committed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "common/base/rng.h"
#include "common/base/time.h"
#include "tests/sim/lease/message.h"

namespace dtrain::sim::lease {

class Voter {
 public:
  enum class Role : std::uint8_t { follower, candidate, leader };
  using Send = std::function<void(Message)>;

  Voter(Slot self, std::uint32_t hosts, Rng rng, Send send) : self_(self), hosts_(hosts), rng_(rng), send_(std::move(send)) { rest({}); }

  void tick(Instant now);
  void receive(Instant now, const Message& message);
  Instant deadline() const { return role_ == Role::leader ? next_beat_ : election_at_; }

  // What it is sent is on its disk after so long. It acknowledges rounds meanwhile, as raft::Raft does.
  void slow_disk(Duration takes) { disk_ = takes; }

  // While leading. The number by which done() knows it.
  std::uint64_t begin_round(Instant now);
  void propose(Instant now, Ledger ledger);  // with its version

  Role role() const { return role_; }
  bool leads() const { return role_ == Role::leader; }
  bool ready() const { return leads() && committed_ >= first_; }  // committed in its own term
  std::uint64_t term() const { return term_; }
  std::uint64_t done() const { return leads() ? majority_of(acked_) : 0; }  // all rounds up to it
  const Ledger& ledger() const { return *ledger_; }                         // committed if settled()
  bool settled() const { return ready() && committed_ == ledger_->version.index; }
  Instant elected_at() const { return elected_at_; }

 private:
  static constexpr Duration kBeat = 300ms, kElection = 1s, kQuorum = 2s;
  void rest(Instant now);  // follows, or goes on following
  void campaign(Instant now);
  void lead(Instant now);
  void follow(Instant now, std::uint64_t term);
  void beat(Instant now);
  std::uint64_t majority_of(const std::array<std::uint64_t, kCandidates>& counts) const;
  Message to(Slot other, Message::Kind kind) const;

  void teach();

  Slot self_;
  std::uint32_t hosts_;
  Rng rng_;
  Send send_;
  Role role_ = Role::follower;
  std::uint64_t term_ = 0, round_ = 0, committed_ = 0, first_ = 0;
  Slot voted_for_ = kCandidates, votes_ = 0;
  LedgerCopy ledger_ = std::make_shared<const Ledger>(), shared_;  // shared with hosts: committed
  Duration disk_{0};
  Instant election_at_{}, next_beat_{}, elected_at_{}, durable_at_{};
  std::array<std::uint64_t, kCandidates> acked_{}, stored_{};
  std::array<Instant, kCandidates> heard_{};
};

}  // namespace dtrain::sim::lease
