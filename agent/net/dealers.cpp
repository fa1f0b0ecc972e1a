#include "agent/net/dealers.h"

#include <algorithm>
#include <utility>

#include "agent/net/peer_links.h"

namespace dtrain::net {
namespace {

constexpr int kLastWordsOfAllMs = 100;  // for a message sent just before closing (a farewell) to leave
constexpr Duration kOpenAgain = 1s;     // after descriptors ran out

}  // namespace

Dealers::~Dealers() {
  for (auto& [target, dealer] : dealers_)
    if (dealer->up()) dealer->set_linger(kLastWordsOfAllMs);
}

bool Dealers::kept(const Dealer& dealer) const {
  return dealer.target().lane == wire::Lane::gossip && !dealer.target().join && !dealer.target().anew && kept_.contains(dealer.target().to);
}

Dealers::Map::iterator Dealers::close(Map::iterator dealer) {
  const std::uint64_t serial = dealer->second->serial();
  by_serial_.erase(serial);
  touched_.erase(serial);
  to_renew_.erase(serial);
  lost_.erase(serial);
  return dealers_.erase(dealer);
}

// The least recently used first; by serial among equals.
void Dealers::close_idle(std::size_t most) {
  std::vector<std::pair<std::pair<Instant, std::uint64_t>, DealerTarget>> idle;
  for (const auto& [target, dealer] : dealers_)
    if (!kept(*dealer)) idle.push_back({{dealer->last_used(), dealer->serial()}, target});
  if (idle.size() <= most) return;
  std::sort(idle.begin(), idle.end());
  for (std::size_t i = 0; i < idle.size() - most; ++i) close(dealers_.find(idle[i].second));
}

Dealer* Dealers::find_or_open(const DealerTarget& target, const MemberId& member) {
  const auto found = dealers_.find(target);
  if (found != dealers_.end()) {
    if (!member.none()) found->second->expect(member);
    return found->second.get();
  }
  const std::size_t pair = member.none() ? 0 : world_.keys.pair_of(member);
  auto opened = Dealer::open(world_, next_serial_, target, member, pair);
  if (!opened && opened.error().code == ErrorCode::limit) {
    trouble_ = opened.error();
    close_idle(dealers_.size() / 2);
  }
  if (!opened) return nullptr;
  Dealer* const dealer = opened->get();
  by_serial_.emplace(next_serial_++, dealer);
  dealers_.emplace(target, std::move(*opened));
  touched_.insert(dealer->serial());
  return dealer;
}

bool Dealers::send(const DealerTarget& target, const MemberId& member, std::string header, std::string body) {
  if (target.anew)
    if (const auto before = dealers_.find(target); before != dealers_.end()) close(before);
  Dealer* const dealer = find_or_open(target, member);
  if (dealer == nullptr) return false;
  const bool sent = dealer->send(std::move(header), std::move(body));
  if (dealer->wants_examination()) touched_.insert(dealer->serial());
  return sent;
}

void Dealers::keep(const std::vector<gossip::Peer>& peers) {
  kept_.clear();
  std::map<MemberId, wire::Endpoint> addresses;
  for (const gossip::Peer& peer : peers) {
    kept_[peer.address] = peer.id;
    addresses[peer.id] = peer.address;
  }
  // When a member has moved, its old connection is closed.
  for (auto dealer = dealers_.begin(); dealer != dealers_.end();) {
    const auto moved = addresses.find(dealer->second->member());
    const bool stale = moved != addresses.end() && !dealer->first.join && dealer->first.to != moved->second;
    dealer = stale ? close(dealer) : std::next(dealer);
  }
  for (const gossip::Peer& peer : peers) {
    Dealer* const dealer = find_or_open({peer.address, wire::Lane::gossip, false}, peer.id);
    if (dealer == nullptr) break;  // no descriptor is left: service() tries again
    if (const auto pair = world_.keys.pair_of_print(peer.key_print); pair && *pair != dealer->pair() && !dealer->up())
      reopen(*dealer, *pair);
  }
  deadline_ = Instant{};
}

void Dealers::reopen(Dealer& dealer, std::size_t pair) {
  to_renew_.erase(dealer.serial());
  if (const Status opened = dealer.reopen(pair); !opened) trouble_ = opened.error();  // service() tries again
  touched_.insert(dealer.serial());
}

void Dealers::use_pair(const MemberId& member, std::size_t pair) {
  for (auto& [target, dealer] : dealers_)
    if (dealer->member() == member && !target.join && dealer->pair() != pair) reopen(*dealer, pair);
}

void Dealers::renumber_pairs(const std::vector<std::string>& before) {
  for (const auto& [serial, dealer] : by_serial_) {
    const auto now = world_.keys.pair_of_print(before[dealer->pair()]);
    dealer->renumber_pair(now.value_or(0));
    if (!now) to_renew_.insert(serial);
  }
  deadline_ = Instant{};
}

void Dealers::heard(const MemberId& member) {
  if (lost_.empty()) return;
  for (const std::uint64_t serial : std::vector<std::uint64_t>(lost_.begin(), lost_.end()))
    if (Dealer& dealer = *by_serial_.at(serial); dealer.member() == member) {
      lost_.erase(serial);
      reopen(dealer, dealer.pair());
    }
}

bool Dealers::examine(Instant now, std::uint64_t serial, std::vector<gossip::Input>& out) {
  const auto found = by_serial_.find(serial);
  if (found == by_serial_.end()) return false;
  Dealer& dealer = *found->second;
  const bool was_up = dealer.up();
  const bool more = dealer.examine(now, out);
  if (dealer.up()) lost_.erase(serial);
  else if (was_up) lost_.insert(serial);
  return more;
}

void Dealers::watch(Instant now, std::uint64_t serial) {
  const auto found = by_serial_.find(serial);
  if (found != by_serial_.end()) found->second->watch(now);
}

void Dealers::service(Instant now) {
  if (!to_renew_.empty() && next_renewal_ <= now) {
    Dealer& dealer = *by_serial_.at(*to_renew_.begin());
    reopen(dealer, world_.keys.pair_of(dealer.member()));
    next_renewal_ = now + kReopenEvery;
  }
  Instant next = to_renew_.empty() ? kNever : next_renewal_;
  for (auto at = dealers_.begin(); at != dealers_.end();) {
    Dealer& dealer = *at->second;
    next = std::min(next, dealer.service(now));
    if (!kept(dealer)) {
      const Instant idle = dealer.last_used() + (dealer.target().anew ? kAnewTime : kIdleTime);
      if (idle <= now) {
        at = close(at);
        continue;
      }
      next = std::min(next, idle);
    }
    ++at;
    const Instant opened = dealer.opened_at();
    if (!dealer.has_socket()) {
      if (opened + kOpenAgain <= now) reopen(dealer, dealer.pair());
      next = std::min(next, opened + kOpenAgain <= now ? now + kOpenAgain : opened + kOpenAgain);
    } else if (!dealer.up()) {
      // The other side may present another pair than expected: each is tried in turn.
      const Duration patience = world_.keys.pairs() > 1 ? kTryNextKey : kStuckTime;
      const bool over = opened + patience <= now;
      if (over) {
        lost_.insert(dealer.serial());  // from here on ZeroMQ's pauses are long
        reopen(dealer, world_.keys.plain() ? 0 : (dealer.pair() + 1) % world_.keys.pairs());
      }
      next = std::min(next, over ? now + patience : opened + patience);
    }
  }
  for (const auto& [endpoint, member] : kept_)
    if (!dealers_.contains({endpoint, wire::Lane::gossip, false})) {
      if (next_opening_ <= now && find_or_open({endpoint, wire::Lane::gossip, false}, member) == nullptr) next_opening_ = now + kOpenAgain;
      next = std::min(next, std::max(next_opening_, now));
    }
  close_idle(kIdleDealers);
  deadline_ = next;
}

}  // namespace dtrain::net
