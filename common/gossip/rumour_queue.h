// The rumours that this node is yet to send: each waits here until it was sent often enough that everybody knows it
// with high probability.
//
// SWIM's infection-style dissemination (DSN 2002, section 4.1) in the order of memberlist's TransmitLimitedQueue:
// least transmitted first, among these the largest that still fits, then the newest (rule 11). Facts come after
// states and accusations that were transmitted as often: when many members start again at once, their facts are tens
// of times as long as the news of who died, and would delay it for seconds at each hop. A rumour ends when it was
// transmitted often enough and sent to each neighbour. Every operation takes O(log size) for each rumour it handles.
//
// There is one slot for each subject and class; a new rumour takes the slot of the older one:
// - the state of a subject (alive, down, dead, left). It also ends queued accusations that it beats. An accusation
// does not end a
//   queued alive, because a node that has not heard of the member needs the alive first.
// - one accusation (suspect, gone) for each kind and accuser, up to Limits::accusers of a kind. Beyond, the one of
// the lowest
//   incarnation, then the most transmitted, is dropped.
// - one for each fact key.
// The caller adds only rumours that it believed itself, so that "new" means "beats the queued one".
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/wire/gossip.h"

namespace dtrain::gossip {

class RumourQueue {
 public:
  struct Limits {
    std::size_t rumours = 65'536;  // MembershipOptions::queue_rumours; at least 1. Beyond, the last in the order of sending is dropped
    std::uint32_t retransmit = 4;  // each is transmitted this many times ceil(log10(n + 1)) times
    std::uint32_t accusers = 4;    // MembershipOptions::confirmations + 1: no node counts more of them
    bool fewest_transmitted_first = true;  // false only for --break
  };
  using SizeOf = std::size_t (*)(const wire::Rumour&);

  explicit RumourQueue(const Limits& limits, SizeOf size_of = &wire::encoded_size);
  RumourQueue(RumourQueue&&) = default;
  RumourQueue& operator=(RumourQueue&&) = default;

  // n, including this node: sets the number of transmissions for all waiting rumours from now on.
  void set_members(std::uint64_t n);
  std::uint32_t transmissions() const { return transmissions_; }

  void add(wire::Rumour rumour);
  // The subject is forgotten: none of its rumours is sent any more.
  void forget(const MemberId& subject);

  // The neighbours, to whom rounds go, changed: there are now `count` (at most 32), numbered from 0. Waiting rumours
  // are sent to all of them.
  void set_neighbours(std::uint32_t count);

  // For one peer: appends rumours of at most `budget` bytes together and at most `limit` of them to `out`, and
  // returns their bytes. A larger rumour waits for a round. Ends no rumour that a neighbour has not had in a round,
  // because pings, when many members die, go mostly to dead ones and would use up its transmissions.
  std::size_t take(std::size_t budget, std::size_t limit, std::vector<wire::Rumour>& out);
  // For a round to some neighbours, a bit for each: the same, but a larger rumour that is the first in order is sent
  // alone, so that its size does not starve it.
  std::size_t take_round(std::size_t budget, std::size_t limit, std::vector<wire::Rumour>& out, std::uint32_t neighbours);
  // Which neighbours the next round goes to, a bit for each: up to `fanout` from `turn` on, first those that the
  // first rumour in order has not reached.
  std::uint32_t next_round(std::uint32_t fanout, std::uint32_t turn) const;

  bool empty() const { return slots_.empty(); }
  std::size_t size() const { return slots_.size(); }
  std::size_t bytes() const { return bytes_; }        // encoded size
  std::uint64_t dropped() const { return dropped_; }  // because the queue was full, since the start
  std::size_t memory_bytes() const;                   // an estimate, without shared identities and facts

 private:
  enum class Class : std::uint8_t { state, suspect, gone, fact };
  struct Key {
    MemberId subject;
    Class kind{};
    MemberId detail;  // accuser, or the fact's key
    auto operator<=>(const Key&) const = default;
  };
  struct Slot {
    wire::Rumour rumour;
    std::uint64_t number = 0;  // counts additions: the highest is the newest
    std::uint32_t transmitted = 0;
    std::uint32_t bytes = 0;
    std::uint32_t reached = 0;  // neighbours that had it in a round, by set_neighbours() number `of`
    std::uint32_t of = 0;
  };
  using Slots = std::map<Key, Slot>;
  struct Rank {  // order of sending
    std::uint32_t transmitted = 0;
    bool fact = false;            // facts come after states and accusations
    std::uint32_t smallness = 0;  // ~bytes
    std::uint64_t age = 0;        // ~number
    Slots::iterator slot;
    bool operator<(const Rank& other) const;
  };

  std::size_t take(std::size_t budget, std::size_t limit, std::vector<wire::Rumour>& out, bool larger_alone, std::uint32_t copies,
                   std::uint32_t neighbours);
  std::uint32_t reached(const Slot& slot) const { return slot.of == neighbours_number_ ? slot.reached : 0; }
  static Key key_of(const wire::Rumour& rumour);
  Rank rank_of(Slots::iterator slot) const;
  Slots::iterator erase(Slots::iterator slot);
  void end_beaten_accusations(const wire::Rumour& state);
  void make_room_for_accuser(const Key& key);

  Limits limits_;
  SizeOf size_of_;
  std::uint32_t transmissions_;
  std::uint32_t neighbours_ = 0;         // a bit for each
  std::uint32_t neighbours_number_ = 0;  // number of set_neighbours() calls
  std::uint64_t next_number_ = 0;
  std::uint64_t dropped_ = 0;
  std::size_t bytes_ = 0;
  Slots slots_;
  std::set<Rank> order_;
};

}  // namespace dtrain::gossip
