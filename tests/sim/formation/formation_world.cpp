#include "tests/sim/formation/formation_world.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/base/check.h"
#include "tests/sim/counters.h"
#include "tests/sim/formation/chaos.h"

namespace dtrain::sim::formation {
namespace {

constexpr Duration kLogsWatched = 100ms;  // every
constexpr Duration kGhost = 30s;          // the longest that a message takes
constexpr std::uint32_t kTicksInPlace = 1000;
constexpr std::uint32_t kEncodeOneIn = 8;

constexpr Counter<Figures> kCounters[] = {
    {"events", &Figures::events},           {"messages", &Figures::messages}, {"encoded", &Figures::encoded},
    {"persists", &Figures::persists},       {"restarts", &Figures::restarts}, {"wiped", &Figures::wiped},
    {"disk_errors", &Figures::disk_errors}, {"without", &Figures::without},   {"proposed", &Figures::proposed},
    {"withdrawn", &Figures::withdrawn},     {"began", &Figures::began},       {"abandoned", &Figures::abandoned},
    {"admitted", &Figures::admitted},
};

std::string short_text(const MemberId& id) { return id.none() ? "-" : std::to_string(id.low % 100000); }

}  // namespace

void Figures::join(const Figures& run) { join_counters(kCounters, *this, run); }
nlohmann::json Figures::json() const { return counters_json(kCounters, *this); }

FormationWorld::FormationWorld(RunOptions options)
    : options_(std::move(options)),
      rng_(options_.seed * 0x9e3779b97f4a7c15ull + options_.nodes),
      links_(Rng(rng_.next())),
      machines_(options_.nodes),
      checkers_(all_checkers(*this)) {
  core_options_.broken_rule = options_.broken_rule;
  // Often slow: forming takes long enough then for much to go wrong meanwhile.
  constexpr Duration kBases[] = {200us, 20ms, 200ms};
  links_.set_base(kBases[rng_.below(std::size(kBases))]);
  constexpr Duration kDisks[] = {1ms, 50ms, 500ms};
  disk_usual_ = kDisks[rng_.below(std::size(kDisks))];
  for (Slot slot = 0; slot < slots(); ++slot) {
    names_.push_back(std::string("h") + static_cast<char>('a' + slot));  // in ascending order: slot is seat
    machines_[slot].disk.id = {rng_.next(), ++ids_};
  }
}

std::vector<std::string> FormationWorld::checker_names() const {
  std::vector<std::string> names;
  for (const auto& checker : checkers_) names.emplace_back(checker->name());
  return names;
}

void FormationWorld::mix(std::uint64_t value) {
  hash_ = (hash_ ^ value) * 0xff51afd7ed558ccdull;
  hash_ ^= hash_ >> 29;
}

void FormationWorld::note(const std::string& text) {
  for (const char c : text) mix(static_cast<unsigned char>(c));
  if (options_.trace) std::printf("%s == %s\n", seconds_text(now_).c_str(), text.c_str());
}

void FormationWorld::after(Duration delay, std::function<void()> action) {
  queue_.push(now_ + delay, What::action, 0, actions_.put(std::move(action)));
}

void FormationWorld::violation(std::string_view invariant, std::string what) {
  if (!violation_) violation_ = Violation{std::string(invariant), std::move(what), now_};
}

// ---------------------------------------------------------------- machines

void FormationWorld::start(Slot slot) {
  Machine& machine = machines_[slot];
  if (machine.core) return;
  ++figures_.restarts;
  ++machine.process;
  machine.disk_failed = false;
  machine.tick_at = kNever;
  core::Self self;
  self.id = machine.disk.id;
  self.founders = names_;
  self.name = names_[slot];
  self.record = machine.disk.record;
  self.cluster = machine.disk.member;
  machine.core = std::make_unique<core::Formation>(self, core_options_, Rng(rng_.next()));
  note("start " + name(slot) + " as " + short_text(machine.disk.id));
  step(slot, core::Tick{});
}

void FormationWorld::kill(Slot slot) {
  Machine& machine = machines_[slot];
  if (!machine.core) return;
  note("end of " + name(slot));
  const core::Counters& counters = machine.core->counters();
  figures_.proposed += counters.proposed;
  figures_.withdrawn += counters.withdrawn;
  figures_.abandoned += counters.abandoned;
  if (machine.under_way && rng_.chance(1, 2)) store(slot, *machine.under_way);  // wholly there or not
  machine.under_way.reset();
  machine.join.reset();
  machine.persist_fails = false;
  machine.core.reset();
  ++machine.process;
}

// Of every founding that somebody knows a majority of the voters keep their disks; and no operator has formed
// without some: what he is told wrong then nobody could notice.
bool FormationWorld::may_wipe(Slot slot) const {
  if (any_without_) return false;
  const auto harmless = [&](const core::Founding& founding) {
    const auto voters = core::configuration_of(founding).voters;
    if (!std::binary_search(voters.begin(), voters.end(), machines_[slot].disk.id)) return true;
    const auto kept = std::count_if(voters.begin(), voters.end(), [&](const MemberId& voter) {
      return voter != machines_[slot].disk.id &&
             std::any_of(machines_.begin(), machines_.end(), [&](const Machine& machine) { return machine.disk.id == voter; });
    });
    return static_cast<std::size_t>(kept) > voters.size() / 2;
  };
  return std::all_of(machines_.begin(), machines_.end(), [&](const Machine& machine) {
    return harmless(machine.disk.record.promise) && (!machine.under_way || harmless(machine.under_way->record.promise));
  });
}

void FormationWorld::wipe(Slot slot) {
  Machine& machine = machines_[slot];
  CHECK(!machine.core);
  ++figures_.wiped;
  note("the disk of " + name(slot) + " is lost");
  machine.disk = Disk{};
  machine.disk.id = {rng_.next(), ++ids_};
}

void FormationWorld::heal_disk(Slot slot) {
  machines_[slot].fail_next_persist = machines_[slot].persist_fails = false;
  machines_[slot].disk_takes = 0ns;
}

void FormationWorld::form_without_the_missing(Slot slot) {
  Machine& machine = machines_[slot];
  if (!machine.core || figures_.wiped > 0) return;
  std::vector<std::string> missing;
  for (Slot other = 0; other < slots(); ++other)
    if (other != slot && (!machines_[other].core || !links_.both_ways(slot, other))) missing.push_back(names_[other]);
  if (missing.empty() || !machine.core->form_without(missing)) return;
  any_without_ = true;
  ++figures_.without;
  note("without " + std::to_string(missing.size()) + " on " + name(slot));
  step(slot, core::Tick{});
}

// ---------------------------------------------------------------- steps

void FormationWorld::step(Slot slot, const core::Input& input) {
  Machine& machine = machines_[slot];
  mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()) << 3 ^ input.index());
  mix(slot);
  core::Outputs out;
  machine.core->step(now_, input, out);
  if (out.join) machine.join = out.join;
  if (out.persist) persist(slot, std::move(*out.persist));
  for (core::Send& one : out.sends) send(slot, std::move(one));
  schedule(slot);
}

