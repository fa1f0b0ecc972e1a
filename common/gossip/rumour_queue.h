// What this node still has to tell: rumours wait here until each was sent often enough that everybody knows
// it with high probability.
//
// SWIM's infection-style dissemination (DSN 2002, section 4.1) in the order of memberlist's
// TransmitLimitedQueue: those transmitted least first, among them the largest that still fits, then the
// newest (rule 11). Facts come after states and accusations that were transmitted as often: when many members
// start again at once, what they have is tens of times as long as who died, and would keep it waiting for
// seconds at each hop. A rumour ends when it was transmitted often enough and each neighbour was sent it.
// Every operation takes O(log size) per rumour touched.
//
// One slot per subject and class; a new rumour takes the slot of the older one:
// - the state of a subject (alive, down, dead, left). It also ends queued accusations that it beats. An
// accusation does not end a
//   queued alive: who has not heard of the member yet needs that one first.
// - one accusation (suspect, gone) per kind and accuser, up to Limits::accusers a kind. Beyond, the one of
// the lowest
//   incarnation, then the most transmitted, gives way.
// - one per fact key.
// The caller adds only what it believed itself, so that "new" means "beats the queued one".
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
    std::size_t rumours =
        65'536;  // Options::queue_rumours; at least 1. Beyond: the last in the order of sending is dropped
    std::uint32_t retransmit = 4;          // times ceil(log10(n + 1)) transmissions of each
    std::uint32_t accusers = 4;            // Options::confirmations + 1: nobody counts more of them
    bool fewest_transmitted_first = true;  // false only for --break
  };
  using SizeOf = std::size_t (*)(const wire::Rumour&);

  explicit RumourQueue(const Limits& limits, SizeOf size_of = &wire::encoded_size);
  RumourQueue(RumourQueue&&) = default;
  RumourQueue& operator=(RumourQueue&&) = default;

  // n, oneself included: sets the transmissions of all that wait from now on.
  void set_members(std::uint64_t n);
  std::uint32_t transmissions() const { return transmissions_; }

  void add(wire::Rumour rumour);
  // The subject is forgotten: nothing of it is told any more.
  void forget(const MemberId& subject);

  // The neighbours, to whom rounds go, are others now: so many (at most 32), counted from 0. What waits is told to all.
  void set_neighbours(std::uint32_t count);

  // For one peer: appends rumours of at most `budget` bytes together and at most `limit` of them to out. Returns
  // their bytes. A larger rumour waits for a round. Ends none that a neighbour has not had in a round: pings, when
  // many die most of them to the dead, would use up its transmissions.
  std::size_t take(std::size_t budget, std::size_t limit, std::vector<wire::Rumour>& out);
  // For a round to some neighbours: likewise, but that a larger rumour which is the first in order goes by itself:
  // nobody is to be starved for its size. `neighbours`: a bit for each.
  std::size_t take_round(std::size_t budget, std::size_t limit, std::vector<wire::Rumour>& out,
                         std::uint32_t neighbours);
  // To whom the next round goes: up to `fanout` neighbours from `turn` on, before others those whom the first rumour
  // in order has not reached. A bit for each.
  std::uint32_t next_round(std::uint32_t fanout, std::uint32_t turn) const;

  bool empty() const { return slots_.empty(); }
  std::size_t size() const { return slots_.size(); }
  std::size_t bytes() const { return bytes_; }        // as they would be sent
  std::uint64_t dropped() const { return dropped_; }  // for the bound of the queue, since the start
  std::size_t memory_bytes() const;                   // about; without shared identities and facts

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
    std::uint32_t reached = 0;  // neighbours that were in a round with it, of set_neighbours() number `of`
    std::uint32_t of = 0;
  };
  using Slots = std::map<Key, Slot>;
  struct Rank {  // order of sending
    std::uint32_t transmitted = 0;
    bool fact = false;            // what a member has comes after who is there
    std::uint32_t smallness = 0;  // ~bytes
    std::uint64_t age = 0;        // ~number
    Slots::iterator slot;
    bool operator<(const Rank& other) const;
  };

  std::size_t take(std::size_t budget, std::size_t limit, std::vector<wire::Rumour>& out, bool larger_alone,
                   std::uint32_t copies, std::uint32_t neighbours);
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
  std::uint32_t neighbours_number_ = 0;  // how often they changed
  std::uint64_t next_number_ = 0;
  std::uint64_t dropped_ = 0;
  std::size_t bytes_ = 0;
  Slots slots_;
  std::set<Rank> order_;
};

}  // namespace dtrain::gossip
