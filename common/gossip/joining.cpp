// Join, and the retries that never end.
//
// A node without a cluster asks its seeds until one admits it. A node that comes back asks three contacts at once, so
// that all members hear of its new life within a round trip and a flood: first some of those that were in service
// when it wrote its record, then its seeds, then all others, of whom most may be gone for good after a day of
// changes. Whatever does not answer is retried for ever, one at a time: dead or down members, peers whose rows were
// reaped, and seeds, whose names are resolved anew each time (rule 13).
#include <algorithm>

#include "common/gossip/core.h"
#include "common/gossip/mix.h"

namespace dtrain::gossip {

namespace {
constexpr std::size_t kJoinsAtOnce = 3;
constexpr std::size_t kJoinsBeforeSeeds = 15;  // five rounds of contacts that were in service
constexpr std::size_t kJoinsOpen = 64;         // unanswered; beyond, the oldest is forgotten
constexpr std::size_t kSeedEndpoints = 256;    // of one resolution; further ones are not used
constexpr std::uint32_t kJoinRounds = 5;       // of a node that has a cluster; then only the retries go on
constexpr std::size_t kRecordedPeers = 256;    // enough to find the cluster again
constexpr Duration kSyncAgain = 3s;            // up to twice that after an admission: by then all know this node
}  // namespace

void Core::join_round() {
  if (!joining_) return;
  timers_.set(Timers::of(Wait::join), now_ + jittered(options_.join_retry));
  joins_this_round_ = 0;
  if (!seeds_.empty()) out_->resolve_seeds = true;
  if (active() || seeds_.empty()) join_contacts();  // a waiting node asks at its seeds' present addresses
  if (active() && ++join_rounds_ >= kJoinRounds && contact_turn_ >= contacts_.size()) {
    joining_ = false;
    timers_.cancel(Timers::of(Wait::join));
    rearm_ = true;
  }
}

void Core::join_contacts() {
  for (std::size_t tried = 0; tried < contacts_.size() && joins_this_round_ < kJoinsAtOnce; ++tried)
    send_join(contacts_[contact_turn_++ % contacts_.size()]);
}

// Contacts of a record that were in service come first. In a mass restart not all nodes should ask the same few.
void Core::remember_contacts(const MemberRecord& record) {
  std::size_t in_service = 0;
  for (std::size_t i = 0; i < record.book.size() && contacts_.size() < options_.book; ++i) {
    if (record.book[i].id == id_) continue;
    contacts_.push_back(record.book[i].address);
    if (i < record.in_service) in_service = contacts_.size();
  }
  const auto first_other = contacts_.begin() + static_cast<std::ptrdiff_t>(in_service);
  const auto begin_anywhere = [this](auto from, auto to) {
    if (to - from > 1) std::rotate(from, from + static_cast<std::ptrdiff_t>(rng_.below(static_cast<std::uint64_t>(to - from))), to);
  };
  begin_anywhere(contacts_.begin(), first_other);
  begin_anywhere(first_other, contacts_.end());
  preferred_contacts_ = std::min(in_service, kJoinsBeforeSeeds);
}

// A seed is asked after the contacts that are preferred already, or next.
void Core::prefer_contact(const wire::Endpoint& seed) {
  const std::size_t place = std::min(std::max(preferred_contacts_, contact_turn_), contacts_.size());
  const auto known = std::ranges::find(contacts_, seed);
  if (known - contacts_.begin() < static_cast<std::ptrdiff_t>(place)) return;
  if (known != contacts_.end()) contacts_.erase(known);
  else if (contacts_.size() >= options_.book + kSeedEndpoints) return;
  contacts_.insert(contacts_.begin() + static_cast<std::ptrdiff_t>(place), seed);
  preferred_contacts_ = place + 1;
}

void Core::send_join(const wire::Endpoint& to) {
  if (to == identity_->address) return;
  ++joins_this_round_;
  if (joins_.size() >= kJoinsOpen) joins_.erase(joins_.begin());
  joins_.emplace(++sequence_, to);
  send(0, to, {}, wire::Join{cluster_name_, row_of(self_row())}, sequence_);
}

void Core::act(const SeedsResolved& resolved) {
  seed_endpoints_ = resolved.endpoints;
  if (seed_endpoints_.size() > kSeedEndpoints) seed_endpoints_.resize(kSeedEndpoints);
  if (joining_) {
    if (phase_ == Phase::waiting) {
      contacts_ = seed_endpoints_;  // names may have moved: old addresses are not asked any more
    } else {
      for (const wire::Endpoint& seed : seed_endpoints_) prefer_contact(seed);
    }
    join_contacts();
  } else if (active()) {
    for (std::size_t tried = 0; tried < seed_endpoints_.size(); ++tried) {
      const wire::Endpoint& seed = seed_endpoints_[seed_turn_++ % seed_endpoints_.size()];
      if (!is_member_seed(seed)) return send_join(seed);
    }
  }
}

bool Core::is_member_seed(const wire::Endpoint& seed) const {
  if (in_service_at(seed) != kNone) return true;   // this node itself included
  const auto answered = seed_members_.find(seed);  // at another address than the one it advertises
  if (answered == seed_members_.end()) return false;
  const Slot slot = table_.find(answered->second);
  return slot != kNone && table_.at(slot).in_service();
}

// ---------------------------------------------------------------- retries

void Core::retry_next() {
  const bool seeds_away =
      !seeds_.empty() &&
      (seed_endpoints_.empty() || !std::ranges::all_of(seed_endpoints_, [this](const auto& seed) { return is_member_seed(seed); }));
  if (away_.empty() && absent_.empty() && seeds_.empty()) return;
  timers_.set(Timers::of(Wait::retry), now_ + jittered(options_.retry_period));
  if (!with(Rule::retry_dead_for_ever) || joining_) return;
  for (int tries = 0; tries < 3; ++tries) {
    switch (retry_turn_++ % 3) {
      case 0:
        if (retry_away()) return;
        break;
      case 1:
        if (retry_absent()) return;
        break;
      default:
        if (!seeds_away) break;
        out_->resolve_seeds = true;
        return;
    }
  }
}

bool Core::retry_away() {
  if (away_.empty()) return false;
  auto next = away_.upper_bound(retried_away_);
  if (next == away_.end()) next = away_.begin();
  retried_away_ = *next;
  const Slot slot = table_.find(retried_away_);
  if (slot == kNone) return false;
  if (table_.at(slot).state() == State::down) check_gone(table_.at(slot));  // a connect is cheap, and shows whether the host is up
  else probe(slot, Probe::Why::retry);
  return true;
}

bool Core::retry_absent() {
  if (absent_.empty()) return false;
  auto next = absent_.upper_bound(retried_absent_);
  if (next == absent_.end()) next = absent_.begin();
  retried_absent_ = next->first;
  if (in_service_at(next->second->address) != kNone) return false;  // its address belongs to another member now
  send_join(next->second->address);
  return true;
}

// ---------------------------------------------------------------- joining

void Core::enter(const MemberId& cluster) {
  cluster_ = cluster;
  phase_ = Phase::member;
  rearm_ = true;
  change_to(State::alive, *identity_, incarnation_, {});
  tell(alive_rumour(self_row()));
  save_later(kSaveDelay / 10);
}

void Core::receive(const Received& m, const wire::Join& body) {
  wire::JoinReply reply;
  reply.cluster_id = cluster_;
  reply.observed_ip = m.observed_ip;
  const auto refuse = [&](std::string why) {
    ++counters_.members_refused;
    reply.refused = std::move(why);
    answer(m, std::move(reply));
  };
  const wire::IdentityPtr& who = body.self.identity;
  if (!who || who->id != m.header.sender || who->name.empty() || who->address.port == 0) return refuse("it does not say who it is");
  if (body.cluster_name != cluster_name_ && with(Rule::other_cluster_dropped))
    return refuse("this is cluster " + cluster_name_ + ", not " + body.cluster_name + "; check network.join and cluster.name");
  if (who->format_min > identity_->format_max || who->format_max < identity_->format_min)
    return refuse("its wire formats " + std::to_string(who->format_min) + ".." + std::to_string(who->format_max) +
                  " and ours do not meet; install the same release on both");
  Claim claimed = claim(*who, true);
  if (claimed.verdict == Verdict::replaces && !m.observed_ip.empty() && m.observed_ip != who->address.ip &&
      !m.observed_ip.starts_with("127.")) {
    claimed.verdict = Verdict::taken;  // another machine claims the same address
    claimed.why = "it advertises " + who->address.text() + " but comes from " + m.observed_ip + ", and a node " + who->name +
                  " is known at that address";
  }
  if (claimed.verdict == Verdict::taken) {
    report_conflict(*who, body.self.incarnation, claimed);
    return refuse(claimed.why +
                  "; choose another name or address, or if that node will not come back, on a member: " + "dtrainctl forget-node NAME");
  }
  const Slot slot = table_.find(who->id);
  if (slot == kNone && table_.size() >= options_.members) return refuse("the member table is full");
  if (slot != kNone) {
    const Member& known = table_.at(slot);
    const bool same = known.state() == State::alive && *known.identity == *who && known.incarnation == body.self.incarnation;
    if (!same && known.incarnation >= body.self.incarnation) reply.accused = known.incarnation;
  } else if (buried(who->id, body.self.incarnation)) {
    reply.accused = tombstones_.at(who->id).incarnation;
  }
  // An accused joiner must come again above the accusation: only the subject raises its incarnation.
  const wire::Rumour alive{wire::RumourKind::alive, who->id, body.self.incarnation, {}, who, nullptr, {}};
  merge(alive, who->id);
  for (const wire::FactPtr& fact : body.self.facts)
    if (fact) merge({wire::RumourKind::fact, who->id, alive.incarnation, {}, nullptr, fact, {}}, who->id);
  next_flush_ = now_;
  reply.rows = rows_for_joiner(who->id);
  answer(m, std::move(reply));
}

void Core::receive(const Received& m, const wire::JoinReply& body) {
  const auto asked = joins_.find(m.header.correlation);
  if (asked == joins_.end()) return;
  const wire::Endpoint seed = asked->second;
  joins_.erase(asked);
  if (!body.refused.empty()) {
    if (once(Topic::refused, m.header.sender, 60s))
      change(ChangeKind::refused, *identity_, incarnation_, seed.text() + " says: " + body.refused);
    return;
  }
  if (body.cluster_id.none() || m.header.cluster != body.cluster_id) return;
  const bool first = phase_ == Phase::waiting, wanted = joining_;
  if (!first && body.cluster_id != cluster_) return;
  if (seed_members_.size() >= kSeedEndpoints) seed_members_.clear();
  seed_members_[seed] = m.header.sender;
  joining_ = false;
  timers_.cancel(Timers::of(Wait::join));
  const bool accused = body.accused >= incarnation_ && incarnation_ < wire::kMostIncarnation;
  if (accused) rise_above(body.accused);
  if (first) enter(body.cluster_id);
  for (const wire::Row& row : body.rows) merge_row(row, m.header.sender);
  if (wanted || accused) announce_myself();
  if (accused) send_join(seed);  // with the raised incarnation, which is in the table only now
  if (first) change(ChangeKind::joined, *identity_, incarnation_, "admitted by " + name_of(m.header.sender));
  seen_as(body.observed_ip, m.header.sender);
  sync_soon(m.header.sender);
  // Syncs once more when everybody knows this node. A rumour that was under way when the table was copied is not sent
  // to a member that is not known yet, and the next periodic sync is minutes away in a large cluster.
  timers_.set(Timers::of(Wait::sync), now_ + kSyncAgain + phase(kSyncAgain));
  rearm_ = true;
}

// ---------------------------------------------------------------- the record

MemberRecord Core::record() const {
  MemberRecord record;
  record.cluster_id = cluster_;
  record.left = phase_ == Phase::left;
  const std::size_t most = std::min(kRecordedPeers, options_.book);
  for (const bool in_service : {true, false})
    for (Slot slot = 0; slot < table_.slots() && record.book.size() < most; ++slot) {
      if (slot == self_slot_ || !table_.used(slot)) continue;
      const Member& member = table_.at(slot);
      if (member.in_service() == in_service && member.state() != State::left) record.book.push_back(*member.identity);
      if (in_service) record.in_service = static_cast<std::uint32_t>(record.book.size());
    }
  for (const auto& [id, peer] : absent_)
    if (record.book.size() < most) record.book.push_back(*peer);
  return record;
}

std::uint64_t Core::hash_of_record(const MemberRecord& record) {
  std::uint64_t hash = mix64(mix64(record.cluster_id, record.left ? 1 : 0), record.in_service);
  for (const wire::Identity& peer : record.book) {
    hash = mix64(hash, mix64(peer.id, boot_hash(peer)));
    for (const char c : peer.address.text() + peer.name + peer.key_print) hash = mix64(hash, static_cast<unsigned char>(c));
  }
  return hash;
}

void Core::save_later(Duration delay) {
  if (!timers_.waits(Timers::of(Wait::save)) && !cluster_.none()) timers_.set(Timers::of(Wait::save), now_ + delay);
}

void Core::save() {
  MemberRecord now = record();
  const std::uint64_t hash = hash_of_record(now);
  if (hash == saved_) return;
  saved_ = hash;
  out_->save = SaveRecord{std::move(now)};
}

}  // namespace dtrain::gossip
