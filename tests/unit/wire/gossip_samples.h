// Gossip of every kind for tests and fuzzers: fixed values whose bytes are golden, and values drawn from a
// seeded Rng.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/rng.h"
#include "common/wire/gossip.h"
#include "common/wire/peer.h"

namespace dtrain::test {

using namespace wire;

// ---------------------------------------------------------------- deep equality; pointers by what they point
// at

template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}
template <class T>
bool same(const std::shared_ptr<const T>& a, const std::shared_ptr<const T>& b) {
  return a && b ? *a == *b : a == b;
}
inline bool same(const Rumour& a, const Rumour& b) {
  return a.kind == b.kind && a.subject == b.subject && a.incarnation == b.incarnation && a.from == b.from && same(a.identity, b.identity) &&
         same(a.fact, b.fact) && a.reason == b.reason;
}
inline bool same(const RowSummary& a, const RowSummary& b) {
  return a.id == b.id && a.incarnation == b.incarnation && a.state == b.state && a.facts_hash == b.facts_hash;
}
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b);
inline bool same(const Row& a, const Row& b) {
  return a.state == b.state && a.incarnation == b.incarnation && same(a.identity, b.identity) && same(a.facts, b.facts) &&
         a.gone_ms == b.gone_ms;
}
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same(a[i], b[i])) return false;
  return true;
}
inline bool same(const Join& a, const Join& b) { return a.cluster_name == b.cluster_name && same(a.self, b.self); }
inline bool same(const JoinReply& a, const JoinReply& b) {
  return a.refused == b.refused && a.cluster_id == b.cluster_id && a.accused == b.accused && a.observed_ip == b.observed_ip &&
         same(a.rows, b.rows);
}
inline bool same(const Ping& a, const Ping& b) {
  return a.sequence == b.sequence && a.target == b.target && a.sent == b.sent && same(a.rumours, b.rumours);
}
inline bool same(const Pong& a, const Pong& b) {
  return a.sequence == b.sequence && a.target == b.target && a.incarnation == b.incarnation && a.boot_hash == b.boot_hash &&
         a.sent == b.sent && a.observed_ip == b.observed_ip && same(a.rumours, b.rumours);
}
inline bool same(const PingRequest& a, const PingRequest& b) {
  return a.sequence == b.sequence && same(a.target, b.target) && a.incarnation == b.incarnation && same(a.rumours, b.rumours);
}
inline bool same(const Nack& a, const Nack& b) { return a.sequence == b.sequence; }
inline bool same(const ProbeNow& a, const ProbeNow& b) { return same(a.subject, b.subject) && a.incarnation == b.incarnation; }
inline bool same(const Gossip& a, const Gossip& b) { return same(a.rumours, b.rumours); }
inline bool same(const SyncRoot& a, const SyncRoot& b) { return a.root == b.root && a.buckets == b.buckets && a.reply == b.reply; }
inline bool same(const SyncSummaries& a, const SyncSummaries& b) {
  return a.buckets == b.buckets && same(a.rows, b.rows) && a.reply == b.reply;
}
inline bool same(const SyncRows& a, const SyncRows& b) { return same(a.rows, b.rows) && a.wanted == b.wanted; }
inline bool same_body(const GossipBody& a, const GossipBody& b) {
  const auto equal = [&b](const auto& x) { return same(x, std::get<std::decay_t<decltype(x)>>(b)); };
  return a.index() == b.index() && std::visit(equal, a);
}

// ---------------------------------------------------------------- fixed values

