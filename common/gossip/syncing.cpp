// State sync: exchanges what rumours missed, in both directions: roots, then the buckets that differ, then the rows that differ.
#include <algorithm>
#include <bit>

#include "common/gossip/core.h"

namespace dtrain::gossip {

namespace {

// An upper estimate of a row's bytes in a message.
std::size_t row_bytes(const Member& member) {
  std::size_t bytes = 128 + member.identity->name.size() + member.identity->address.ip.size() + member.identity->boot_id.size() +
                      member.identity->key_print.size();
  if (member.facts)
    for (const wire::FactPtr& fact : *member.facts) bytes += fact ? fact->value.size() + 24 : 0;
  return bytes;
}
constexpr std::size_t kAccusationBytes = 64;  // an upper estimate, too
constexpr std::size_t kRowsBytes = wire::kBulkMessageBytes * 7 / 8;

}  // namespace

// Grows with log n: the same traffic for each node at any size, since rumours do most of the work.
Duration Core::sync_period() const {
  const auto log2 = static_cast<std::int64_t>(std::bit_width(std::uint64_t{table_.in_service()}));
  return options_.sync_period * std::max<std::int64_t>(5, log2) / 5;
}

void Core::sync_round() {
  if (table_.in_service() < 2) return;
  timers_.set(Timers::of(Wait::sync), now_ + jittered(tells_suspicions() ? kFrozenSync : sync_period()));
  const auto slot = random_member({});
  if (!slot) return;
  sync_with(*slot);
  if (tells_suspicions()) send(table_.at(*slot), accusations());
}

// A cut may leave a member without a neighbour on its side, and as nobody is declared dead it gets no others: no
// rumour of its side reaches it, nor the reverse. So a frozen node sends its suspicions, which a sync leaves out, to
// the members that it syncs with, which it does more often, and to those that sync with it.
bool Core::tells_suspicions() const { return frozen_ && with(Rule::frozen_tells_suspicions); }

wire::Gossip Core::accusations() {
  wire::Gossip gossip;
  std::size_t bytes = 0;
  auto next = suspicions_.upper_bound(accusations_told_);  // in turn: there may be more than one message holds
  for (std::size_t i = 0; i < suspicions_.size() && bytes < options_.gossip_bytes; ++i, ++next) {
    if (next == suspicions_.end()) next = suspicions_.begin();
    accusations_told_ = next->first;
    const Slot slot = table_.find(next->first);
    if (slot == kNone || table_.at(slot).state() != State::suspect) continue;
    gossip.rumours.push_back(accusation_of(table_.at(slot)));
    bytes += kAccusationBytes;
  }
  return gossip;
}

void Core::sync_soon(const MemberId& with, std::uint64_t unless_known) {
  // One member that came back stands for all; a request with a condition never replaces one without.
  const bool waits = timers_.waits(Timers::of(Wait::sync_soon));
  if (waits && (sync_unless_known_ == kAlways || unless_known != kAlways)) return;
  sync_soon_with_ = with;
  sync_unless_known_ = unless_known;
  if (!waits) timers_.set(Timers::of(Wait::sync_soon), now_ + phase(kSyncSoon));
}

void Core::sync_with(Slot slot) {
  ++counters_.syncs;
  send(table_.at(slot), wire::SyncRoot{table_.tree().root(), {}, false});
}

void Core::receive(const Received& m, const wire::SyncRoot& body) {
  if (!body.reply && tells_suspicions()) answer(m, accusations());
  const SyncTree& tree = table_.tree();
  if (body.root == tree.root()) return;
  if (!body.reply) return answer(m, wire::SyncRoot{tree.root(), tree.buckets(), true});
  // Whole buckets in each message, so that what is not listed is missing.
  std::vector<bool> differs(tree.buckets().size());
  std::vector<std::vector<wire::RowSummary>> rows(differs.size());
  const std::vector<std::uint16_t> differing = tree.differing(body.buckets);
  for (const std::uint16_t bucket : differing) differs[bucket] = true;
  for (Slot slot = 0; slot < table_.slots(); ++slot) {
    if (!table_.used(slot)) continue;
    const std::uint16_t bucket = tree.bucket_of(table_.at(slot).identity->id);
    if (differs[bucket]) rows[bucket].push_back(summary_of(table_.at(slot)));
  }
  wire::SyncSummaries summaries;
  for (const std::uint16_t bucket : differing) {
    if (!summaries.buckets.empty() && summaries.rows.size() + rows[bucket].size() > wire::kRowsPerMessage) {
      answer(m, std::move(summaries));
      summaries = {};
    }
    if (rows[bucket].size() > wire::kRowsPerMessage) continue;  // it cannot be sent in one piece
    summaries.buckets.push_back(bucket);
    summaries.rows.insert(summaries.rows.end(), rows[bucket].begin(), rows[bucket].end());
  }
  if (!summaries.buckets.empty()) answer(m, std::move(summaries));
}

void Core::receive(const Received& m, const wire::SyncSummaries& body) {
  const SyncTree& tree = table_.tree();
  std::vector<bool> listed(tree.buckets().size());
  for (const std::uint16_t bucket : body.buckets)
    if (bucket < listed.size()) listed[bucket] = true;
  std::map<MemberId, wire::RowSummary> theirs;
  for (const wire::RowSummary& row : body.rows) theirs.emplace(row.id, row);
  std::vector<Slot> ours;
  std::vector<MemberId> wanted;
  for (Slot slot = 0; slot < table_.slots(); ++slot) {
    if (!table_.used(slot)) continue;
    const wire::RowSummary mine = summary_of(table_.at(slot));
    if (!listed[tree.bucket_of(mine.id)]) continue;
    const auto found = theirs.find(mine.id);
    if (found == theirs.end()) {
      ours.push_back(slot);
      continue;
    }
    if (!same_for_sync(mine, found->second)) {
      // The hash of versions of facts gives no order: both sides send theirs, and each keeps the higher.
      const auto rank = [](const wire::RowSummary& row) { return std::pair(row.incarnation, row.state); };
      if (rank(mine) >= rank(found->second)) ours.push_back(slot);
      if (rank(mine) <= rank(found->second)) wanted.push_back(mine.id);
    }
    theirs.erase(found);
  }
  for (const auto& [id, row] : theirs)
    if (!buried(id, row.incarnation)) wanted.push_back(id);
  send_rows(m, ours, std::move(wanted));
}

void Core::receive(const Received& m, const wire::SyncRows& body) {
  counters_.rows_synced += body.rows.size();
  for (const wire::Row& row : body.rows) merge_row(row, m.header.sender);
  std::vector<Slot> slots;
  for (const MemberId& id : body.wanted)
    if (const Slot slot = table_.find(id); slot != kNone) slots.push_back(slot);
  send_rows(m, slots, {});
}

// In as many messages as needed; the wanted rows are listed in the first.
void Core::send_rows(const Received& m, const std::vector<Slot>& slots, std::vector<MemberId> wanted) {
  if (wanted.size() > wire::kRowsPerMessage) wanted.resize(wire::kRowsPerMessage);  // the next sync asks for the rest
  wire::SyncRows rows{{}, std::move(wanted)};
  std::size_t bytes = rows.wanted.size() * 20;
  for (const Slot slot : slots) {
    const std::size_t more = row_bytes(table_.at(slot));
    if (!rows.rows.empty() && (rows.rows.size() == wire::kRowsPerMessage || bytes + more > kRowsBytes)) {
      answer(m, std::move(rows));
      rows = {};
      bytes = 0;
    }
    rows.rows.push_back(row_told(table_.at(slot)));
    bytes += more;
  }
  if (!rows.rows.empty() || !rows.wanted.empty()) answer(m, std::move(rows));
}

wire::Row Core::row_told(const Member& member) const {
  wire::Row row = row_of(member);
  if (!member.in_service() && now_ > member.since()) row.gone_ms = static_cast<std::uint64_t>((now_ - member.since()) / 1ms);
  return row;
}

std::vector<wire::Row> Core::rows_for_joiner(const MemberId& joiner) const {
  std::vector<wire::Row> rows;
  std::size_t bytes = 0;
  for (Slot slot = 0; slot < table_.slots() && rows.size() < wire::kRowsPerMessage; ++slot) {
    if (!table_.used(slot) || table_.at(slot).identity->id == joiner) continue;
    bytes += row_bytes(table_.at(slot));
    if (bytes > kRowsBytes) break;
    rows.push_back(row_told(table_.at(slot)));
  }
  return rows;
}

}  // namespace dtrain::gossip