void FormationWorld::schedule(Slot slot) {
  Machine& machine = machines_[slot];
  const Instant wanted = std::max(machine.core->deadline(), now_);
  if (wanted >= machine.tick_at) return;
  machine.tick_at = wanted;
  after(wanted - now_, [this, slot, process = machine.process, wanted] {
    Machine& due = machines_[slot];
    if (due.process != process || due.tick_at != wanted || !due.core) return;
    due.tick_at = kNever;
    if (due.core->deadline() > now_) return schedule(slot);
    if (++due.ticks_in_place > kTicksInPlace)
      return violation("no_spinning", name(slot) + " asks for a tick at an instant that has passed, again and again");
    step(slot, core::Tick{});
    if (due.core && due.core->deadline() > now_) due.ticks_in_place = 0;
  });
}

void FormationWorld::persist(Slot slot, core::Persist&& persist) {
  Machine& machine = machines_[slot];
  if (machine.under_way) return violation("one_persist_at_a_time", name(slot) + " asks for a second Persist while one is under way");
  ++figures_.persists;
  if (options_.trace)
    std::printf("%s %s -> persist promise %s%s%s withdrawn %zu\n", seconds_text(now_).c_str(), name(slot).c_str(),
                short_text(persist.record.promise.cluster).c_str(), persist.begin ? " begins" : "", persist.abandon ? " abandons" : "",
                persist.record.withdrawn.size());
  machine.under_way = std::move(persist);
  machine.persist_fails = std::exchange(machine.fail_next_persist, false);
  after(20us + upto(disk_usual_) + upto(machine.disk_takes), [this, slot, process = machine.process] {
    if (machines_[slot].process == process) on_persisted(slot);
  });
}

void FormationWorld::on_persisted(Slot slot) {
  Machine& machine = machines_[slot];
  const core::Persist persist = *std::exchange(machine.under_way, std::nullopt);
  const bool fails = std::exchange(machine.persist_fails, false);
  if (!fails || rng_.chance(1, 2)) store(slot, persist);
  if (!fails) return step(slot, core::Persisted{});
  ++figures_.disk_errors;
  machine.disk_failed = true;
  note("the disk of " + name(slot) + " failed");
  step(slot, core::PersistFailed{});
}

void FormationWorld::store(Slot slot, const core::Persist& persist) {
  Disk& disk = machines_[slot].disk;
  const core::Record before = disk.record;
  const auto copy = core::Record::decode(persist.record.encode());
  if (!copy || *copy != persist.record) return violation("record_readable", name(slot) + " writes a record that does not come back");
  disk.record = *copy;
  if (persist.begin) {
    ++figures_.began;
    disk.log = persist.begin;
  }
  if (persist.abandon) disk.log.reset();
  for (const auto& checker : checkers_) checker->stored(slot, before, persist);
}

// ---------------------------------------------------------------- messages

