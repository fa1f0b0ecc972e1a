// All outbound connections: those that Membership wants kept, and the most recently used others.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "agent/net/dealer.h"

namespace dtrain::net {

inline constexpr Duration kIdleTime = 60s;      // a link that is not kept and was not used for so long is closed
inline constexpr Duration kAnewTime = 5s;       // likewise for a link made for a single message: its answer would come too late
inline constexpr Duration kReopenEvery = 50ms;  // after a change of keys, one link is opened anew in this time

class Dealers {
 public:
  explicit Dealers(DealerWorld world) : world_(std::move(world)) {}
  ~Dealers();
  Dealers(const Dealers&) = delete;
  Dealers& operator=(const Dealers&) = delete;

  // Returns false if the message could not be handed to the network.
  bool send(const DealerTarget& target, const MemberId& member, std::string header, std::string body);
  void keep(const std::vector<gossip::Peer>& peers);
  // The member presents that pair of the key file: links to it that use another one are opened anew.
  void use_pair(const MemberId& member, std::size_t pair);
  // The key file changed; `before`: the fingerprints of its pairs until now. Links under a pair that is gone are
  // opened anew, one after the other.
  void renumber_pairs(const std::vector<std::string>& before);

  // A message came from the member, so it lives: its lost links are opened anew at once. ZeroMQ's own pause grows
  // while the other side is away, and would delay the first messages to a member that came back.
  void heard(const MemberId& member);

  // Both return true if there is more to do.
  bool examine(Instant now, std::uint64_t serial, std::vector<gossip::Input>& out);
  void watch(Instant now, std::uint64_t serial);
  // Dealers used by send() and keep() since the last call: their descriptors may stay silent.
  std::set<std::uint64_t> take_touched() { return std::exchange(touched_, {}); }
  bool touched() const { return !touched_.empty(); }
  void service(Instant now);
  Instant deadline() const { return deadline_; }
  std::size_t size() const { return dealers_.size(); }
  // Why a link could not be opened since the last call; ErrorCode::limit: no descriptor was left.
  std::optional<Error> take_trouble() { return std::exchange(trouble_, std::nullopt); }

 private:
  using Map = std::map<DealerTarget, std::unique_ptr<Dealer>>;
  Dealer* find_or_open(const DealerTarget& target, const MemberId& member);
  void reopen(Dealer& dealer, std::size_t pair);
  Map::iterator close(Map::iterator dealer);
  bool kept(const Dealer& dealer) const;
  // Closes links that are not kept, except the `most` last used.
  void close_idle(std::size_t most);

  const DealerWorld world_;
  Map dealers_;
  std::map<std::uint64_t, Dealer*> by_serial_;
  std::map<wire::Endpoint, MemberId> kept_;
  std::set<std::uint64_t> touched_;
  std::set<std::uint64_t> to_renew_;
  std::set<std::uint64_t> lost_;  // they were up, or are down for long; their members were not heard since
  Instant next_renewal_{}, next_opening_{};
  Instant deadline_ = kNever;
  std::uint64_t next_serial_ = 1;
  std::optional<Error> trouble_;
};

}  // namespace dtrain::net