inline IdentityPtr fixed_identity() {
  return std::make_shared<const Identity>(Identity{{0x0011223344556677, 0x8899aabbccddeeff},
                                                   "gpu01",
                                                   {"10.0.0.11", 7400},
                                                   "3c0a3e1a-7a51-4e1f-9c1e-5a0c3b2d1e0f",
                                                   3,
                                                   1,
                                                   2,
                                                   "0123456789abcdef"});
}
inline std::vector<Rumour> fixed_rumours() {
  const MemberId subject{1, 2}, accuser{3, 4};
  const auto fact = std::make_shared<const Fact>(Fact{FactKey::free, 3ull << 32, "free"});
  return {{RumourKind::suspect, subject, 7, accuser, nullptr, nullptr, ""},
          {RumourKind::alive, fixed_identity()->id, 8, {}, fixed_identity(), nullptr, ""},
          {RumourKind::gone, subject, 7, accuser, nullptr, nullptr, ""},
          {RumourKind::down, subject, 7, accuser, nullptr, nullptr, "refused"},
          {RumourKind::dead, subject, 7, accuser, nullptr, nullptr, ""},
          {RumourKind::left, subject, 9, {}, nullptr, nullptr, "operator"},
          {RumourKind::fact, subject, 0, {}, nullptr, fact, ""}};
}
inline Row fixed_row() {
  return {MemberState::suspect,
          7,
          fixed_identity(),
          {std::make_shared<const Fact>(Fact{FactKey::resources, 1, "gpus"}),
           std::make_shared<const Fact>(Fact{FactKey::council, 2, "voter"})}};
}
// One of each type, in the order of the types.
inline std::vector<std::pair<std::string, GossipBody>> fixed_bodies() {
  const MemberId target{0x0102030405060708, 0x090a0b0c0d0e0f10};
  return {{"join", Join{"lab", fixed_row()}},
          {"join_reply", JoinReply{"another cluster's name", target, 7, "10.0.0.12", {fixed_row()}}},
          {"ping", Ping{300, target, -5'000'000'000, fixed_rumours()}},
          {"pong", Pong{300, target, 7, 0xfedcba9876543210, 5'000'000'000, "fd00::1", fixed_rumours()}},
          {"ping_request", PingRequest{301, fixed_identity(), 7, fixed_rumours()}},
          {"nack", Nack{70'000}},
          {"probe_now", ProbeNow{fixed_identity(), 7}},
          {"gossip", Gossip{fixed_rumours()}},
          {"sync_root", SyncRoot{1ull << 63, {0, 1, 1ull << 32}, true}},
          {"sync_summaries", SyncSummaries{{0, 255}, {{target, 7, MemberState::dead, 0x1234}}, true}},
          {"sync_rows", SyncRows{{fixed_row()}, {target}}}};
}
inline PeerHeader fixed_header() {
  PeerHeader header;
  header.type = 3;
  header.cluster = {0x1111111111111111, 0x2222222222222222};
  header.sender = {0x0102030405060708, 0x090a0b0c0d0e0f10};
  header.incarnation = 7;
  header.epoch = 300;
  header.correlation = 70'000;
  return header;
}

// ---------------------------------------------------------------- drawn values

class GossipSampler {
 public:
  explicit GossipSampler(std::uint64_t seed) : rng_(seed) {}

  GossipBody body(std::uint16_t type) {
    switch (type) {
      case 1: return Join{word(63), row()};
      case 2: return JoinReply{prose(256), id(), incarnation(), word(45), some(&GossipSampler::row)};
      case 3: return Ping{number(), id(), integer(), rumours(), number() % 2 == 1};
      case 4: return Pong{number(), id(), number(), number(), integer(), word(45), rumours()};
      case 5: return PingRequest{number(), identity(), number(), rumours()};
      case 6: return Nack{number()};
      case 7: return ProbeNow{identity(), number()};
      case 8: return Gossip{rumours()};
      case 9: return SyncRoot{number(), some(&GossipSampler::number), rng_.chance(1, 2)};
      case 10: return SyncSummaries{some(&GossipSampler::small), some(&GossipSampler::summary), rng_.chance(1, 2)};
      default: return SyncRows{some(&GossipSampler::row), some(&GossipSampler::somebody)};
    }
  }
  // Near the borders of msgpack's widths more often than not.
  std::uint64_t number() {
    if (rng_.chance(1, 4)) return 0;
    const std::uint64_t edge = 1ull << rng_.below(64);
    return rng_.chance(1, 2) ? edge - rng_.below(2) : rng_.below(edge) + edge / 2;
  }
  std::int64_t integer() {
    const auto magnitude = static_cast<std::int64_t>(number() >> 1);
    return rng_.chance(1, 2) ? -magnitude : magnitude;
  }
  std::uint16_t small() { return static_cast<std::uint16_t>(number()); }
  std::uint64_t incarnation() { return std::min(number(), kMostIncarnation); }
  MemberId somebody() { return {number(), number() | 1}; }
  MemberId id() { return rng_.chance(1, 4) ? MemberId{} : somebody(); }
  IdentityPtr identity() {
    return std::make_shared<const Identity>(
        Identity{somebody(), "n" + word(62), {word(45), small()}, word(64), number(), small(), small(), word(64)});
  }
  Rumour rumour() {
    Rumour out;
    out.kind = static_cast<RumourKind>(rng_.below(static_cast<std::uint64_t>(enum_last(RumourKind{})) + 1));
    if (out.kind == RumourKind::alive || rng_.chance(1, 8)) out.identity = identity();
    if (out.kind == RumourKind::fact || rng_.chance(1, 8)) out.fact = fact(static_cast<FactKey>(rng_.below(kFactKeys)));
    out.subject = out.identity ? out.identity->id : somebody();
    out.incarnation = incarnation();
    out.from = id();
    out.reason = prose(64);
    return out;
  }
  Row row() {
    Row out;
    out.state = state();
    out.incarnation = incarnation();
    out.identity = identity();
    out.gone_ms = number();
    for (std::size_t key = 0; key < kFactKeys; ++key)
      if (rng_.chance(1, 2)) out.facts.push_back(fact(static_cast<FactKey>(key)));
    return out;
  }
  PeerHeader header() {
    return {kPeerFormat, static_cast<std::uint16_t>(1 + rng_.below(kGossipTypes)), id(), somebody(), number(), number(), number()};
  }

 private:
  static constexpr std::uint64_t kMost = 20;  // beyond 15 elements a list's head is longer

  MemberState state() { return static_cast<MemberState>(rng_.below(static_cast<std::uint64_t>(enum_last(MemberState{})) + 1)); }
  RowSummary summary() { return {somebody(), number(), state(), number()}; }
  FactPtr fact(FactKey key) {
    std::string value;
    for (std::uint64_t n = rng_.chance(1, 8) ? rng_.below(600) : rng_.below(8); n > 0; --n)
      value.push_back(static_cast<char>(rng_.below(256)));
    return std::make_shared<const Fact>(Fact{key, std::clamp<std::uint64_t>(number(), 1, kMostFactVersion), std::move(value)});
  }
  std::vector<Rumour> rumours() { return some(&GossipSampler::rumour); }
  template <class T>
  std::vector<T> some(T (GossipSampler::*draw)()) {
    std::vector<T> out;
    for (std::uint64_t n = rng_.chance(1, 2) ? rng_.below(3) : rng_.below(kMost); n > 0; --n) out.push_back((this->*draw)());
    return out;
  }
  std::string word(std::size_t limit) { return text(limit, '!'); }
  std::string prose(std::size_t limit) { return text(limit, ' '); }
  std::string text(std::size_t limit, char lowest) {
    std::string out;
    for (std::uint64_t n = rng_.chance(1, 3) ? 0 : rng_.below(limit + 1); n > 0; --n)
      out.push_back(static_cast<char>(lowest + static_cast<char>(rng_.below(static_cast<std::uint64_t>('~' - lowest) + 1))));
    return out;
  }

  Rng rng_;
};

}  // namespace dtrain::test
