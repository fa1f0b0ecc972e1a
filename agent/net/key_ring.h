// The keys that this node presents, and the keys of others that it recognises.
//
// A node key is derived from a pair of the key file and the node's id, by one X25519 multiplication (some 30 us). In
// a large cluster few of the keys are ever needed, so they are derived when an unknown key connects: first for
// members whose advertised address is the connecting one, and a bounded number in each turn, however many connect.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/net/cluster_keys.h"
#include "common/wire/gossip.h"
#include "common/wire/key_file.h"
#include "common/wire/peer.h"

namespace dtrain::net {

inline constexpr std::size_t kDerivedPerTurn = 256;  // multiplications for all unknown keys of a turn: some 10 ms
static_assert(kDerivedPerTurn >= wire::kKeyPairs, "or no member would ever be derived");
// Further members are not recognised. Far above Membership's own limit, because it counts all members there ever were
// (a node that is installed anew is another member).
inline constexpr std::size_t kKnownMembers = 65'536;

class KeyRing {
 public:
  // Without keys: plain links, and everything here is empty.
  KeyRing(std::optional<ClusterKeys> keys, const MemberId& self);

  bool plain() const { return pairs_.empty(); }
  std::size_t pairs() const { return pairs_.size(); }
  const KeyPair& cluster(std::size_t pair) const { return pairs_[pair].cluster; }
  // This node's own key, derived from that pair.
  const KeyPair& own(std::size_t pair) const { return pairs_[pair].own; }
  const std::string& print(std::size_t pair) const { return pairs_[pair].print; }
  // The pair that the member said it presents; the first if that is not known or not in this node's file.
  std::size_t pair_of(const MemberId& member) const;
  std::optional<std::size_t> pair_of_print(std::string_view print) const;

  // Returns true if the member is new, or presents another pair than before.
  bool know(const wire::Identity& member);
  // There was no room for a member.
  bool overflowed() const { return overflowed_; }

  // Allows holder_of() another kDerivedPerTurn multiplications, which all calls of a turn share.
  void begin_turn() { allowed_ = kDerivedPerTurn; }
  // Who holds this client key; nullopt: nobody that is known. `more`: not all candidates were tried, so ask again in another turn.
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
  std::size_t allowed_ = kDerivedPerTurn;  // multiplications left in this turn
  bool overflowed_ = false;
  std::vector<Pair> pairs_;
  std::map<MemberId, std::string> known_;                                // print of the pair it serves with
  std::map<std::string, std::vector<MemberId>, std::less<>> underived_;  // known, by advertised ip
  std::map<CurveKey, MemberId> nodes_;                                   // derived, for every pair
};

}  // namespace dtrain::net
