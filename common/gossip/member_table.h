// The rows of Membership: the known members, found by id, name and address. The table keeps its counts and the sync
// tree in step with the rows; merging.cpp decides how a row may change.
//
// A row has 48 bytes; identities and facts are shared immutable blocks. Rows lie in chunks that are copied when
// written while another table shares them, and so does the index: simulated tables that begin with share() cost only
// what differs. A member's slot stays the same while the member stays; freed slots are used again.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/base/time.h"
#include "common/gossip/slot_index.h"
#include "common/gossip/sync_tree.h"
#include "common/wire/gossip.h"

namespace dtrain::gossip {

using Facts = std::array<wire::FactPtr, wire::kFactKeys>;  // by key; null: not known
using FactsPtr = std::shared_ptr<const Facts>;             // null: none known

struct Member {
  wire::IdentityPtr identity;  // null: a free slot
  FactsPtr facts;
  std::uint64_t incarnation = 0;
  std::int64_t since_ms : 56 = 0;  // when this state began, on this node's clock; may lie before its start
  std::uint64_t state_bits : 7 = 0;
  std::uint64_t was_down : 1 = 0;  // dead, and before that its agent was down on a host that was up, as far as this node saw

  wire::MemberState state() const { return static_cast<wire::MemberState>(state_bits); }
  void enter(wire::MemberState state, Instant now) {
    was_down = state == wire::MemberState::dead && (this->state() == wire::MemberState::down || was_down != 0) ? 1 : 0;
    state_bits = static_cast<std::uint64_t>(state) & 0x7f;
    constexpr std::int64_t kMost = (std::int64_t{1} << 55) - 1;
    since_ms = std::clamp<std::int64_t>(now.time_since_epoch() / 1ms, -kMost, kMost);
  }
  Instant since() const { return Instant(std::chrono::milliseconds(since_ms)); }
  bool in_service() const { return wire::in_service(state()); }
  std::uint64_t fact_version(std::size_t key) const { return facts && (*facts)[key] ? (*facts)[key]->version : 0; }
};
static_assert(sizeof(Member) <= 48);

// What a pong proves about the run of the agent that sent it: a hash of boot id and life.
std::uint64_t boot_hash(const wire::Identity& identity);

wire::RowSummary summary_of(const Member& member);
wire::Row row_of(const Member& member);
FactsPtr facts_of(const std::vector<wire::FactPtr>& facts);

class MemberTable {
 public:
  using Slot = SlotIndex::Slot;
  static constexpr Slot kNone = ~Slot{0};

  explicit MemberTable(std::uint32_t sync_buckets);

  Slot find(const MemberId& id) const;
  // Calls visit(slot) for all rows of that name or address until it returns true.
  template <class Visit>
  void each_named(std::string_view name, const Visit& visit) const;
  template <class Visit>
  void each_at(const wire::Endpoint& address, const Visit& visit) const;

  Slot slots() const { return slots_; }  // all rows have lower numbers; some may be free
  bool used(Slot slot) const { return at(slot).identity != nullptr; }
  const Member& at(Slot slot) const { return (*chunks_[slot / kChunk])[slot % kChunk]; }

  Slot add(Member member);             // its id must not be there yet
  void set(Slot slot, Member member);  // of the same id
  void remove(Slot slot);

  std::uint32_t size() const { return size_; }
  std::uint32_t count(wire::MemberState state) const { return counts_[static_cast<std::size_t>(state)]; }
  std::uint32_t in_service() const { return count(wire::MemberState::alive) + count(wire::MemberState::suspect); }
  const SyncTree& tree() const { return tree_; }

  // Takes over all rows of the other, shared until written.
  void share(const MemberTable& other) { *this = other; }
  std::size_t memory_bytes() const;

 private:
  static constexpr Slot kChunk = 64;
  using Chunk = std::array<Member, kChunk>;
  struct Index {
    SlotIndex by_id, by_name, by_address;
    std::vector<Slot> free;  // the last is used first
  };

  static std::uint32_t tag(const MemberId& id);
  static std::uint32_t tag(std::string_view name);
  static std::uint32_t tag(const wire::Endpoint& address);
  Member& edit(Slot slot);
  Index& edit_index();
  void count_in(const Member& member);
  void count_out(const Member& member);

  std::vector<std::shared_ptr<Chunk>> chunks_;
  std::shared_ptr<Index> index_;
  Slot slots_ = 0;
  std::uint32_t size_ = 0;
  std::array<std::uint32_t, 5> counts_{};
  SyncTree tree_;
};

template <class Visit>
void MemberTable::each_named(std::string_view name, const Visit& visit) const {
  index_->by_name.each(tag(name), [&](Slot slot) { return at(slot).identity->name == name && visit(slot); });
}

template <class Visit>
void MemberTable::each_at(const wire::Endpoint& address, const Visit& visit) const {
  index_->by_address.each(tag(address), [&](Slot slot) { return at(slot).identity->address == address && visit(slot); });
}

}  // namespace dtrain::gossip
