#include "tests/sim/lease/voter.h"

#include <algorithm>

namespace dtrain::sim::lease {

Message Voter::to(Slot other, Kind kind) const {
  Message message;
  message.kind = kind;
  message.from = self_;
  message.to = other;
  message.term = term_;
  return message;
}

void Voter::rest(Instant now) {
  role_ = Role::follower;
  election_at_ = now + kElection + Duration(static_cast<std::int64_t>(rng_.below(1'000'000'000)));
}

void Voter::follow(Instant now, std::uint64_t term) {
  if (term > term_) voted_for_ = kCandidates;
  term_ = std::max(term_, term);
  rest(now);
}

void Voter::campaign(Instant now) {
  rest(now);
  role_ = Role::candidate;
  ++term_;
  voted_for_ = self_;
  votes_ = 1u << self_;
  for (Slot other = 0; other < kCandidates; ++other) {
    if (other == self_) continue;
    Message ask = to(other, Kind::vote_ask);
    ask.version = ledger_->version;
    send_(ask);
  }
}

void Voter::lead(Instant now) {
  role_ = Role::leader;
  elected_at_ = now;
  round_ = 0;
  acked_.fill(0);
  stored_.fill(0);
  heard_.fill(now);
  first_ = ledger_->version.index + 1;
  committed_ = 0;
  shared_ = nullptr;
  propose(now, *ledger_);
}

std::uint64_t Voter::begin_round(Instant now) {
  beat(now);
  return round_;
}

void Voter::propose(Instant now, Ledger ledger) {
  ledger.version = {term_, ledger_->version.index + 1};
  stored_[self_] = ledger.version.index;
  ledger_ = std::make_shared<const Ledger>(std::move(ledger));
  beat(now);
}

void Voter::teach() {
  for (Slot host = kCandidates; host < kCandidates + hosts_; ++host) {
    Message copy = to(host, Kind::copy);
    copy.ledger = shared_;
    send_(copy);
  }
}

void Voter::beat(Instant now) {
  acked_[self_] = ++round_;
  heard_[self_] = now;
  next_beat_ = now + kBeat;
  for (Slot other = 0; other < kCandidates; ++other) {
    if (other == self_) continue;
    Message append = to(other, Kind::append);
    append.round = round_;
    append.ledger = ledger_;
    send_(append);
  }
  teach();
}

std::uint64_t Voter::majority_of(const std::array<std::uint64_t, kCandidates>& counts) const {
  auto sorted = counts;
  std::sort(sorted.begin(), sorted.end());
  return sorted[kCandidates / 2];
}

void Voter::tick(Instant now) {
  if (now < deadline()) return;
  if (role_ != Role::leader) return campaign(now);
  const auto heard = std::count_if(heard_.begin(), heard_.end(), [&](Instant at) { return now - at < kQuorum; });
  if (static_cast<Slot>(heard) <= kCandidates / 2) return rest(now);
  beat(now);
}

void Voter::receive(Instant now, const Message& message) {
  if (message.kind == Kind::vote_ask) {
    if (message.term > term_) {
      const Instant keeps = election_at_;
      follow(now, message.term);
      if (message.version < ledger_->version) election_at_ = std::max(now, keeps);
    }
    Message vote = to(message.from, Kind::vote);
    vote.yes = message.term == term_ && role_ == Role::follower && message.version >= ledger_->version &&
               (voted_for_ == kCandidates || voted_for_ == message.from);
    if (vote.yes) voted_for_ = message.from;
    if (vote.yes) rest(now);
    return send_(vote);
  }
  if (message.term > term_) follow(now, message.term);
  switch (message.kind) {
    case Kind::vote:
      if (message.term != term_ || role_ != Role::candidate || !message.yes) return;
      votes_ |= 1u << message.from;
      if (votes_ != 1u << self_) lead(now);
      return;
    case Kind::append: {
      Message reply = to(message.from, Kind::append_reply);
      reply.yes = message.term == term_;
      if (reply.yes) {
        rest(now);
        if (ledger_->version < message.ledger->version) {
          ledger_ = message.ledger;
          durable_at_ = now + disk_;
        }
        reply.round = message.round;
        if (now >= durable_at_) reply.version = message.ledger->version;
      }
      return send_(reply);
    }
    case Kind::append_reply:
      if (!message.yes || message.term != term_ || role_ != Role::leader) return;
      acked_[message.from] = std::max(acked_[message.from], message.round);
      stored_[message.from] = std::max(stored_[message.from], message.version.index);
      heard_[message.from] = now;
      committed_ = majority_of(stored_);
      if (settled() && shared_ != ledger_) {
        shared_ = ledger_;
        teach();
      }
      return;
    default: return;
  }
}

}  // namespace dtrain::sim::lease
