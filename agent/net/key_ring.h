// Which keys this node shows, and whose keys it recognises.
//
// A node key follows from a pair of the key file and the node's id, at the price of one X25519 multiplication
// (some 30 us). In a large cluster few of the keys are ever asked for: they are derived when an unknown key
// knocks, those first whose advertised address is the one that it knocks from; a bounded number in a turn,
// however many knock.
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

inline constexpr std::size_t kDerivedPerTurn =
    256;  // multiplications for all unknown keys of a turn: some 10 ms
static_assert(kDerivedPerTurn >= wire::kKeyPairs, "or no member would ever be derived");
// Further ones are not recognised: far above Membership's own limit on members, and of all there ever were (a
// node that is installed anew is another member).
inline constexpr std::size_t kKnownMembers = 65'536;

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
  // A member came that there was no room for.
  bool overflowed() const { return overflowed_; }

  // Allows holder_of() kDerivedPerTurn multiplications again. (The calls of one turn share them.)
  void begin_turn() { allowed_ = kDerivedPerTurn; }
  // Who holds this client key; nullopt: nobody that is known. `more`: not all candidates were tried, ask
  // again in another turn.
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
