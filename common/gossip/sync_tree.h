// A summary of the member table, for comparing two tables cheaply: a hash per bucket of members, and one over
// all.
//
// Merkle-like anti-entropy of two levels (as in Dynamo, SOSP 2007, section 4.7): equal roots end the talk
// with one message, else the buckets that differ are compared row by row. Bucket = XOR of row hashes, so that
// a changed row costs O(1).
//
// What counts (comparable()): who, which incarnation, which state and, of those alive, which versions of
// facts.
// - suspect counts as alive: it passes by itself into alive or dead within seconds, begins at another moment
// on each node,
//   and travels as a rumour; two healthy tables must not differ for it.
// - down, dead and left count as three: they stay, and a node that missed the decision must learn it.
// - Facts of those gone do not count: nobody raises them any more, and what each happened to hear last may
// differ for ever. Not meant against forgery: members are authenticated.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/wire/gossip.h"

namespace dtrain::gossip {

// Hash of the known versions by fact key, 0: not known. For RowSummary::facts_hash; 0 when none is known.
std::uint64_t facts_hash(const std::array<std::uint64_t, wire::kFactKeys>& versions);

// The part of a row that two tables compare: rows whose comparable() are equal need no exchange.
wire::RowSummary comparable(wire::RowSummary row);
bool same_for_sync(const wire::RowSummary& a, const wire::RowSummary& b);

class SyncTree {
 public:
  explicit SyncTree(std::uint32_t buckets);  // at least 1, at most 65,536

  // Each row is added once, and removed as exactly what it was.
  void add(const wire::RowSummary& row) { toggle(row); }
  void remove(const wire::RowSummary& row) { toggle(row); }

  // The same on all nodes with the same number of buckets; members of neighbouring ids do not share one.
  std::uint16_t bucket_of(const MemberId& id) const;
  std::uint64_t root() const { return root_; }  // 0: no rows
  const std::vector<std::uint64_t>& buckets() const { return buckets_; }

  // The buckets that differ, ascending. A list of another length (from a peer with another setting) cannot be
  // compared: all buckets are returned.
  std::vector<std::uint16_t> differing(const std::vector<std::uint64_t>& others) const;

 private:
  void toggle(const wire::RowSummary& row);

  std::uint64_t root_ = 0;
  std::vector<std::uint64_t> buckets_;
};

}  // namespace dtrain::gossip
