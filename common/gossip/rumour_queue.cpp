#include "common/gossip/rumour_queue.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

namespace dtrain::gossip {

namespace {

using wire::Rumour;
using wire::RumourKind;

bool is_accusation(RumourKind kind) { return kind == RumourKind::suspect || kind == RumourKind::gone; }

// ceil(log10(n + 1)), at least 1.
std::uint32_t decimal_digits(std::uint64_t n) {
  std::uint32_t digits = 1;
  for (; n >= 10; n /= 10) ++digits;
  return digits;
}

}  // namespace

bool RumourQueue::Rank::operator<(const Rank& other) const {
  return std::tie(transmitted, fact, smallness, age) < std::tie(other.transmitted, other.fact, other.smallness, other.age);
}

RumourQueue::RumourQueue(const Limits& limits, SizeOf size_of) : limits_(limits), size_of_(size_of) {
  limits_.rumours = std::max<std::size_t>(limits_.rumours, 1);
  limits_.accusers = std::max(limits_.accusers, 1u);
  set_members(1);
}

void RumourQueue::set_members(std::uint64_t n) { transmissions_ = std::max(limits_.retransmit, 1u) * decimal_digits(n); }

void RumourQueue::set_neighbours(std::uint32_t count) {
  neighbours_ = static_cast<std::uint32_t>((std::uint64_t{1} << std::min(count, 32u)) - 1);
  ++neighbours_number_;
}

RumourQueue::Key RumourQueue::key_of(const Rumour& rumour) {
  switch (rumour.kind) {
    case RumourKind::suspect: return {rumour.subject, Class::suspect, rumour.from};
    case RumourKind::gone: return {rumour.subject, Class::gone, rumour.from};
    case RumourKind::fact: return {rumour.subject, Class::fact, {0, rumour.fact ? static_cast<std::uint64_t>(rumour.fact->key) : 0}};
    case RumourKind::alive:
    case RumourKind::down:
    case RumourKind::dead:
    case RumourKind::left: break;
  }
  return {rumour.subject, Class::state, {}};
}

RumourQueue::Rank RumourQueue::rank_of(Slots::iterator slot) const {
  return {.transmitted = limits_.fewest_transmitted_first ? slot->second.transmitted : 0,
          .fact = slot->first.kind == Class::fact,
          .smallness = ~slot->second.bytes,
          .age = ~slot->second.number,
          .slot = slot};
}

RumourQueue::Slots::iterator RumourQueue::erase(Slots::iterator slot) {
  order_.erase(rank_of(slot));
  bytes_ -= slot->second.bytes;
  return slots_.erase(slot);
}

// alive(i) beats accusations below i; down, dead and left of i those up to i (rule 1).
void RumourQueue::end_beaten_accusations(const Rumour& state) {
  auto slot = slots_.lower_bound({state.subject, Class::suspect, {}});
  while (slot != slots_.end() && slot->first.subject == state.subject && slot->first.kind < Class::fact) {
    const std::uint64_t accused = slot->second.rumour.incarnation;
    const bool beaten = state.kind == RumourKind::alive ? accused < state.incarnation : accused <= state.incarnation;
    slot = beaten ? erase(slot) : std::next(slot);
  }
}

void RumourQueue::make_room_for_accuser(const Key& key) {
  const auto first = slots_.lower_bound({key.subject, key.kind, {}});
  std::uint32_t count = 0;
  auto last = slots_.end();  // the accusation to drop
  const auto worse = [](const Slot& a, const Slot& b) {
    if (a.rumour.incarnation != b.rumour.incarnation) return a.rumour.incarnation < b.rumour.incarnation;
    return a.transmitted > b.transmitted;
  };
  for (auto slot = first; slot != slots_.end() && slot->first.subject == key.subject && slot->first.kind == key.kind; ++slot) {
    ++count;
    if (last == slots_.end() || worse(slot->second, last->second)) last = slot;
  }
  if (count >= limits_.accusers) erase(last);
}

void RumourQueue::add(Rumour rumour) {
  const Key key = key_of(rumour);
  if (key.kind == Class::state) end_beaten_accusations(rumour);
  auto slot = slots_.find(key);
  if (slot == slots_.end()) {
    if (is_accusation(rumour.kind)) make_room_for_accuser(key);
    if (slots_.size() >= limits_.rumours) {
      erase(std::prev(order_.end())->slot);
      ++dropped_;
    }
    slot = slots_.try_emplace(key).first;
  } else {
    order_.erase(rank_of(slot));
    bytes_ -= slot->second.bytes;
  }
  const auto bytes = std::min<std::size_t>(size_of_(rumour), std::numeric_limits<std::uint32_t>::max());
  slot->second = {.rumour = std::move(rumour),
                  .number = ++next_number_,
                  .transmitted = 0,
                  .bytes = static_cast<std::uint32_t>(bytes),
                  .reached = 0,
                  .of = neighbours_number_};
  bytes_ += bytes;
  order_.insert(rank_of(slot));
}

void RumourQueue::forget(const MemberId& subject) {
  auto slot = slots_.lower_bound({subject, Class::state, {}});
  while (slot != slots_.end() && slot->first.subject == subject) slot = erase(slot);
}

std::uint32_t RumourQueue::next_round(std::uint32_t fanout, std::uint32_t turn) const {
  const std::uint32_t missed = order_.empty() ? 0 : neighbours_ & ~reached(order_.begin()->slot->second);
  const auto count = static_cast<std::uint32_t>(std::popcount(neighbours_));
  std::uint32_t round = 0;
  for (const std::uint32_t wanted : {missed, neighbours_}) {
    for (std::uint32_t step = 0; step < count && static_cast<std::uint32_t>(std::popcount(round)) < fanout; ++step)
      round |= wanted & (1u << ((turn + step) % count));
  }
  return round;
}

std::size_t RumourQueue::take(std::size_t budget, std::size_t limit, std::vector<Rumour>& out) {
  return take(budget, limit, out, false, 1, 0);
}

std::size_t RumourQueue::take_round(std::size_t budget, std::size_t limit, std::vector<Rumour>& out, std::uint32_t neighbours) {
  const auto copies = static_cast<std::uint32_t>(std::max(std::popcount(neighbours), 1));
  return take(budget, limit, out, true, copies, neighbours);
}

std::size_t RumourQueue::take(std::size_t budget, std::size_t limit, std::vector<Rumour>& out, bool larger_alone, std::uint32_t copies,
                              std::uint32_t neighbours) {
  if (limit == 0 || order_.empty()) return 0;
  std::vector<std::set<Rank>::iterator> taken;
  if (larger_alone && order_.begin()->slot->second.bytes > budget) {
    taken.push_back(order_.begin());
  } else {
    auto left = static_cast<std::uint32_t>(std::min<std::size_t>(budget, std::numeric_limits<std::uint32_t>::max()));
    for (auto rank = order_.begin(); rank != order_.end() && taken.size() < limit;) {
      const std::uint32_t bytes = ~rank->smallness;
      if (bytes > left) {  // continue with the largest that fits, of the same kind and number of transmissions or after them
        rank = order_.lower_bound({.transmitted = rank->transmitted, .fact = rank->fact, .smallness = ~left, .age = 0, .slot = {}});
        continue;
      }
      left -= bytes;
      taken.push_back(rank++);
    }
  }
  // Only now, so that a rumour that goes back with one more transmission is not taken again for this message.
  std::size_t bytes = 0;
  for (const auto rank : taken) {
    Slot& slot = rank->slot->second;
    bytes += slot.bytes;
    out.push_back(slot.rumour);
    slot.transmitted += copies;
    slot.reached = reached(slot) | neighbours;
    slot.of = neighbours_number_;
    if (slot.transmitted >= transmissions_ && (neighbours_ & ~slot.reached) == 0) {
      bytes_ -= slot.bytes;
      slots_.erase(rank->slot);
      order_.erase(rank);
    } else {
      auto node = order_.extract(rank);
      node.value() = rank_of(node.value().slot);
      order_.insert(std::move(node));
    }
  }
  return bytes;
}

std::size_t RumourQueue::memory_bytes() const {
  constexpr std::size_t kTreeNode = 4 * sizeof(void*) + 16;  // pointers and colour, and the allocator's share
  return sizeof(*this) + slots_.size() * (sizeof(Slots::value_type) + sizeof(Rank) + 2 * kTreeNode);
}

}  // namespace dtrain::gossip
