// How a member is accused, clears itself, or is declared down or dead.
//
// Silence: suspect, and dead when the suspicion runs out unrefuted. Process gone: two members saw its connection
// refused, so it is down.
#include <algorithm>
#include <bit>

#include "common/gossip/core.h"

namespace dtrain::gossip {

using wire::RumourKind;

// The reason given when a down member's host does not answer either. A suspicion without it began before "down" was
// decided, because a probe fails when the process dies, and proves nothing about the host.
constexpr std::string_view kSilentHost = "host silent";

// ---------------------------------------------------------------- silence

void Core::accuse(const MemberId& id, std::uint64_t incarnation) {
  const Slot slot = table_.find(id);
  if (slot == kNone || id == id_) return;
  const Member& member = table_.at(slot);
  if (!member.in_service() || member.incarnation != incarnation) return;
  const auto found = suspicions_.find(id);
  if (found != suspicions_.end() && found->second.accused_by(id_)) return;
  wire::Rumour rumour{RumourKind::suspect, id, incarnation, id_, nullptr, nullptr, {}};
  if (merge_suspect(rumour)) tell(std::move(rumour));
  look_around();
}

// Finds out whether the other member is silent or this node is cut off: all neighbours are asked at once, so that
// rule 18 can decide before the suspicion runs out.
void Core::look_around() {
  if (!with(Rule::freeze_without_quorum) || !once(Topic::looked_around, id_, 2s)) return;
  const std::vector<MemberId> neighbours = rings_.neighbours();
  for (const MemberId& id : neighbours)
    if (const Slot slot = table_.find(id); slot != kNone && !probed_already(id)) probe(slot, Probe::Why::watch);
}

void Core::accuse_told(const MemberId& id, std::uint64_t incarnation) {
  const Slot slot = table_.find(id);
  // A row that is already suspect has accusers that count.
  if (slot == kNone || (table_.at(slot).state() == State::suspect && table_.at(slot).incarnation >= incarnation)) return;
  wire::Rumour rumour{RumourKind::suspect, id, incarnation, id_, nullptr, nullptr, {}};
  if (merge_suspect(rumour)) tell(std::move(rumour));
}

bool Core::merge_suspect(const wire::Rumour& rumour) {
  const Slot slot = table_.find(rumour.subject);
  if (slot == kNone) return false;
  const Member& member = table_.at(slot);
  const MemberId& accuser = rumour.from;
  if (member.state() == State::down && rumour.incarnation == member.incarnation)
    return rumour.reason == kSilentHost && silent_witness(slot, rumour.incarnation, counted(accuser));
  if (member.state() == State::suspect && rumour.incarnation == member.incarnation) {
    const auto found = suspicions_.find(rumour.subject);
    if (found == suspicions_.end() || !found->second.confirm(accuser)) return false;
    time_suspicion(rumour.subject, found->second);
    return true;
  }
  if (std::pair(rumour.incarnation, State::suspect) <= std::pair(std::uint64_t{member.incarnation}, member.state())) return false;
  begin_suspicion(slot, rumour.incarnation, accuser);
  return true;
}

// Rule 4: each accuser counts once.
MemberId Core::counted(const MemberId& accuser) {
  if (with(Rule::accuser_counts_once)) return accuser;
  return {accuser.high, rng_.next()};
}

void Core::begin_suspicion(Slot slot, std::uint64_t incarnation, const MemberId& accuser) {
  const MemberId id = table_.at(slot).identity->id;
  SuspicionTimes times{options_.suspicion_min, options_.suspicion_max, wanted_confirmations(options_.confirmations, table_.in_service()),
                       false};
  times.accuser_counts_once = with(Rule::accuser_counts_once);
  // Rule 17: a node in bad local health gives the longest time.
  times.start_at_max = !health_.healthy() && with(Rule::bad_health_starts_at_max);
  transition(slot, State::suspect, incarnation, nullptr, "no answer; accused by " + name_of(accuser));
  forget_suspicion(id);
  time_suspicion(id, suspicions_.emplace(id, Suspicion(incarnation, accuser, now_, times)).first->second);
  const Member& member = table_.at(slot);
  if (!with(Rule::confirm_on_demand)) return;
  if (accuser == id_) ask_to_confirm(member);
  else if (linked(member) && !probed_already(id)) probe(slot, Probe::Why::watch);  // this node's link to it is warm: a quick second opinion
}

// The wait is for confirmations, so others are asked to probe it now instead of by chance.
void Core::ask_to_confirm(const Member& member) {
  if (overloaded()) return;
  for (const Slot slot : some_others(member.identity->id, options_.confirmations))
    send(table_.at(slot), wire::ProbeNow{member.identity, member.incarnation});
}

// Accusers ask a last question early enough for its answer to arrive by the deadline; the others, who normally hear
// the verdict, ask at the deadline. So no verdict is passed without a question, and rarely do all ask.
void Core::time_suspicion(const MemberId& id, const Suspicion& suspicion) {
  Instant at = suspicion.deadline();
  if (const auto asked = questioned_.find(id); asked != questioned_.end()) at = std::max(at, asked->second);
  else if (suspicion.accused_by(id_)) at -= options_.probe_total;
  timers_.set(Timers::of(Wait::suspicion, id), std::max(at, now_));
}

void Core::forget_suspicion(const MemberId& id) {
  suspicions_.erase(id);
  questioned_.erase(id);
}

// Many suspects may not have heard of their suspicion: it is sent again.
void Core::restart_suspicions() {
  questioned_.clear();
  for (auto& [id, suspicion] : suspicions_) {
    suspicion.restart(now_);
    time_suspicion(id, suspicion);
    if (const Slot slot = table_.find(id); slot != kNone) tell(accusation_of(table_.at(slot)));
  }
}

// Together with the last question: this node's own probes of the last second decide whether it may judge (rule 18).
void Core::call_roll() {
  if (!with(Rule::freeze_without_quorum) || !once(Topic::called_roll, id_, options_.probe_total)) return;
  recent_failures_ = recent_probes_ = 0;
  const std::vector<MemberId> neighbours = rings_.neighbours();
  for (const MemberId& id : neighbours)
    if (const Slot slot = table_.find(id); slot != kNone) probe(slot, Probe::Why::roll_call);
}

// True if the probes of a roll call that have no answer yet may still show that this node is cut off.
bool Core::roll_call_decides() const {
  const auto open = std::ranges::count_if(probes_, [](const auto& entry) { return entry.second.why == Probe::Why::roll_call; });
  return open != 0 && without_quorum(static_cast<std::uint32_t>(open));
}

void Core::suspicion_ends(const MemberId& id) {
  const Slot slot = table_.find(id);
  if (slot == kNone) return;
  const Member& member = table_.at(slot);
  const auto found = suspicions_.find(id);
  const bool same = member.state() == State::suspect && found != suspicions_.end() && found->second.incarnation() == member.incarnation;
  if (!same && with(Rule::stale_timer_checked)) return;
  if (!member.in_service()) return;
  if (found != suspicions_.end() && with(Rule::freeze_without_quorum)) {
    if (frozen_) return;  // timed anew when the freeze ends
    if (without_quorum())
      return begin_freeze(std::to_string(table_.count(State::suspect)) + " of " + std::to_string(table_.in_service()) +
                          " members do not answer and no majority is left");
    // Nobody answered this node in the meantime and nobody else accuses the member: this node may be the one that is cut off.
    if (last_pong_ < found->second.started() && found->second.confirmations() == 0 && table_.in_service() > 2)
      return begin_freeze("no member answered this node for a whole suspicion");
    // Many suspicions at once: each gets the longest time, so that all are known when it is judged who is cut off.
    const Instant longest = found->second.started() + options_.suspicion_max;
    if (many_suspected() && now_ < longest) return timers_.set(Timers::of(Wait::suspicion, id), longest);
  }
  if (same && !questioned_.contains(id)) {
    // Only this node accuses the member, and its link to it is not up: this node may have been cut off until now.
    const bool lonely = found->second.accused_by(id_) && found->second.confirmations() == 0;
    const bool cold = up_.count(member.identity->address) == 0;
    if (!probe(slot, Probe::Why::question))  // it cannot be asked now: no verdict without a question
      return timers_.set(Timers::of(Wait::suspicion, id), now_ + options_.probe_period);
    questioned_[id] = now_ + (lonely && cold ? options_.connect_deadline : options_.probe_total);
    call_roll();
    return time_suspicion(id, found->second);
  }
  // The roll call may be that of a later question; and on a node that runs late its probes may fail after a verdict that was due later.
  if (roll_call_decides()) return timers_.set(Timers::of(Wait::suspicion, id), now_ + kFreezeCheck);
  decide(slot, RumourKind::dead, member.incarnation, "suspected and not refuted");
}

void Core::decide(Slot slot, RumourKind kind, std::uint64_t incarnation, std::string reason) {
  wire::Rumour rumour{kind, table_.at(slot).identity->id, incarnation, id_, nullptr, nullptr, reason};
  transition(slot, kind == RumourKind::down ? State::down : State::dead, incarnation, nullptr, std::move(reason));
  tell(std::move(rumour));
}

// ---------------------------------------------------------------- rule 18: too many at once

bool Core::many_suspected() const {
  const std::uint64_t suspects = table_.count(State::suspect);
  return suspects >= options_.freeze_least && suspects * 100 > std::uint64_t{options_.freeze_percent} * table_.in_service();
}

// Which side of a cut is this node on? Not on the larger one if no majority is left, nor if most of its own probes fail.
// `open`: how many more of those are taken to have failed.
bool Core::without_quorum(std::uint32_t open) const {
  const std::uint64_t members = table_.in_service(), suspects = table_.count(State::suspect);
  if (suspects < options_.freeze_least) return false;
  if (many_suspected() && (members - suspects) * 2 <= members) return true;
  const std::uint32_t failures = static_cast<std::uint32_t>(std::popcount(recent_failures_)) + open, probes = recent_probes_ + open;
  return probes >= kProbesJudged / 2 && failures * 2 > probes;
}

void Core::begin_freeze(std::string why) {
  frozen_ = true;
  frozen_since_ = now_;
  timers_.set(Timers::of(Wait::freeze), now_ + kFreezeCheck);
  if (tells_suspicions()) timers_.set(Timers::of(Wait::sync), now_ + phase(kFrozenSync));
  change(ChangeKind::frozen, *identity_, incarnation_,
         std::move(why) + ": this node may be cut off, so it declares nobody dead; check this host's network");
}

void Core::watch_freeze() {
  const bool unanswered = last_pong_ < frozen_since_ && table_.in_service() > 2;
  if (without_quorum() || unanswered) return timers_.set(Timers::of(Wait::freeze), now_ + kFreezeCheck);
  frozen_ = false;
  change(ChangeKind::thawed, *identity_, incarnation_,
         std::to_string(table_.count(State::suspect)) + " of " + std::to_string(table_.in_service()) +
             " members do not answer: decisions go on");
  restart_suspicions();  // suspects had no fair chance to refute while this node was cut off
}

// So this node is not cut off from those that it suspects. A member that is alive after all refutes it.
void Core::act(const OthersLost&) {
  if (!active()) return;
  std::vector<MemberId> suspects;
  for (Slot slot = 0; slot < table_.slots(); ++slot)
    if (table_.used(slot) && table_.at(slot).state() == State::suspect) suspects.push_back(table_.at(slot).identity->id);
  for (const MemberId& id : suspects) {
    const Slot slot = table_.find(id);
    decide(slot, RumourKind::dead, table_.at(slot).incarnation, "an operator gave up those that do not answer");
  }
  if (frozen_) watch_freeze();
}

// ---------------------------------------------------------------- process gone

void Core::check_gone(const Member& member) {
  const wire::Identity& who = *member.identity;
  const auto found = checks_.find(who.address);
  if (found != checks_.end() && found->second.member == who.id && now_ - found->second.asked < kCheckAgain) return;
  if (checks_.size() >= kChecks) checks_.clear();  // answers that never came
  checks_[who.address] = {who.id, member.incarnation, now_};
  out_->checks.push_back({who.address});
}

void Core::act(const GoneChecked& checked) {
  using Answer = GoneChecked::Answer;
  const auto found = checks_.find(checked.to);
  if (found == checks_.end() || !active()) return;
  const Check check = found->second;
  checks_.erase(found);
  const Slot slot = table_.find(check.member);
  if (slot == kNone) return;
  const Member& member = table_.at(slot);
  if (member.incarnation != check.incarnation || member.identity->address != checked.to) return;
  if (member.in_service()) {
    if (checked.answer == Answer::refused) {
      wire::Rumour rumour{RumourKind::gone, check.member, check.incarnation, id_, nullptr, nullptr, {}};
      if (merge_gone(rumour)) tell(std::move(rumour));
    } else if (!probed_already(check.member)) {
      probe(slot, Probe::Why::watch);  // it may be starting again, or be stopped: only a pong proves life
    }
    return;
  }
  if (checked.answer == Answer::accepts) probe(slot, Probe::Why::retry);
  if (member.state() != State::down) return;
  if (checked.answer != Answer::silent) {
    silences_.erase(check.member);
  } else if (++silences_[check.member] == kSilences) {
    wire::Rumour rumour{RumourKind::suspect, check.member, check.incarnation, id_, nullptr, nullptr, std::string(kSilentHost)};
    if (silent_witness(slot, check.incarnation, id_)) tell(std::move(rumour));
  }
}

bool Core::merge_gone(const wire::Rumour& rumour) {
  const Slot slot = table_.find(rumour.subject);
  if (slot == kNone) return false;
  const Member& member = table_.at(slot);
  if (rumour.incarnation < member.incarnation ||
      std::pair(rumour.incarnation, State::down) <= std::pair(std::uint64_t{member.incarnation}, member.state()))
    return false;
  Gone& gone = gone_[rumour.subject];
  if (!count_witness(gone, rumour.incarnation, counted(rumour.from))) return false;
  if (gone.witnesses.size() >= witnesses_wanted(rumour.subject)) {
    decide(slot, RumourKind::down, rumour.incarnation, "its connections closed and new ones are refused");
    return false;  // "down" says more than the suspicion
  }
  if (rumour.from == id_) ask_to_confirm(member);
  else if (linked(member)) check_gone(member);
  return true;
}

// With fewer members left, the witnesses may be all there are.
void Core::recount_gone() {
  for (auto next = gone_.begin(); next != gone_.end();) {
    const auto [id, gone] = *next++;
    const Slot slot = table_.find(id);
    if (slot == kNone || gone.witnesses.size() < witnesses_wanted(id)) continue;
    decide(slot, RumourKind::down, gone.incarnation, "its connections closed and new ones are refused");
    next = gone_.upper_bound(id);
  }
}

// A down member's host does not answer at all: two witnesses of that make it dead, as its silence would have.
bool Core::silent_witness(Slot slot, std::uint64_t incarnation, const MemberId& witness) {
  Gone& silent = silent_[table_.at(slot).identity->id];
  if (!count_witness(silent, incarnation, witness)) return false;
  if (silent.witnesses.size() < witnesses_wanted(table_.at(slot).identity->id)) return true;
  decide(slot, RumourKind::dead, incarnation, "its agent was down and now its host is silent");
  return false;
}

std::size_t Core::witnesses_wanted(const MemberId& subject) const {
  if (!with(Rule::gone_needs_two)) return 1;
  const bool counted = table_.at(table_.find(subject)).in_service();
  std::uint32_t others = std::max(1u, table_.in_service() - (counted ? 1 : 0));
  // Of three members, the third may be gone as well: then nobody is left to confirm it.
  if (others == 2 && gone_.size() > 1) others = 1;
  return std::min(options_.gone_witnesses, others);
}

bool Core::count_witness(Gone& gone, std::uint64_t incarnation, const MemberId& witness) {
  if (incarnation < gone.incarnation) return false;
  if (incarnation > gone.incarnation) gone = {incarnation, {}};
  if (std::ranges::find(gone.witnesses, witness) != gone.witnesses.end()) return false;
  if (gone.witnesses.size() >= options_.gone_witnesses) return false;
  gone.witnesses.push_back(witness);
  return true;
}

// ---------------------------------------------------------------- oneself

// Rule 2: above both this node's own incarnation and the accused one.
void Core::refute(std::uint64_t accused, RumourKind accusation, const MemberId& by) {
  rise_above(with(Rule::refute_goes_above_accusation) ? accused : 0);
  ++counters_.refutes;
  health_.worse();
  announce_myself();
  static constexpr const char* kinds[] = {"alive", "suspect", "gone", "down", "dead", "left", "fact"};
  std::string detail = std::string("said to be ") + kinds[static_cast<std::size_t>(accusation)];
  if (accusation == RumourKind::alive) detail = "another content was told of this node";
  if (!by.none()) detail += " by " + name_of(by);
  change(ChangeKind::refute, *identity_, incarnation_, std::move(detail));
}

void Core::rise_above(std::uint64_t incarnation) {
  incarnation_ = std::min(std::max(incarnation_, incarnation), wire::kMostIncarnation - 1) + 1;
}

void Core::announce_myself() {
  Member me = self_row();
  me.identity = identity_;
  me.incarnation = incarnation_;
  table_.set(self_slot_, std::move(me));
  tell(alive_rumour(self_row()));
  next_flush_ = now_;
}

// Rule 16: this node was stopped. Timers that ran out meanwhile prove nothing about others.
void Core::stalled(Duration gap) {
  health_.worse();
  change(ChangeKind::stalled, *identity_, incarnation_,
         "this agent did not run for " + std::to_string(gap / 1ms) + " ms; what it waited for begins anew");
  if (!with(Rule::tick_gap_discards_verdicts)) return;
  while (!probes_.empty()) end_probe(probes_.begin()->first);
  checks_.clear();
  pulses_.clear();
  recent_failures_ = recent_probes_ = 0;
  restart_suspicions();
}

std::string Core::name_of(const MemberId& id) const {
  const Slot slot = table_.find(id);
  return slot == kNone ? id.text() : table_.at(slot).identity->name;
}

}  // namespace dtrain::gossip
