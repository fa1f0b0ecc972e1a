#include "tests/sim/council/clients.h"

#include <algorithm>

namespace dtrain::sim::council {
namespace {

constexpr std::uint32_t kMostTries = 12;
constexpr Duration kWay = 2ms;              // most, from client to machine or back
constexpr Duration kPatience = 1200ms;      // most, until another machine is asked
constexpr std::uint32_t kLostPercent = 3;   // of the requests, and of the answers
constexpr std::uint32_t kTwicePercent = 8;  // of the writes are asked again although they were answered

}  // namespace

void Clients::begin(Instant now, std::uint32_t clients, Slot machines) {
  machines_ = machines;
  clients_.resize(clients);
  for (std::uint32_t i = 0; i < clients; ++i) wake_later(now, i, upto(pace_ * 2));
}

void Clients::wake_later(Instant now, std::uint32_t client, Duration after) {
  queue_.push(now + after, What::client, 0, client, ++clients_[client].wake);
}

void Clients::rest(Instant now, std::uint32_t client) {
  clients_[client].busy = false;
  wake_later(now, client, upto(pace_ * 2));
}

void Clients::ask(Instant now, std::uint32_t client, Slot slot) {
  Client& self = clients_[client];
  self.last = slot;
  if (rng_.below(100) < kLostPercent) return;
  Attempt attempt;
  attempt.client = client;
  attempt.operation = self.operation;
  attempt.command = self.command;
  attempt.slot = slot;
  queue_.push(now + upto(kWay), What::ask, slot, attempts_.put(attempt));
}

void Clients::begin_operation(Instant now, std::uint32_t client) {
  Client& self = clients_[client];
  self.busy = true;
  self.tries = 0;
  self.operation = {++requests_, rng_.chance(3, 5), now};
  self.command = {self.operation.request, self.known_index};
  user_.begun(self.operation);
}

void Clients::on_client(const Event& event) {
  Client& self = clients_[event.a];
  if (self.wake != event.b || stopped_) return;
  if (self.busy && ++self.tries >= kMostTries) {
    ++given_up_;
    self.busy = false;
  }
  if (!self.busy) begin_operation(event.at, event.a);
  // Mostly where it went well before: that is where the leader is.
  const bool elsewhere = self.tries > 0 || rng_.chance(1, 8);
  ask(event.at, event.a, elsewhere ? static_cast<Slot>(rng_.below(machines_)) : self.last);
  wake_later(event.at, event.a, 100ms + upto(kPatience));
}

void Clients::answer(Instant now, std::uint32_t attempt) {
  if (rng_.below(100) < kLostPercent) {
    attempts_.drop(attempt);
    return;
  }
  queue_.push(now + upto(kWay), What::told, 0, attempt);
}

void Clients::on_told(const Event& event) {
  const Attempt attempt = attempts_.take(event.a);
  Client& self = clients_[attempt.client];
  if (attempt.end == Attempt::End::answered) {
    user_.give(attempt.history, attempt.operation, attempt.reading);
    self.known_index = std::max(self.known_index, attempt.index);
  }
  if (!self.busy || self.operation.request != attempt.operation.request) return;
  switch (attempt.end) {
    case Attempt::End::answered:
      ++(attempt.operation.write ? writes_ : reads_);
      if (attempt.operation.write && rng_.below(100) < kTwicePercent) {
        const Slot last = attempt.slot;
        ask(event.at, attempt.client, static_cast<Slot>(rng_.below(machines_)));
        self.last = last;
      }
      return rest(event.at, attempt.client);
    case Attempt::End::too_old:  // nobody knows any more; or the index is one of a history that is over
      ++given_up_;
      self.known_index = attempt.index;
      return rest(event.at, attempt.client);
    default:
      if (attempt.leader && self.tries + 1 < kMostTries && rng_.chance(3, 4)) {
        ++self.tries;
        ask(event.at, attempt.client, *attempt.leader);
        wake_later(event.at, attempt.client, 100ms + upto(kPatience));
      } else {
        wake_later(event.at, attempt.client, 20ms + upto(200ms));
      }
  }
}

}  // namespace dtrain::sim::council
