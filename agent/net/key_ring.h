// Which keys this node shows, and whose keys it recognises.
//
// A node key follows from a pair of the key file and the node's id, at the price of one X25519 multiplication
// (some 30 us). In a large cluster few of the keys are ever asked for: they are derived when an unknown key
// knocks, those first whose advertised address is the one that it knocks from.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/net/cluster_keys.h"
#include "common/wire/gossip.h"
#include "common/wire/peer.h"

namespace dtrain::net {

inline constexpr std::size_t kDerivedPerQuestion =
    256;  // keys derived for one unknown key: bounds its cost to some 10 ms
inline constexpr std::size_t kKnownMembers =
    65'536;  // further ones are not recognised; far above Membership's own limit

class KeyRing {
 public:
  // No keys: plain links, everything here is then empty.
  KeyRing(std::optional<ClusterKeys> keys, const MemberId& self);

  bool plain() const { return pairs_.empty(); }
  std::size_t pairs() const { return pairs_.size(); }
  const KeyPair& cluster(std::size_t pair) const { return pairs_[pair].cluster; }
  // This node's own key, derived from that pair.
  const KeyPair& own(std::size_t pair) const { return pairs_[pair].own; }
  const std::string& print(std::size_t pair) const { return pairs_[pair].print; }
  // Which pair the member said it serves with; the first when it is not known or not ours.
  std::size_t pair_of(const MemberId& member) const;
  std::optional<std::size_t> pair_of_print(std::string_view print) const;

  // True: it is new, or serves with another pair than before.
  bool know(const wire::Identity& member);
  // Who holds this client key; nullopt: nobody that is known. `more`: not all candidates were tried, ask
  // again.
  struct Holder {
    bool cluster = false;  // the cluster key itself
    MemberId node;
  };
  std::optional<Holder> holder_of(const CurveKey& key, std::string_view from_ip, bool& more);
  void replace(ClusterKeys keys);

 private:
  struct Pair {
    KeyPair cluster, own;
    std::string print;
  };
  void derive(const MemberId& member);
  void take(ClusterKeys keys);

  const MemberId self_;
  std::vector<Pair> pairs_;
  std::map<MemberId, std::string> known_;                                // print of the pair it serves with
  std::map<std::string, std::vector<MemberId>, std::less<>> underived_;  // known, by advertised ip
  std::map<CurveKey, MemberId> nodes_;                                   // derived, for every pair
};

}  // namespace dtrain::net
