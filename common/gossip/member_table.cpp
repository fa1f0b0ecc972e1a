#include "common/gossip/member_table.h"

#include "common/base/check.h"
#include "common/gossip/mix.h"

namespace dtrain::gossip {

namespace {

std::uint64_t hash_of(std::string_view text) {  // FNV-1a, mixed
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix64(hash);
}

constexpr std::uint32_t folded(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

}  // namespace

std::uint64_t boot_hash(const wire::Identity& identity) { return mix64(hash_of(identity.boot_id), identity.life); }

wire::RowSummary summary_of(const Member& member) {
  std::array<std::uint64_t, wire::kFactKeys> versions{};
  for (std::size_t key = 0; key < versions.size(); ++key) versions[key] = member.fact_version(key);
  return {member.identity->id, member.incarnation, member.state(), facts_hash(versions)};
}

wire::Row row_of(const Member& member) {
  wire::Row row{member.state(), member.incarnation, member.identity, {}};
  if (!member.facts) return row;
  for (const wire::FactPtr& fact : *member.facts)
    if (fact) row.facts.push_back(fact);
  return row;
}

FactsPtr facts_of(const std::vector<wire::FactPtr>& facts) {
  if (facts.empty()) return nullptr;
  auto block = std::make_shared<Facts>();
  for (const wire::FactPtr& fact : facts) {
    if (!fact) continue;
    auto& place = (*block)[static_cast<std::size_t>(fact->key)];
    if (!place || place->version < fact->version) place = fact;
  }
  return block;
}

MemberTable::MemberTable(std::uint32_t sync_buckets) : index_(std::make_shared<Index>()), tree_(sync_buckets) {}

std::uint32_t MemberTable::tag(const MemberId& id) { return folded(mix64(id, 0x1d)); }
std::uint32_t MemberTable::tag(std::string_view name) { return folded(hash_of(name)); }
std::uint32_t MemberTable::tag(const wire::Endpoint& address) { return folded(mix64(hash_of(address.ip), address.port)); }

MemberTable::Slot MemberTable::find(const MemberId& id) const {
  Slot found = kNone;
  index_->by_id.each(tag(id), [&](Slot slot) {
    if (at(slot).identity->id != id) return false;
    found = slot;
    return true;
  });
  return found;
}

Member& MemberTable::edit(Slot slot) {
  auto& chunk = chunks_[slot / kChunk];
  if (chunk.use_count() > 1) chunk = std::make_shared<Chunk>(*chunk);
  return (*chunk)[slot % kChunk];
}

MemberTable::Index& MemberTable::edit_index() {
  if (index_.use_count() > 1) index_ = std::make_shared<Index>(*index_);
  return *index_;
}

void MemberTable::count_in(const Member& member) {
  ++counts_[static_cast<std::size_t>(member.state())];
  tree_.add(summary_of(member));
}

void MemberTable::count_out(const Member& member) {
  --counts_[static_cast<std::size_t>(member.state())];
  tree_.remove(summary_of(member));
}

MemberTable::Slot MemberTable::add(Member member) {
  CHECK(member.identity != nullptr);
  Index& index = edit_index();
  Slot slot = slots_;
  if (!index.free.empty()) {
    slot = index.free.back();
    index.free.pop_back();
  } else {
    if (slots_ % kChunk == 0) chunks_.push_back(std::make_shared<Chunk>());
    ++slots_;
  }
  index.by_id.add(tag(member.identity->id), slot);
  index.by_name.add(tag(member.identity->name), slot);
  index.by_address.add(tag(member.identity->address), slot);
  count_in(member);
  ++size_;
  edit(slot) = std::move(member);
  return slot;
}

void MemberTable::set(Slot slot, Member member) {
  const wire::Identity& was = *at(slot).identity;
  const wire::Identity& is = *member.identity;
  CHECK(was.id == is.id);
  if (was.name != is.name || was.address != is.address) {
    Index& index = edit_index();
    index.by_name.remove(tag(was.name), slot);
    index.by_name.add(tag(is.name), slot);
    index.by_address.remove(tag(was.address), slot);
    index.by_address.add(tag(is.address), slot);
  }
  count_out(at(slot));
  count_in(member);
  edit(slot) = std::move(member);
}

void MemberTable::remove(Slot slot) {
  const wire::Identity& was = *at(slot).identity;
  Index& index = edit_index();
  index.by_id.remove(tag(was.id), slot);
  index.by_name.remove(tag(was.name), slot);
  index.by_address.remove(tag(was.address), slot);
  index.free.push_back(slot);
  count_out(at(slot));
  --size_;
  edit(slot) = {};
}

std::size_t MemberTable::memory_bytes() const {
  const auto share = [](std::size_t bytes, long owners) { return bytes / static_cast<std::size_t>(owners); };
  std::size_t bytes = chunks_.capacity() * sizeof(chunks_[0]) + tree_.buckets().capacity() * sizeof(std::uint64_t);
  for (const auto& chunk : chunks_) bytes += share(sizeof(Chunk), chunk.use_count());
  bytes += share(index_->by_id.memory_bytes() + index_->by_name.memory_bytes() + index_->by_address.memory_bytes() +
                     index_->free.capacity() * sizeof(Slot),
                 index_.use_count());
  return bytes;
}

}  // namespace dtrain::gossip
