#include "tests/sim/membership/membership_world.h"

#include <algorithm>

#include "common/gossip/rules.h"
#include "tests/sim/membership/chaos.h"

namespace dtrain::sim::membership {
namespace {

constexpr std::uint32_t kSmall = 200;  // above: sampled and encoded more rarely
constexpr Duration kSampleSmall = 1s, kSampleLarge = 10s;
constexpr Duration kMergePoll = 50ms, kMergeMost = 60s;
constexpr Duration kStopTakes = 50ms, kLeaveTakes = 1s;  // from the last step to the end of the process
constexpr std::uint32_t kSeedHosts = 3;

// What Membership logs, for --trace.
class TraceLog final : public Log {
 public:
  TraceLog(bool print, const Instant& now) : print_(print), now_(now) {}
  void write(LogLevel, std::string_view event, std::span<const LogField> fields) override {
    if (!print_) return;
    std::string text = seconds_text(now_) + " ## " + std::string(event);
    for (const LogField& field : fields) text += " " + std::string(field.key) + "=" + field.value;
    std::puts(text.c_str());
  }

 private:
  bool print_;
  const Instant& now_;
};

std::string cluster_name(std::uint32_t cluster) { return cluster == 0 ? "lab" : "other"; }

}  // namespace

MembershipWorld::MembershipWorld(RunOptions options)
    : options_(std::move(options)),
      rng_(options_.seed * 0x9e3779b97f4a7c15ull + options_.nodes),
      processors_(options_.processors),
      network_(queue_, Rng(rng_.next()), *this),
      log_(std::make_unique<TraceLog>(options_.trace, now_)),
      checkers_(all_checkers(*this)),
      encode_one_in_(options_.nodes <= kSmall ? 16 : 256) {}

MembershipWorld::~MembershipWorld() = default;

std::uint32_t MembershipWorld::add_member(std::uint32_t cluster, std::string name, std::vector<std::string> seeds) {
  const std::uint32_t slot = network_.add_host(fresh_address());
  SimMember& member = members_.emplace_back();
  member.truth.cluster = cluster;
  member.truth.calm_since = kNever;
  member.truth.ended = now_;
  member.name = std::move(name);
  member.seeds = std::move(seeds);
  member.disk.id = {rng_.next(), rng_.next()};
  member.clock.boot(now_, std::chrono::seconds(rng_.below(1'000'000)));
  member.truth.identity.id = member.disk.id;
  member.truth.identity.name = member.name;
  member.facts = {{wire::FactKey::resources, 0, "cpu=64000 memory=549755813888 gpus=8 labels=rack:" + std::to_string(slot % 40)},
                  {wire::FactKey::free, 0, "cpu=64000 memory=549755813888 gpus=8"},
                  {wire::FactKey::council, 0, "member 0"}};
  slots_by_host_["h" + std::to_string(slot)] = slot;
  return slot;
}

std::unique_ptr<gossip::Membership> MembershipWorld::make_core(std::uint32_t slot) {
  SimMember& member = members_[slot];
  wire::Identity& identity = member.truth.identity;
  identity.id = member.disk.id;
  identity.name = member.name;
  identity.address = {ip_text(network_.address(slot)), SimNetwork::kPort};
  identity.boot_id = "boot-" + std::to_string(slot) + "-" + std::to_string(member.boot);
  identity.life = member.disk.life;
  identity.key_print = member.truth.cluster == 0 ? "a1b2c3d4" : "d4c3b2a1";
  gossip::Self self;
  self.identity = identity;
  self.cluster_name = cluster_name(member.truth.cluster);
  self.record = member.disk.record;
  self.found = member.disk.founds && member.disk.record.cluster_id.none();
  self.new_cluster_id = {0xc1, member.truth.cluster + 1};
  self.seeds = member.seeds;
  self.facts = member.facts;
  gossip::MembershipOptions options;
  options.broken_rule = options_.broken_rule;
  return std::make_unique<gossip::Membership>(std::move(self), std::move(options), Rng(rng_.next()), *log_);
}

void MembershipWorld::start(std::uint32_t slot) {
  SimMember& member = members_[slot];
  if (member.truth.runs) return;
  ++member.disk.life;
  network_.set_host_up(slot, true);
  member.core = make_core(slot);
  if (preloaded_ != nullptr) member.core->preload(*preloaded_);  // shares its rows until they are written
  auto& same = slots_by_id_[member.disk.id];
  if (std::find(same.begin(), same.end(), slot) == same.end()) same.push_back(slot);
  network_.start_process(slot);
  Truth& truth = member.truth;
  truth.runs = true;
  truth.paused = truth.stopping = truth.leaving = truth.admitted = false;
  truth.started = now_;
  truth.ended = kNever;
  truth.calm_since = member.troubles == 0 ? now_ : kNever;
  member.tick_at = kNever;
  member.saving = false;
  ++changes_of_members_;
  note("start " + member.name + " at " + truth.identity.address.text() + " life " + std::to_string(member.disk.life));
  for (const auto& checker : checkers_) checker->started(slot);
  step(slot, gossip::Tick{});
}

void MembershipWorld::end(std::uint32_t slot, End how) {
  SimMember& member = members_[slot];
  Truth& truth = member.truth;
  if (!truth.runs) return;
  note("end of " + member.name);
  if (!over_)
    for (const auto& checker : checkers_) checker->ended(slot, how);
  if (now_ > steady_since_) figures_.member_seconds += std::chrono::duration<double>(now_ - std::max(truth.started, steady_since_)).count();
  const gossip::Counters& counters = member.core->counters();
  for (const auto drops : counters.drops) figures_.drops += drops;
  figures_.refutes += counters.refutes;
  figures_.conflicts += counters.conflicts;
  truth.runs = truth.paused = truth.admitted = false;
  truth.ended = now_;
  truth.calm_since = kNever;
  ++member.pauses;
  ++changes_of_members_;
  if (how == End::vanished) network_.set_host_up(slot, false);
  network_.end_process(slot);
  member.core.reset();
}

void MembershipWorld::kill(std::uint32_t slot) { end(slot, End::killed); }

void MembershipWorld::vanish(std::uint32_t slot) {
  if (!members_[slot].truth.runs) network_.set_host_up(slot, false);
  end(slot, End::vanished);
}

void MembershipWorld::stop(std::uint32_t slot) {
  if (!members_[slot].truth.runs || members_[slot].truth.paused) return;
  members_[slot].truth.stopping = true;
  step(slot, gossip::StopAsked{});
  const std::uint32_t process = network_.process(slot);
  after(kStopTakes, [this, slot, process] {
    if (network_.process(slot) == process) end(slot, End::stopped);
  });
}

void MembershipWorld::leave(std::uint32_t slot) {
  if (!members_[slot].truth.runs || members_[slot].truth.paused) return;
  members_[slot].truth.leaving = true;
  note("leave " + members_[slot].name);
  step(slot, gossip::LeaveAsked{});
  const std::uint32_t process = network_.process(slot);
  after(kLeaveTakes, [this, slot, process] {
    if (network_.process(slot) == process) end(slot, End::left);
  });
}

void MembershipWorld::pause(std::uint32_t slot, Duration length) {
  SimMember& member = members_[slot];
  if (!member.truth.runs || member.truth.paused) return;
  member.truth.paused = true;
  member.truth.stopped = now_;
  trouble(slot, true);
  network_.pause(slot);
  note("pause " + member.name + " for " + std::to_string(length.count() / 1'000'000) + "ms");
  queue_.push(now_ + length, What::resume, slot, ++member.pauses);
}

void MembershipWorld::resume_all() {
  for (std::uint32_t slot = 0; slot < slots(); ++slot)
    if (members_[slot].truth.paused) queue_.push(now_, What::resume, slot, members_[slot].pauses);
}

void MembershipWorld::move(std::uint32_t slot, std::uint32_t address) {
  if (!members_[slot].truth.runs) network_.move_host(slot, address);
}

void MembershipWorld::trouble(std::uint32_t slot, bool begins) {
  SimMember& member = members_[slot];
  member.troubles += begins ? 1 : -1;
  if (!member.truth.runs) return;
  member.truth.calm_since = member.troubles == 0 ? now_ : kNever;
  if (begins)
    for (const auto& checker : checkers_) checker->disturbed(slot);
}

void MembershipWorld::cut_begins() {
  if (cuts_++ == 0) cut_since_ = now_;
  for (const auto& checker : checkers_) checker->network_cut();
}

void MembershipWorld::cut_ends(bool parts) {
  if (parts)
    for (SimMember& member : members_)
      if (member.truth.runs && member.troubles == 0) member.truth.calm_since = now_;
  if (--cuts_ > 0) return;
  whole_since_ = now_;
  for (const auto& checker : checkers_) checker->network_healed();
  if (parts && now_ - cut_since_ > Truth::kFit) measure_merge(now_, changes_of_members_);
}

void MembershipWorld::measure_merge(Instant healed, std::uint64_t version) {
  after(kMergePoll, [this, healed, version] {
    if (cuts_ > 0 || changes_of_members_ != version || now_ - healed > kMergeMost) return;
    const std::uint32_t expected = running(0);
    for (const SimMember& member : members_) {
      if (member.truth.paused || (member.truth.runs && member.truth.impostor)) return;
      if (!member.truth.runs || member.truth.cluster != 0) continue;
      if (member.core->counts().alive != expected) {
        measure_merge(healed, version);
        return;
      }
    }
    figures_.merge.add(now_ - healed);
  });
}

void MembershipWorld::tell_fact(std::uint32_t slot, wire::FactKey key, std::string value) {
  SimMember& member = members_[slot];
  if (!member.truth.runs || member.truth.paused) return;
  wire::Fact told{key, 0, std::move(value)};
  const auto at = std::find_if(member.facts.begin(), member.facts.end(), [&](const wire::Fact& f) { return f.key == key; });
  if (at != member.facts.end() && at->value == told.value) return;  // no news
  if (at == member.facts.end()) member.facts.push_back(told);
  else *at = told;
  for (const auto& checker : checkers_) checker->fact_told(slot, told);
  step(slot, gossip::FactChanged{key, told.value});
}

// Now and then a member's free resources change, as jobs come and go.
void MembershipWorld::facts_later() {
  if (!busy_) return;
  const std::int64_t mean = options_.nodes <= kSmall ? Duration(2s).count() : Duration(5s).count();
  after(Duration(static_cast<std::int64_t>(rng_.below(2 * mean))), [this] {
    const auto slot = static_cast<std::uint32_t>(rng_.below(slots()));
    if (busy_ && fit(slot)) {
      const std::uint64_t cpu = rng_.below(64'000), gpus = rng_.below(9);  // in this order with any compiler
      tell_fact(slot, wire::FactKey::free, "cpu=" + std::to_string(cpu) + " gpus=" + std::to_string(gpus));
    }
    facts_later();
  });
}

void MembershipWorld::sample_later() {
  after(options_.nodes <= kSmall ? kSampleSmall : kSampleLarge, [this] {
    for (std::uint32_t slot = 0; slot < slots(); ++slot) {
      if (!members_[slot].truth.runs) continue;
      figures_.memory_bytes = std::max<std::uint64_t>(figures_.memory_bytes, memory_bytes(slot));
      figures_.links = std::max<std::uint64_t>(figures_.links, network_.links(slot));
    }
    for (const auto& checker : checkers_) checker->sampled();
    sample_later();
  });
}

void MembershipWorld::begin_joining() {
  for (std::uint32_t i = 0; i < options_.nodes; ++i) {
    const std::uint32_t slot = slots();
    std::vector<std::string> seeds;
    for (std::uint32_t seed = 0; seed < std::min(kSeedHosts, options_.nodes); ++seed) seeds.push_back("h" + std::to_string(seed));
    add_member(0, "n" + std::to_string(i), std::move(seeds));
    members_[slot].disk.founds = i == 0;
    after(i == 0 ? 0ns : Duration(static_cast<std::int64_t>(rng_.below(Duration(3s).count()))), [this, slot] { start(slot); });
  }
}

// As if everybody had run for long: one table, its identities and facts shared by all.
void MembershipWorld::begin_preloaded() {
  std::vector<wire::Row> rows;
  std::vector<wire::FactPtr> facts;
  std::uint64_t incarnation = 0;
  for (std::uint32_t i = 0; i < options_.nodes; ++i) {
    const std::uint32_t slot = add_member(0, "n" + std::to_string(i), {"h0", "h1", "h2"});
    SimMember& member = members_[slot];
    member.disk.record.cluster_id = {0xc1, 1};
    ++member.disk.life;
    if (i == 0) {  // what a first life begins with is Membership's to say
      const auto sample = make_core(slot);
      gossip::Outputs ignored;
      sample->step(member.clock.local(now_), gossip::Tick{}, ignored);
      incarnation = sample->incarnation();
      if (const auto view = sample->find(member.disk.id))
        for (const wire::Fact* fact : view->facts)
          if (fact != nullptr) facts.push_back(std::make_shared<const wire::Fact>(*fact));
    }
    for (wire::Fact& fact : member.facts)
      for (const wire::FactPtr& common : facts)
        if (common->key == fact.key) fact.value = common->value;
    --member.disk.life;
    wire::Row row;
    row.incarnation = incarnation;
    row.facts = facts;
    wire::Identity identity;
    identity.id = member.disk.id;
    identity.name = member.name;
    identity.address = {ip_text(network_.address(slot)), SimNetwork::kPort};
    identity.boot_id = "boot-" + std::to_string(slot) + "-" + std::to_string(member.boot);
    identity.life = 1;
    identity.key_print = "a1b2c3d4";
    row.identity = std::make_shared<const wire::Identity>(std::move(identity));
    rows.push_back(std::move(row));
  }
  // Not one of the members: what they take over must not have begun to change.
  const auto like = make_core(0);
  like->preload(rows);
  preloaded_ = like.get();
  for (std::uint32_t slot = 0; slot < slots(); ++slot) start(slot);
  preloaded_ = nullptr;
}

RunResult MembershipWorld::run() {
  const Duration length = std::max(options_.duration, kShortest);
  const Instant busy_until = now_ + (length - kConverge);
  const bool preloaded = options_.nodes >= kPreloadFrom;
  if (preloaded) begin_preloaded();
  else begin_joining();
  sample_later();
  Chaos chaos(*this, options_.faults, options_.nodes, Rng(rng_.next()), busy_until);
  steady_since_ = now_ + kSettle;
  after(kSettle, [this, &chaos] {
    figures_.messages = figures_.encoded = figures_.encoded_bytes = 0;  // what the first joins cost is no steady cost
    figures_.member_seconds = 0;
    facts_later();
    chaos.begin();
  });
  run_until(busy_until);
  busy_ = false;
  chaos.heal();
  note("calm");
  run_until(busy_until + kConverge);
  if (!violation_)
    for (const auto& checker : checkers_)
      if (!violation_) checker->at_rest();
  RunResult result;
  over_ = true;
  for (std::uint32_t slot = 0; slot < slots(); ++slot) end(slot, End::killed);
  result.violation = violation_;
  result.trace_hash = hash_;
  result.events = queue_.taken();
  result.covered = now_ - Instant{};
  result.figures = figures_;
  return result;
}

void MembershipWorld::run_until(Instant end_at) {
  while (!violation_ && queue_.next() <= end_at) {
    const Event event = queue_.pop();
    now_ = event.at;
    network_.advance(now_);
    if (event.what == What::processor) happen(processors_.next(now_, queue_));
    else if (processors_.begins(event, now_, queue_)) happen(event);
  }
  if (!violation_) {
    now_ = std::max(now_, end_at);
    network_.advance(now_);
  }
}

void MembershipWorld::happen(const Event& event) {
  switch (event.what) {
    case What::tick: on_tick(event); break;
    case What::action: {
      const auto action = actions_.take(event.a);
      action();
      break;
    }
    case What::resume: {
      SimMember& member = members_[event.slot];
      if (!member.truth.paused || member.pauses != event.a) break;
      member.truth.paused = false;
      member.truth.resumed = now_;
      trouble(event.slot, false);
      const bool tick_first = rng_.chance(1, 2);
      if (tick_first) step(event.slot, gossip::Tick{});
      network_.resume(event.slot);
      if (!tick_first && member.truth.runs) step(event.slot, gossip::Tick{});
      break;
    }
    case What::saved: {
      SimMember& member = members_[event.slot];
      if (network_.process(event.slot) != event.a) break;
      member.disk.record = member.unsaved;
      member.saving = false;
      break;
    }
    default: network_.handle(event);
  }
}

void MembershipWorld::after(Duration delay, std::function<void()> action) {
  queue_.push(now_ + delay, What::action, 0, actions_.put(std::move(action)));
}

std::uint32_t MembershipWorld::running(std::uint32_t cluster) const {
  std::uint32_t count = 0;
  for (const SimMember& member : members_) count += member.truth.runs && !member.truth.impostor && member.truth.cluster == cluster;
  return count;
}

std::vector<std::uint32_t> MembershipWorld::slots_of(const MemberId& id) const {
  const auto at = slots_by_id_.find(id);
  return at == slots_by_id_.end() ? std::vector<std::uint32_t>{} : at->second;
}

std::optional<gossip::MemberView> MembershipWorld::seen(std::uint32_t slot, const MemberId& id) const {
  return members_[slot].core ? members_[slot].core->find(id) : std::nullopt;
}

void MembershipWorld::each_seen(std::uint32_t slot, const std::function<void(const gossip::MemberView&)>& visit) const {
  if (members_[slot].core) members_[slot].core->each(visit);
}

std::size_t MembershipWorld::memory_bytes(std::uint32_t slot) const {
  return members_[slot].core ? members_[slot].core->memory_bytes() : 0;
}

void MembershipWorld::violation(std::string_view invariant, std::string what) {
  if (!violation_) violation_ = Violation{std::string(invariant), std::move(what), now_};
}

}  // namespace dtrain::sim::membership
