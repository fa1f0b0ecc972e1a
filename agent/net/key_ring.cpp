#include "agent/net/key_ring.h"

#include <sodium.h>

#include <utility>

namespace dtrain::net {

KeyRing::KeyRing(std::optional<ClusterKeys> keys, const MemberId& self) : self_(self) {
  if (keys) take(std::move(*keys));
}

void KeyRing::take(ClusterKeys keys) {
  for (Pair& pair : pairs_) ::sodium_memzero(&pair.cluster.secret_key, sizeof pair.cluster.secret_key);
  pairs_.clear();
  for (const KeyPair& pair : keys.pairs) pairs_.push_back({pair, node_key(pair, self_), key_print(pair.public_key)});
}

std::optional<std::size_t> KeyRing::pair_of_print(std::string_view print) const {
  for (std::size_t i = 0; i < pairs_.size(); ++i)
    if (pairs_[i].print == print) return i;
  return std::nullopt;
}

std::size_t KeyRing::pair_of(const MemberId& member) const {
  const auto found = known_.find(member);
  return found == known_.end() ? 0 : pair_of_print(found->second).value_or(0);
}

bool KeyRing::know(const wire::Identity& member) {
  if (plain() || member.id == self_ || member.id.none()) return false;
  const auto found = known_.find(member.id);
  if (found != known_.end()) return std::exchange(found->second, member.key_print) != member.key_print;
  if (known_.size() >= kKnownMembers) {
    overflowed_ = true;
    return false;
  }
  known_.emplace(member.id, member.key_print);
  underived_[member.address.ip].push_back(member.id);
  return true;
}

void KeyRing::derive(const MemberId& member) {
  for (const Pair& pair : pairs_) nodes_.emplace(node_key(pair.cluster, member).public_key, member);
}

std::optional<KeyRing::Holder> KeyRing::holder_of(const CurveKey& key, std::string_view from_ip, bool& more) {
  more = false;
  for (const Pair& pair : pairs_)
    if (::sodium_memcmp(pair.cluster.public_key.data(), key.data(), key.size()) == 0) return Holder{true, {}};
  const auto known = [&]() -> std::optional<Holder> {
    const auto found = nodes_.find(key);
    if (found == nodes_.end()) return std::nullopt;
    return Holder{false, found->second};
  };
  if (const auto found = known()) return found;
  for (auto bucket = underived_.find(from_ip); !underived_.empty(); bucket = underived_.begin()) {
    if (bucket == underived_.end()) continue;
    while (!bucket->second.empty()) {
      if (allowed_ < pairs_.size()) {
        more = true;
        return std::nullopt;
      }
      allowed_ -= pairs_.size();
      derive(bucket->second.back());
      bucket->second.pop_back();
      if (const auto found = known()) {
        if (bucket->second.empty()) underived_.erase(bucket);
        return found;
      }
    }
    underived_.erase(bucket);
  }
  return std::nullopt;
}

void KeyRing::replace(ClusterKeys keys) {
  take(std::move(keys));
  nodes_.clear();
  std::map<std::string, std::vector<MemberId>, std::less<>> anew;
  // Addresses are only a hint: members that were derived before will soon be asked for again, from whatever address.
  for (const auto& [id, print] : known_) anew[""].push_back(id);
  underived_ = std::move(anew);
}

}  // namespace dtrain::net
