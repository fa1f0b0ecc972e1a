// 64-bit mixing for ring positions, buckets and row hashes: the same on every node, and not meant to resist
// attackers. Finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), a bijection.
#pragma once

#include <cstdint>

#include "common/base/member_id.h"

namespace dtrain::gossip {

constexpr std::uint64_t mix64(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// Mixes an ordered pair: (a, b) and (b, a) differ.
constexpr std::uint64_t mix64(std::uint64_t a, std::uint64_t b) { return mix64(mix64(a) ^ b); }

constexpr std::uint64_t mix64(const MemberId& id, std::uint64_t salt) { return mix64(mix64(id.high, id.low), salt); }

}  // namespace dtrain::gossip
