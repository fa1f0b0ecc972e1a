// All outbound connections: those that Membership wants kept, and the most recently used others.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "agent/net/dealer.h"

namespace dtrain::net {

inline constexpr Duration kIdleTime = 60s;      // a link not kept and not used for that long is closed
inline constexpr Duration kAnewTime = 5s;       // one made for a single message, likewise: its answer would come too late
inline constexpr Duration kReopenEvery = 50ms;  // after a change of keys one link at a time is made anew

class Dealers {
 public:
  explicit Dealers(DealerWorld world) : world_(std::move(world)) {}
  ~Dealers();
  Dealers(const Dealers&) = delete;
  Dealers& operator=(const Dealers&) = delete;

  // False: could not be handed to the network.
  bool send(const DealerTarget& target, const MemberId& member, std::string header, std::string body);
  void keep(const std::vector<gossip::Peer>& peers);
  // The member serves with that pair of the key file: links to it that use another one are made anew.
  void use_pair(const MemberId& member, std::size_t pair);
  // The key file changed; `before`: the prints of its pairs until now. Links under a pair that is gone are
  // made anew, one after the other.
  void renumber_pairs(const std::vector<std::string>& before);

  // A message came from it, so it lives: its links that were lost are made anew at once. ZeroMQ would try again at the end of
  // a pause that grows while the other side is away, and the first words to a member that came back would wait as long.
  void heard(const MemberId& member);

  // Both: true while more is waiting.
  bool examine(Instant now, std::uint64_t serial, std::vector<gossip::Input>& out);
  void watch(Instant now, std::uint64_t serial);
  // Those touched by send() and keep() since the last call: their descriptors may stay silent.
  std::set<std::uint64_t> take_touched() { return std::exchange(touched_, {}); }
  bool touched() const { return !touched_.empty(); }
  void service(Instant now);
  Instant deadline() const { return deadline_; }
  std::size_t size() const { return dealers_.size(); }
  // Why a link could not be opened since the last call; limit: for want of descriptors.
  std::optional<Error> take_trouble() { return std::exchange(trouble_, std::nullopt); }

 private:
  using Map = std::map<DealerTarget, std::unique_ptr<Dealer>>;
  Dealer* find_or_open(const DealerTarget& target, const MemberId& member);
  void reopen(Dealer& dealer, std::size_t pair);
  Map::iterator close(Map::iterator dealer);
  bool kept(const Dealer& dealer) const;
  // Of those that are not kept: all but the `most` last used.
  void close_idle(std::size_t most);

  const DealerWorld world_;
  Map dealers_;
  std::map<std::uint64_t, Dealer*> by_serial_;
  std::map<wire::Endpoint, MemberId> kept_;
  std::set<std::uint64_t> touched_;
  std::set<std::uint64_t> to_renew_;
  std::set<std::uint64_t> lost_;  // were up, or are down for long; nothing was heard of their members since
  Instant next_renewal_{}, next_opening_{};
  Instant deadline_ = kNever;
  std::uint64_t next_serial_ = 1;
  std::optional<Error> trouble_;
};

}  // namespace dtrain::net