void FormationWorld::send(Slot slot, core::Send&& send) {
  ++figures_.messages;
  mix(send.to << 8 ^ send.report.promise.cluster.low);
  if (options_.trace)
    std::printf("%s %s -> %s %s promise %s cluster %s%s%s withdrawn %zu\n", seconds_text(now_).c_str(), name(slot).c_str(),
                name(send.to).c_str(), send.report.asks ? "asks" : "answers", short_text(send.report.promise.cluster).c_str(),
                short_text(send.report.cluster).c_str(), send.report.established ? " established" : "", send.report.doubts ? " doubts" : "",
                send.report.withdrawn.size());
  for (const auto& checker : checkers_) checker->said(slot, send.report);
  const core::FormationReport report = rng_.chance(1, kEncodeOneIn) ? through_codec(send.report) : send.report;
  const MemberId sender = machines_[slot].disk.id;
  const auto fate = links_.fate(slot, send.to);
  if (fate.first) {
    const bool ghost = ghosts_ && rng_.chance(1, 12);
    deliver(slot, sender, send.to, report, *fate.first + (ghost ? upto(kGhost) : 0ns));
  }
  if (fate.second) deliver(slot, sender, send.to, report, *fate.second);
}

// To the machine, whoever is there by then.
void FormationWorld::deliver(Slot from, const MemberId& sender, Slot to, const core::FormationReport& report, Duration delay) {
  after(delay, [this, from, sender, to, report] {
    if (!machines_[to].core) return;
    mix(from);
    step(to, core::Received{sender, report});
  });
}

core::FormationReport FormationWorld::through_codec(const core::FormationReport& report) {
  ++figures_.encoded;
  const std::string bytes = wire::encode_formation(report);
  const auto decoded = wire::decode_formation(bytes);
  if (bytes.size() != wire::encoded_size(report) || !decoded || *decoded != report)
    violation("encoded_equal", "a report does not come back as it was: " + (decoded ? "" : decoded.error().text()));
  return decoded.value_or(report);
}

// ---------------------------------------------------------------- logs

bool FormationWorld::has_log(Slot slot, const core::Founding& founding) const {
  const Machine& machine = machines_[slot];
  return machine.core && !machine.disk_failed &&
         ((machine.disk.log && *machine.disk.log == founding) || machine.disk.member == founding.cluster);
}

bool FormationWorld::works_for(Slot slot, const core::Founding& founding) const {
  std::size_t there = 0;
  const auto voters = core::configuration_of(founding).voters;
  for (Slot other = 0; other < slots(); ++other)
    if (std::binary_search(voters.begin(), voters.end(), machines_[other].disk.id) && has_log(other, founding) &&
        (other == slot || links_.both_ways(slot, other)))
      ++there;
  return there > voters.size() / 2;
}

// What the logs would do: where one works, those who have it know, and whoever asked is admitted.
void FormationWorld::watch_logs() {
  for (Slot slot = 0; slot < slots() && !violation_; ++slot) {
    Machine& machine = machines_[slot];
    if (machine.disk.log && has_log(slot, *machine.disk.log) && works_for(slot, *machine.disk.log)) {
      for (const auto& checker : checkers_) checker->works(*machine.disk.log);
      step(slot, core::Established{});
    }
    if (!machine.core || !machine.join || machine.disk.log || !machine.disk.member.none()) continue;
    const Slot host = machine.join->seat;
    const bool admits = std::any_of(machines_.begin(), machines_.end(), [&](const Machine& other) {
      return other.disk.log && other.disk.log->cluster == machine.join->cluster && has_log(host, *other.disk.log) &&
             works_for(host, *other.disk.log);
    });
    if (!admits || !links_.both_ways(slot, host)) continue;
    ++figures_.admitted;
    note(name(slot) + " is admitted");
    machine.disk.member = machine.join->cluster;
    step(slot, core::Admitted{machine.disk.member});
  }
  after(kLogsWatched, [this] { watch_logs(); });
}

// ---------------------------------------------------------------- a run

RunResult FormationWorld::run() {
  const Duration length = std::max(options_.duration, kShortest);
  const Instant busy_until = now_ + (length - kRest);
  Chaos chaos(*this, options_.faults, Rng(rng_.next()), busy_until);
  chaos.begin();
  watch_logs();
  run_until(busy_until);
  if (!violation_) {
    chaos.heal();
    note("calm");
  }
  run_until(busy_until + kRest);
  for (const auto& checker : checkers_)
    if (!violation_) checker->at_rest();
  RunResult result;
  result.violation = violation_;
  result.trace_hash = hash_;
  result.covered = now_ - Instant{};
  for (Slot slot = 0; slot < slots(); ++slot) kill(slot);
  figures_.events = queue_.taken();
  result.figures = figures_;
  return result;
}

void FormationWorld::run_until(Instant end) {
  while (!violation_ && queue_.next() <= end) {
    const auto event = queue_.pop();
    now_ = event.at;
    const auto action = actions_.take(event.a);
    action();
  }
  if (!violation_) now_ = std::max(now_, end);
}

}  // namespace dtrain::sim::formation
