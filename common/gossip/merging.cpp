// What rumours and synced rows do to the table.
//
// Evidence is ordered by (incarnation, state): alive < suspect < down < dead < left at one incarnation, so that any
// order of arrival ends in the same row (rule 1). Only the subject raises its incarnation.
#include <algorithm>

#include "common/gossip/core.h"

namespace dtrain::gossip {

namespace {

using wire::MemberState;
using wire::RumourKind;

bool beats(std::uint64_t incarnation, MemberState state, const Member& member) {
  return std::pair(incarnation, state) > std::pair(std::uint64_t{member.incarnation}, member.state());
}

// Two different contents of one incarnation: the same one wins everywhere until the subject refutes.
bool outranks(const wire::Identity& a, const wire::Identity& b) {
  const auto rank = [](const wire::Identity& who) {
    return std::tie(who.life, who.boot_id, who.address, who.name, who.key_print, who.format_max, who.format_min);
  };
  return rank(a) > rank(b);
}

}  // namespace

bool Core::merge(const wire::Rumour& rumour, const MemberId& teller) {
  bool news = false;
  if (rumour.subject == id_) {
    merge_about_myself(rumour);
    return false;
  }
  switch (rumour.kind) {
    case RumourKind::alive: news = merge_alive(rumour, teller); break;
    case RumourKind::suspect: news = merge_suspect(rumour); break;
    case RumourKind::gone: news = merge_gone(rumour); break;
    case RumourKind::down:
    case RumourKind::dead:
    case RumourKind::left: news = merge_final(rumour); break;
    case RumourKind::fact: news = merge_fact(rumour); break;
  }
  if (news) tell(rumour);
  return news;
}

bool Core::merge_alive(const wire::Rumour& rumour, const MemberId& teller) {
  if (!rumour.identity || rumour.identity->id != rumour.subject) return false;
  const Slot slot = table_.find(rumour.subject);
  if (slot == kNone) {
    if (buried(rumour.subject, rumour.incarnation)) return false;
    if (table_.size() >= options_.members) {
      ++counters_.members_refused;
      if (once(Topic::full, id_, 60s))
        log(LogLevel::warn, "member.refused",
            {{"node", rumour.identity->name},
             {"reason", "the member table is full"},
             {"next", "forget members that will not come back: dtrainctl forget-node NAME"}});
      return false;
    }
  }
  const bool higher = slot == kNone || rumour.incarnation > table_.at(slot).incarnation ||
                      (!with(Rule::alive_needs_higher_incarnation) && rumour.incarnation == table_.at(slot).incarnation &&
                       table_.at(slot).state() != State::alive);
  if (!higher) {
    const Member& member = table_.at(slot);
    if (rumour.incarnation == member.incarnation && *rumour.identity != *member.identity) {
      // Rule 2: the subject hears of it and rises above both.
      if (once(Topic::told, rumour.subject, 1s)) send(member, wire::Gossip{{rumour}});
      if (!outranks(*rumour.identity, *member.identity) || claim(*rumour.identity, false).verdict == Verdict::taken) return false;
      transition(slot, member.state(), member.incarnation, rumour.identity, {});
      return true;
    }
    return false;
  }
  const Claim claimed = claim(*rumour.identity, false);
  if (claimed.verdict == Verdict::taken) {
    report_conflict(*rumour.identity, rumour.incarnation, claimed);
    return false;
  }
  if (claimed.verdict == Verdict::replaces) give_way(*rumour.identity);
  if (slot == kNone) {
    give_way_absent(*rumour.identity);
    Member member{rumour.identity, nullptr, rumour.incarnation};
    member.enter(State::alive, now_);
    insert(std::move(member), {});
    return true;
  }
  const bool came_back = !table_.at(slot).in_service() || frozen_;
  transition(slot, State::alive, rumour.incarnation, rumour.identity, {});
  if (came_back && teller == rumour.subject) sync_soon(rumour.subject);
  return true;
}

void Core::merge_about_myself(const wire::Rumour& rumour) {
  if (!active()) return;
  if (rumour.kind == RumourKind::fact) {
    if (!rumour.fact || rumour.fact->version == 0) return;
    // From a life of this node that is no longer on disk: versions repeat, so this node's must rise above.
    const auto key = static_cast<std::size_t>(rumour.fact->key);
    const std::uint64_t version = self_row().fact_version(key);
    if (rumour.fact->version > version || (rumour.fact->version == version && *rumour.fact != *(*self_row().facts)[key]))
      raise_fact(rumour.fact->key, rumour.fact->version);
    return;
  }
  if (rumour.incarnation < incarnation_) return;
  if (rumour.kind != RumourKind::alive) return refute(rumour.incarnation, rumour.kind, rumour.from);
  if (!rumour.identity || (rumour.incarnation == incarnation_ && *rumour.identity == *identity_)) return;
  // Another run uses this node's id. Once: this node's own past, if an older disk was restored. Repeatedly: a copy of
  // the data directory runs elsewhere and refutes this node as this node refutes it.
  if (rumour.identity->address != identity_->address || rumour.identity->boot_id != identity_->boot_id) {
    if (++copies_seen_ > 1 && once(Topic::copied, id_, 60s)) {
      ++counters_.conflicts;
      change(ChangeKind::conflict, *identity_, rumour.incarnation,
             "this node's id is also used at " + rumour.identity->address.text() + ", here at " + identity_->address.text() +
                 ": a data directory was copied; stop one of them and start it with an empty data directory");
    }
    if (copies_seen_ > 3 && !once(Topic::refuted_copy, id_, 10s)) return;
  }
  refute(rumour.incarnation, rumour.kind, {});
}

void Core::raise_fact(wire::FactKey key, std::uint64_t above) {
  Member me = self_row();
  Facts facts = me.facts ? *me.facts : Facts{};
  wire::FactPtr& place = facts[static_cast<std::size_t>(key)];
  if (!place) return;
  wire::Fact raised = *place;
  raised.version = std::min(std::max(place->version, above) + 1, wire::kMostFactVersion);
  if (raised.version <= place->version) return;  // at the limit, nothing is higher
  place = std::make_shared<const wire::Fact>(std::move(raised));
  wire::Rumour rumour{RumourKind::fact, id_, incarnation_, {}, nullptr, place, {}};
  me.facts = std::make_shared<const Facts>(std::move(facts));
  table_.set(self_slot_, std::move(me));
  tell(std::move(rumour));
}

bool Core::merge_final(const wire::Rumour& rumour) {
  const State state = rumour.kind == RumourKind::down ? State::down : rumour.kind == RumourKind::dead ? State::dead : State::left;
  const Slot slot = table_.find(rumour.subject);
  if (slot == kNone) {
    const auto absent = absent_.find(rumour.subject);
    if (state == State::left && absent != absent_.end())
      return leave_absent(wire::IdentityPtr(absent->second), rumour.incarnation, rumour.reason);
    bury(rumour.subject, rumour.incarnation, false);
    return false;
  }
  if (!beats(rumour.incarnation, state, table_.at(slot))) return false;
  transition(slot, state, rumour.incarnation, nullptr, rumour.reason);
  return true;
}

bool Core::merge_fact(const wire::Rumour& rumour) {
  if (!rumour.fact || rumour.fact->version == 0) return false;  // 0 is "not known"
  const Slot slot = table_.find(rumour.subject);
  const auto key = static_cast<std::size_t>(rumour.fact->key);
  if (slot == kNone || table_.at(slot).fact_version(key) > rumour.fact->version) return false;
  if (table_.at(slot).fact_version(key) == rumour.fact->version) {
    const wire::Fact& known = *(*table_.at(slot).facts)[key];
    if (known.value == rumour.fact->value) return false;
    // Two different values of one version: the subject hears of it and rises above; until then the same one wins everywhere.
    if (once(Topic::told_fact, rumour.subject, 1s)) send(table_.at(slot), wire::Gossip{{rumour}});
    if (known.value > rumour.fact->value) return false;
  }
  Member member = table_.at(slot);
  Facts facts = member.facts ? *member.facts : Facts{};
  facts[key] = rumour.fact;
  member.facts = std::make_shared<const Facts>(std::move(facts));
  change(ChangeKind::fact, *member.identity, member.incarnation);
  table_.set(slot, std::move(member));
  return true;
}

void Core::merge_row(const wire::Row& row, const MemberId& teller) {
  if (!row.identity) return;
  const MemberId& id = row.identity->id;
  if (id == id_) {
    static constexpr RumourKind kinds[] = {RumourKind::alive, RumourKind::suspect, RumourKind::down, RumourKind::dead, RumourKind::left};
    merge_about_myself({kinds[static_cast<std::size_t>(row.state)], id, row.incarnation, teller, row.identity, nullptr, {}});
  } else {
    merge_state(row, teller);
  }
  for (const wire::FactPtr& fact : row.facts)
    if (fact) merge({RumourKind::fact, id, row.incarnation, {}, nullptr, fact, {}}, teller);
}

void Core::merge_state(const wire::Row& row, const MemberId& teller) {
  const MemberId& id = row.identity->id;
  const wire::Rumour alive{RumourKind::alive, id, row.incarnation, {}, row.identity, nullptr, {}};
  const Slot slot = table_.find(id);
  const bool in_service = row.state == State::alive || row.state == State::suspect;
  if (slot == kNone && !in_service) {
    const auto buried = tombstones_.find(id);
    const bool accused = buried != tombstones_.end();
    const bool knew_better = accused && buried->second.reaped && buried->second.incarnation >= row.incarnation;
    if (knew_better || table_.size() >= options_.members) return;
    // The member is accused of a higher incarnation than the row's: an older row does not bring it back.
    const std::uint64_t incarnation =
        accused && buried->second.until > now_ ? std::max(row.incarnation, buried->second.incarnation) : row.incarnation;
    Member member{row.identity, facts_of(row.facts), incarnation};
    // The time until it is reaped does not begin anew with each joiner.
    const auto longest = static_cast<std::uint64_t>(kept_for(row.state) / 1ms);
    const std::chrono::milliseconds gone(static_cast<std::int64_t>(std::min(row.gone_ms, longest)));
    member.enter(row.state, now_ - gone);
    return insert(std::move(member), "told by another member");
  }
  if (in_service) {
    // Rule 6 for suspicions as well: a synced table is no accuser; this node becomes one.
    if (row.state == State::alive || slot == kNone) merge(alive, teller);
    else know_before_accusing(slot, row, teller);
    if (row.state == State::suspect) accuse_told(id, row.incarnation);
    return;
  }
  const Member& member = table_.at(slot);
  if (!beats(row.incarnation, row.state, member)) return;
  const bool told_away = row.state == State::left || !member.in_service() || !with(Rule::remote_dead_is_suspect);
  if (told_away) {
    const wire::IdentityPtr identity = row.incarnation > member.incarnation ? row.identity : nullptr;
    transition(slot, row.state, row.incarnation, identity, "told by another member");
    tell(accusation_of(table_.at(slot)));
    return;
  }
  know_before_accusing(slot, row, teller);
  accuse_told(id, row.incarnation);
}

// A row accuses a member of more than is known here. A member that was suspect or dead here does not become alive for a moment.
void Core::know_before_accusing(Slot slot, const wire::Row& row, const MemberId& teller) {
  const Member& member = table_.at(slot);
  if (row.incarnation > member.incarnation && member.state() != State::alive)
    transition(slot, member.state(), member.incarnation, row.identity, {});
  else merge({RumourKind::alive, row.identity->id, row.incarnation, {}, row.identity, nullptr, {}}, teller);
}

void Core::insert(Member member, std::string detail) {
  const wire::IdentityPtr who = member.identity;
  change_to(member.state(), *who, member.incarnation, std::move(detail));
  const bool in_service = member.in_service();
  if (!in_service) absent_from_service(member);
  table_.add(std::move(member));
  forget_absent(who->id);
  tombstones_.erase(who->id);
  members_changed(in_service && rings_.add(who->id));
}

void Core::transition(Slot slot, State state, std::uint64_t incarnation, const wire::IdentityPtr& identity, std::string detail) {
  const Member was = table_.at(slot);
  const MemberId id = was.identity->id;
  Member next = was;
  if (identity) next.identity = identity;
  next.incarnation = incarnation;
  if (state != was.state()) next.enter(state, now_);
  const wire::Identity& who = *next.identity;
  const bool new_life = who.life > was.identity->life;
  const bool moved = who.address != was.identity->address || who.key_print != was.identity->key_print;
  if (state != was.state() || (new_life && state == State::alive)) change_to(state, who, incarnation, std::move(detail));
  else if (moved) change(ChangeKind::moved, who, incarnation);
  if (new_life && with(Rule::restart_raises_restarted)) {
    change(ChangeKind::restarted, who, incarnation, "life " + std::to_string(was.identity->life) + " -> " + std::to_string(who.life));
    if (who.boot_id != was.identity->boot_id) change(ChangeKind::rebooted, who, incarnation);
  }
  table_.set(slot, next);

  // The suspicion's timer continues and finds no suspicion any more (rule 5).
  if (state != State::suspect || incarnation != was.incarnation) forget_suspicion(id);
  if (!next.in_service() || incarnation != was.incarnation) gone_.erase(id);
  if (state != State::down || incarnation != was.incarnation) silent_.erase(id), silences_.erase(id);
  bool neighbours = false;
  if (next.in_service()) {
    away_.erase(id);
    timers_.cancel(Timers::of(Wait::reap, id));
    if (!was.in_service()) neighbours = rings_.add(id);
  } else {
    if (state != was.state()) absent_from_service(next);
    if (was.in_service()) neighbours = rings_.remove(id, [this](const Rings::Visit& visit) { each_candidate(visit); });
    pulses_.erase(id);
  }
  if (moved) links_changed();
  if (neighbours || moved || next.in_service() != was.in_service()) members_changed(neighbours);
}

void Core::each_candidate(const Rings::Visit& visit) const {
  for (Slot slot = 0; slot < table_.slots(); ++slot)
    if (slot != self_slot_ && table_.used(slot) && table_.at(slot).in_service()) visit(table_.at(slot).identity->id);
}

// Rumours travel along a fixed graph, not to random members: two transmissions to four neighbours reach each of the
// eight once, and a rumour arrives in up to eight ways. More transmissions would not reach more members.
std::uint64_t Core::transmission_members() const {
  const std::uint64_t n = table_.in_service();
  return n > 4 ? std::clamp<std::uint64_t>(n, 10, 99) : n;
}

void Core::members_changed(bool neighbours_changed) {
  queue_.set_members(transmission_members());
  if (neighbours_changed) {
    queue_.set_neighbours(static_cast<std::uint32_t>(rings_.neighbours().size()));
    links_changed();
  }
  rearm_ = true;
  save_later(kSaveDelay);
}

// Members that are gone are retried for ever, and their rows kept for a time.
void Core::absent_from_service(const Member& member) {
  const MemberId& id = member.identity->id;
  if (member.state() == State::left) away_.erase(id);
  else away_.insert(id);
  timers_.set(Timers::of(Wait::reap, id), member.since() + kept_for(member.state()));
}

// A host whose agent is down may still run tasks: it is remembered longer.
Duration Core::kept_for(State state) const { return state == State::down ? options_.tombstone : options_.reclaim; }

void Core::reap(const MemberId& id) {
  const Slot slot = table_.find(id);
  if (slot == kNone || table_.at(slot).in_service()) return;
  const Member member = table_.at(slot);
  bury(id, member.incarnation, true);
  away_.erase(id);
  forget_suspicion(id);
  silent_.erase(id), silences_.erase(id), gone_.erase(id);
  queue_.forget(id);
  table_.remove(slot);
  if (member.state() != State::left) {
    if (absent_.emplace(id, member.identity).second) absent_order_.push_back(id);
    while (absent_.size() > options_.book) {  // forgets the oldest
      absent_.erase(absent_order_.front());
      absent_order_.pop_front();
    }
  }
  members_changed(false);
}

void Core::forget_absent(const MemberId& id) {
  if (absent_.erase(id) == 0) return;
  absent_order_.erase(std::ranges::find(absent_order_, id));
}

// Rule 14: a lagging peer's message about it does not bring it back.
bool Core::buried(const MemberId& id, std::uint64_t incarnation) const {
  const auto found = tombstones_.find(id);
  return found != tombstones_.end() && found->second.until > now_ && found->second.incarnation >= incarnation;
}

void Core::bury(const MemberId& id, std::uint64_t incarnation, bool reaped) {
  if (!with(Rule::tombstones_outlive_sync)) return;
  Tombstone& stone = tombstones_[id];
  stone.incarnation = std::max(stone.incarnation, incarnation);
  stone.reaped = stone.reaped || reaped;
  // Repeated messages about one member must not fill the list of burials and push the others out.
  if (stone.until > now_ && stone.until + kBuryAgain > now_ + options_.tombstone) return;
  stone.until = now_ + options_.tombstone;
  burials_.emplace_back(stone.until, id);
  while (!burials_.empty() && (burials_.front().first <= now_ || burials_.size() > options_.tombstones)) {
    const auto found = tombstones_.find(burials_.front().second);
    if (found != tombstones_.end() && found->second.until == burials_.front().first) tombstones_.erase(found);
    burials_.pop_front();
  }
}

}  // namespace dtrain::gossip
