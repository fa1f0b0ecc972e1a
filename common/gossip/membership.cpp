#include "common/gossip/membership.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/gossip/core.h"

namespace dtrain::gossip {

namespace {

// If a timer is overdue by more than this, messages that waited as long are read before anybody is judged by it.
constexpr Duration kLate = 100ms;
constexpr std::size_t kSaidThings = 512;  // remembered so as not to be repeated; beyond, all are forgotten

ChangeKind kind_of(wire::MemberState state) { return static_cast<ChangeKind>(state); }
static_assert(static_cast<int>(ChangeKind::alive) == static_cast<int>(wire::MemberState::alive));
static_assert(static_cast<int>(ChangeKind::suspect) == static_cast<int>(wire::MemberState::suspect));
static_assert(static_cast<int>(ChangeKind::down) == static_cast<int>(wire::MemberState::down));
static_assert(static_cast<int>(ChangeKind::dead) == static_cast<int>(wire::MemberState::dead));
static_assert(static_cast<int>(ChangeKind::left) == static_cast<int>(wire::MemberState::left));

RumourQueue::Limits queue_limits(const MembershipOptions& options) {
  return {options.queue_rumours, options.retransmit, options.confirmations + 1,
          Rules(options.broken_rule).hold(Rule::fewest_transmitted_first)};
}

}  // namespace

Core::Core(Self self, MembershipOptions options, Rng rng, Log& log)
    : options_(std::move(options)),
      rules_(options_.broken_rule),
      rng_(rng),
      log_(log),
      id_(self.identity.id),
      cluster_name_(std::move(self.cluster_name)),
      seeds_(std::move(self.seeds)),
      health_(options_.health_max),
      table_(options_.sync_buckets),
      rings_(id_, options_.neighbour_rings),
      order_(rng_.next(), with(Rule::shuffle_probes)),
      queue_(queue_limits(options_)) {
  identity_ = std::make_shared<const wire::Identity>(std::move(self.identity));
  // A life is stored, so incarnations survive a restart; 2^20 refutations fit in one life.
  const std::uint64_t life = std::min(identity_->life, kMostLives);
  incarnation_ = std::max<std::uint64_t>(1, life << 20);
  sequence_ = identity_->life << 32;  // no pong to an earlier life matches
  std::vector<wire::FactPtr> facts;
  for (wire::Fact& fact : self.facts) {
    // A life may repeat when an older disk is restored: its versions should not.
    fact.version = (life << 32) + 1 + rng_.below(1 << 24);
    facts.push_back(std::make_shared<const wire::Fact>(std::move(fact)));
  }
  Member row{identity_, facts_of(facts), incarnation_};
  row.enter(self.record.left ? State::left : State::alive, Instant{});
  self_slot_ = table_.add(std::move(row));
  left_ = self.record.left;
  if (!self.record.cluster_id.none()) {
    first_cluster_ = self.record.cluster_id;
    saved_ = hash_of_record(self.record);
  } else if (self.found) {
    first_cluster_ = self.new_cluster_id;
  }
  remember_contacts(self.record);
  for (wire::Identity& peer : self.record.book) {
    if (peer.id == id_ || absent_.size() >= options_.book) continue;
    auto known = std::make_shared<const wire::Identity>(std::move(peer));
    if (absent_.emplace(known->id, known).second) absent_order_.push_back(known->id);
  }
}

void Core::preload(const std::vector<wire::Row>& rows) {
  CHECK(phase_ == Phase::created);
  for (const wire::Row& row : rows) {
    if (row.identity->id == id_ || table_.find(row.identity->id) != kNone) continue;
    Member member{row.identity, facts_of(row.facts), row.incarnation};
    member.enter(row.state, Instant{});
    table_.add(std::move(member));
  }
}

void Core::preload(const Core& like) {
  CHECK(phase_ == Phase::created);
  const Member mine = self_row();
  table_.share(like.table_);
  self_slot_ = table_.find(id_);
  if (self_slot_ == kNone) {
    self_slot_ = table_.add(mine);
  } else if (const Member& there = self_row(); there.incarnation != mine.incarnation || *there.identity != *mine.identity) {
    table_.set(self_slot_, mine);
  } else {
    identity_ = there.identity;
  }
}

void Core::step(Instant now, const Input& input, Outputs& out) {
  out_ = &out;
  if (phase_ == Phase::created) {
    started_ = now_ = last_step_ = now;
    start();
  }
  const Instant due = deadline();
  now_ = std::max(now, now_);
  const Duration gap = now_ - last_step_;
  // Rule 16. Having nothing to do for a while is no stall: something must have been overdue.
  if (active() && gap > options_.tick_gap && due < now_ && now_ - due > options_.tick_gap / 2) stalled(gap);
  last_step_ = now_;
  std::visit([this](const auto& what) { act(what); }, input);
  run_timers();
  if (active()) {
    if (rearm_) recount_gone();
    if (!queue_.empty() && now_ >= next_flush_) flush();
    if (rearm_) arm();
  }
  out_ = nullptr;
}

void Core::start() {
  for (Slot slot = 0; slot < table_.slots(); ++slot) {  // preloaded rows
    if (slot == self_slot_) continue;
    const Member& member = table_.at(slot);
    if (!member.in_service()) absent_from_service(member);
    forget_absent(member.identity->id);
  }
  rings_.rebuild([this](const Rings::Visit& visit) { each_candidate(visit); });
  queue_.set_members(transmission_members());
  queue_.set_neighbours(static_cast<std::uint32_t>(rings_.neighbours().size()));
  if (left_) {
    phase_ = Phase::left;
    cluster_ = first_cluster_;
    return;
  }
  phase_ = Phase::waiting;
  if (!first_cluster_.none()) enter(first_cluster_);
  joining_ = phase_ == Phase::waiting || (table_.size() == 1 && (!contacts_.empty() || !seeds_.empty()));
  if (joining_) join_round();
}

Duration Core::phase(Duration period) {
  if (!with(Rule::random_phase)) return period;
  return Duration(static_cast<Duration::rep>(rng_.below(static_cast<std::uint64_t>(period.count()) + 1)));
}

Duration Core::jittered(Duration period) { return period * 3 / 4 + phase(period / 2); }

// Starts the timers that have something to do.
void Core::arm() {
  rearm_ = false;
  const auto begin = [this](Wait wait, Duration period) {
    if (!timers_.waits(Timers::of(wait))) timers_.set(Timers::of(wait), now_ + phase(period));
  };
  if (!rings_.neighbours().empty()) {
    begin(Wait::probe, options_.probe_period);
    begin(Wait::sync, sync_period());
    begin(Wait::links, kLinksSpread);
  }
  if (!away_.empty() || !absent_.empty() || !seeds_.empty()) begin(Wait::retry, options_.retry_period);
}

// How much longer others' answers may take because of this node: there and back.
Duration Core::own_lag() { return with(Rule::lag_counts) ? 2 * lag_.at(now_) : Duration{}; }

// An overloaded node opens no connection for another's question, whose answer would be late anyway.
bool Core::overloaded() { return own_lag() > kLate; }

void Core::run_timers() {
  // Each timer runs at most once in a step, whatever it sets, so that there is no endless loop.
  std::size_t most = timers_.size() + 1;
  while (most-- > 0) {
    const Instant due = timers_.next();
    const auto key = timers_.pop(now_);
    if (!key) return;
    const Duration late = now_ - due;
    lag_.felt(late, now_);
    const bool judges = key->wait == Wait::probe_direct || key->wait == Wait::probe_total || key->wait == Wait::suspicion;
    if (judges && late > kLate && with(Rule::tick_gap_discards_verdicts)) {
      // Messages that arrived meanwhile wait to be read, for as long as this node was stopped.
      timers_.set(*key, now_ + (with(Rule::lag_counts) ? std::min(late, Lag::kMost) : kLate));
      continue;
    }
    run(*key);
  }
}

void Core::run(const Timers::Key& timer) {
  switch (timer.wait) {
    case Wait::probe: return probe_next();
    case Wait::expect: return pulse_missed(timer.id);
    case Wait::probe_direct: return ask_helpers(timer.id.low);
    case Wait::probe_total: return probe_fails(timer.id.low);
    case Wait::relay_nack: return nack(timer.id.low);
    case Wait::relay_end: return end_probe(timer.id.low);
    case Wait::suspicion: return suspicion_ends(timer.id);
    case Wait::freeze: return watch_freeze();
    case Wait::batch: return;  // sent at the end of the step
    case Wait::links: return keep_links();
    case Wait::sync: return sync_round();
    case Wait::sync_soon:
      if (const Slot slot = table_.find(sync_soon_with_); slot != kNone && table_.at(slot).incarnation < sync_unless_known_)
        sync_with(slot);
      return;
    case Wait::retry: return retry_next();
    case Wait::join: return join_round();
    case Wait::reap: return reap(timer.id);
    case Wait::save: return save();
  }
}

void Core::change(ChangeKind kind, const wire::Identity& who, std::uint64_t incarnation, std::string detail) {
  out_->changes.push_back({kind, who.id, who.name, incarnation, std::move(detail)});
}

void Core::change_to(State state, const wire::Identity& who, std::uint64_t incarnation, std::string detail) {
  change(kind_of(state), who, incarnation, std::move(detail));
}

bool Core::once(Topic topic, const MemberId& subject, Duration every) {
  if (said_.size() >= kSaidThings) said_.clear();
  const auto [said, first] = said_.emplace(std::pair(topic, subject), now_);
  if (!first && now_ - said->second < every) return false;
  said->second = now_;
  return true;
}

MemberTable::Slot Core::named(std::string_view name) const {
  Slot best = kNone;
  table_.each_named(name, [&](Slot slot) {
    const auto rank = [this](Slot of) { return std::pair(table_.at(of).state(), table_.at(of).identity->id); };
    if (best == kNone || rank(slot) < rank(best)) best = slot;
    return false;
  });
  return best;
}

std::size_t Core::memory_bytes() const {
  constexpr std::size_t kNode = 48;  // a tree's node, about
  std::size_t bytes = sizeof(*this) + table_.memory_bytes() + queue_.memory_bytes() + timers_.memory_bytes();
  bytes += suspicions_.size() * (sizeof(Suspicion) + sizeof(MemberId) * (1 + options_.confirmations) + kNode);
  bytes += (gone_.size() + silent_.size()) * (sizeof(Gone) + sizeof(MemberId) * (1 + options_.gone_witnesses) + kNode);
  bytes += silences_.size() * (sizeof(MemberId) + 8 + kNode) + checks_.size() * (sizeof(wire::Endpoint) + sizeof(Check) + kNode);
  bytes += tombstones_.size() * (sizeof(MemberId) + sizeof(Tombstone) + kNode) + burials_.size() * sizeof(burials_[0]);
  bytes += away_.size() * (sizeof(MemberId) + kNode);
  bytes += absent_.size() * (2 * sizeof(MemberId) + sizeof(wire::Identity) + 64 + kNode);
  bytes += pulses_.size() * (sizeof(MemberId) + sizeof(Pulse) + kNode);
  bytes += turns_.capacity() * sizeof(MemberId);
  bytes += probes_.size() * (sizeof(Probe) + kNode) + up_.size() * (sizeof(wire::Endpoint) + kNode);
  bytes += said_.size() * (sizeof(MemberId) + 16 + kNode) + kept_.capacity() * sizeof(Peer);
  return bytes;
}

// ---------------------------------------------------------------- the public face

struct Membership::Impl {
  Core core;
};

Membership::Membership(Self self, MembershipOptions options, Rng rng, Log& log)
    : impl_(new Impl{Core(std::move(self), std::move(options), rng, log)}) {}
Membership::~Membership() = default;
Membership::Membership(Membership&&) noexcept = default;

void Membership::step(Instant now, const Input& input, Outputs& out) { impl_->core.step(now, input, out); }
Instant Membership::deadline() const { return impl_->core.deadline(); }
void Membership::preload(const std::vector<wire::Row>& rows) { impl_->core.preload(rows); }
void Membership::preload(const Membership& like) { impl_->core.preload(like.impl_->core); }
MemberId Membership::cluster_id() const { return impl_->core.cluster(); }
std::uint64_t Membership::incarnation() const { return impl_->core.incarnation(); }
std::uint32_t Membership::local_health() const { return impl_->core.local_health(); }
const Counters& Membership::counters() const { return impl_->core.counters(); }
std::string Membership::seen_elsewhere() const { return impl_->core.seen_elsewhere(); }
std::size_t Membership::memory_bytes() const { return impl_->core.memory_bytes(); }

namespace {

MemberView view_of(const Member& member) {
  MemberView view{member.state(), member.incarnation, member.identity.get(), {}, member.was_down != 0};
  if (member.facts)
    for (std::size_t key = 0; key < wire::kFactKeys; ++key) view.facts[key] = (*member.facts)[key].get();
  return view;
}

}  // namespace

void Membership::each(const std::function<void(const MemberView&)>& visit) const {
  const Core& core = impl_->core;
  const MemberTable& table = core.table();
  std::vector<MemberTable::Slot> slots;
  for (MemberTable::Slot slot = 0; slot < table.slots(); ++slot)
    if (table.used(slot)) slots.push_back(slot);
  std::ranges::sort(slots, {}, [&](MemberTable::Slot slot) {
    const wire::Identity& who = *table.at(slot).identity;
    return std::tuple(who.id != core.id(), std::string_view(who.name), who.id);
  });
  for (const MemberTable::Slot slot : slots) visit(view_of(table.at(slot)));
}

std::optional<MemberView> Membership::find(const MemberId& id) const {
  const MemberTable::Slot slot = impl_->core.table().find(id);
  if (slot == MemberTable::kNone) return std::nullopt;
  return view_of(impl_->core.table().at(slot));
}

std::optional<MemberView> Membership::find(const std::string& name) const {
  const MemberTable::Slot slot = impl_->core.named(name);
  if (slot == MemberTable::kNone) return std::nullopt;
  return view_of(impl_->core.table().at(slot));
}

bool Membership::frozen() const { return impl_->core.frozen(); }

const wire::Identity* Membership::absent(const MemberId& id) const {
  const auto found = impl_->core.absent().find(id);
  return found == impl_->core.absent().end() ? nullptr : found->second.get();
}

const wire::Identity* Membership::absent(const std::string& name) const {
  for (const auto& [id, peer] : impl_->core.absent())
    if (peer->name == name) return peer.get();
  return nullptr;
}

Membership::Counts Membership::counts() const {
  const MemberTable& table = impl_->core.table();
  using wire::MemberState;
  return {table.count(MemberState::alive), table.count(MemberState::suspect), table.count(MemberState::down),
          table.count(MemberState::dead), table.count(MemberState::left)};
}

}  // namespace dtrain::gossip
