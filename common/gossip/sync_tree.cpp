#include "common/gossip/sync_tree.h"

#include <algorithm>

#include "common/gossip/mix.h"

namespace dtrain::gossip {

namespace {

constexpr std::uint64_t kBucketSalt = 0x6275636b6574ULL;  // "bucket": independent of the positions on rings

std::uint64_t row_hash(const wire::RowSummary& row) {
  const wire::RowSummary counted = comparable(row);
  std::uint64_t hash = mix64(counted.id, counted.incarnation);
  hash = mix64(hash, static_cast<std::uint64_t>(counted.state));
  return mix64(hash, counted.facts_hash);
}

}  // namespace

std::uint64_t facts_hash(const std::array<std::uint64_t, wire::kFactKeys>& versions) {
  std::uint64_t hash = 0;
  for (std::size_t key = 0; key < versions.size(); ++key) {
    if (versions[key] != 0) hash ^= mix64(key + 1, versions[key]);
  }
  return hash;
}

wire::RowSummary comparable(wire::RowSummary row) {
  if (row.state == wire::MemberState::suspect) row.state = wire::MemberState::alive;
  if (row.state != wire::MemberState::alive) row.facts_hash = 0;
  return row;
}

bool same_for_sync(const wire::RowSummary& a, const wire::RowSummary& b) {
  const wire::RowSummary x = comparable(a), y = comparable(b);
  return x.id == y.id && x.incarnation == y.incarnation && x.state == y.state && x.facts_hash == y.facts_hash;
}

SyncTree::SyncTree(std::uint32_t buckets) : buckets_(std::clamp<std::uint32_t>(buckets, 1, 65'536)) {}

std::uint16_t SyncTree::bucket_of(const MemberId& id) const {
  return static_cast<std::uint16_t>((mix64(id, kBucketSalt) >> 32) * buckets_.size() >> 32);
}

void SyncTree::toggle(const wire::RowSummary& row) {
  const std::uint64_t hash = row_hash(row);
  buckets_[bucket_of(row.id)] ^= hash;
  root_ ^= hash;
}

std::vector<std::uint16_t> SyncTree::differing(const std::vector<std::uint64_t>& others) const {
  const bool comparable_lists = others.size() == buckets_.size();
  std::vector<std::uint16_t> found;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (!comparable_lists || others[bucket] != buckets_[bucket]) found.push_back(static_cast<std::uint16_t>(bucket));
  }
  return found;
}

}  // namespace dtrain::gossip
