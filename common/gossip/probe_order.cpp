#include "common/gossip/probe_order.h"

#include <algorithm>

#include "common/gossip/mix.h"

namespace dtrain::gossip {

namespace {
constexpr std::uint32_t kRounds = 4;
}

ProbeOrder::ProbeOrder(std::uint64_t seed, bool shuffles) : seed_(seed), shuffles_(shuffles) {}

void ProbeOrder::begin_pass(Slot slots) {
  key_ = mix64(seed_, ++pass_);
  half_bits_ = 1;
  while ((std::uint64_t{1} << (2 * half_bits_)) < slots) ++half_bits_;
  end_ = std::uint64_t{1} << (2 * half_bits_);
  position_ = 0;
}

std::uint64_t ProbeOrder::permute(std::uint64_t index) const {
  if (!shuffles_) return index;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = index >> half_bits_, right = index & mask;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint64_t next = left ^ (mix64(key_ + round, right) >> (64 - half_bits_));
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::optional<ProbeOrder::Slot> ProbeOrder::next(Slot slots, const Eligible& eligible) {
  if (slots == 0) return std::nullopt;
  bool whole_pass = false;  // the pass was searched from its beginning: if it holds none, no slot is eligible
  while (true) {
    while (position_ < end_) {
      const std::uint64_t slot = permute(position_++);
      if (slot < slots && eligible(static_cast<Slot>(slot))) return static_cast<Slot>(slot);
    }
    if (whole_pass) return std::nullopt;
    begin_pass(slots);
    whole_pass = true;
  }
}

std::vector<ProbeOrder::Slot> ProbeOrder::peek(Slot slots, std::size_t count, const Eligible& eligible) const {
  ProbeOrder ahead = *this;
  std::vector<Slot> found;
  for (std::size_t call = 0; call < count; ++call) {
    const auto slot = ahead.next(slots, eligible);
    if (!slot) break;
    if (std::ranges::find(found, *slot) == found.end()) found.push_back(*slot);
  }
  return found;
}

}  // namespace dtrain::gossip
