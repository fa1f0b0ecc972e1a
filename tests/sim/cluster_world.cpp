#include "tests/sim/cluster_world.h"

#include <algorithm>
#include <cstdio>

#include "common/base/check.h"
#include "tests/sim/chaos.h"
#include "tests/sim/job_factory.h"

namespace dtrain::sim {
namespace {

constexpr Duration kLookEvery = 4s, kLongestIdle = 4s, kAnswerTime = 100ms;
// How long a request takes on a slow disk; with several hosts it may wait for a coordinator, or for the end of a partition.
constexpr Duration kTakesEffect = 5s, kTakesEffectAmongSeveral = 40s;
// Times after the last fault: for an election, and for reports that were delayed.
constexpr Duration kAmends = 10s, kAllReported = 20s;
// Time for the cluster to form before users come and faults begin: until three voters exist, and in a world of many
// hosts the other copies of the ledger, too.
constexpr Duration kForming = 15s, kFormingOfMany = 30s;
// With some seeds the first hosts form the cluster together: they start at any time, and one is killed meanwhile.
constexpr std::uint64_t kFormOneIn = 4;
constexpr std::size_t kFounders = 3;
constexpr Duration kStartedWithin = 3s, kKilledWithin = 5s, kBackWithin = 3s, kFoundersTake = 30s;

// Drawn by each seed.
constexpr Duration kLeases[] = {3s, 5s, 9s, 15s};
constexpr std::uint64_t kHungryOneIn = 3, kDynamicOneIn = 6, kQuorumLostOneIn = 4, kHostHooksOneIn = 6, kHostStopsOneIn = 4,
                        kUpgradedOneIn = 4, kElasticOneIn = 4;
constexpr std::size_t kFewestVoters = 3, kFewestDynamic = 5;
// The widest jobs are for so many hosts: every copy of the ledger looks at all tasks of a job at each report of one.
constexpr std::uint32_t kWidest = 100;
constexpr Duration kRestoreWaits[] = {0s, 15s, 60s};

class QuietLog final : public Log {
 public:
  void write(LogLevel, std::string_view, std::span<const LogField>) override {}
};

class PrintedLog final : public Log {
 public:
  explicit PrintedLog(const Timeline& timeline) : timeline_(timeline) {}
  void write(LogLevel, std::string_view event, std::span<const LogField> fields) override {
    std::string line = seconds_text(timeline_.now()) + " ## " + std::string(event);
    for (const LogField& f : fields) line += " " + std::string(f.key) + "=" + f.value;
    std::puts(line.c_str());
  }

 private:
  const Timeline& timeline_;
};

// What Node cannot break, the world breaks: each of these is a promise of the ring around Node.
constexpr std::string_view kWorldRules[] = {"commit-durable",  "one-completion", "exit-told", "staging-told",     "end-is-true",
                                            "lists-as-of-now", "new-ports",      "own-gpu",   "disk-failure-told"};
constexpr std::string_view kNodeRules[] = {
    "completion-durable", "start-order", "budget", "own-cpus", "gpus-reclaimed", "gpu-notes-are-read", "kill-before-next-generation",
    "ack-after-commit", "orphan-kill", "verify-before-restore",
    // Of several hosts.
    "report-of-its-host", "stateful-waits-for-its-host", "lost-host-rests", "lease-counted-out", "restarts-wait-for-the-frozen",
    "elsewhere-waits-for-the-frozen", "frozen-costs-nothing", "unknown-entry-stops", "version-of-all", "consequence-costs-nothing",
    "epoch-fence", "unheard-host-keeps", "drained-gets-nothing", "victims-have-lower-priority", "preempted-costs-nothing",
    "never-fits-is-true", "deleted-gives-its-name", "fetched-is-staged", "copied-is-staged", "own-copy-is-verified", "newest-is-waited-for",
    "restore-by-lineage", "grows-into-room", "gang-begins-whole", "prolog-first", "epilog-last"};

// Hosts that are given tasks: those with a copy of the ledger.
std::uint32_t placeable(std::size_t hosts) { return static_cast<std::uint32_t>(std::min(hosts, wire::kMostVoters + wire::kMostLearners)); }

bool is_world_rule(std::string_view rule) {
  return std::find(std::begin(kWorldRules), std::end(kWorldRules), rule) != std::end(kWorldRules);
}

}  // namespace

std::vector<std::string> cluster_rules() {
  std::vector<std::string> rules(std::begin(kNodeRules), std::end(kNodeRules));
  rules.insert(rules.end(), std::begin(kWorldRules), std::end(kWorldRules));
  return rules;
}

ClusterWorld::ClusterWorld(RunOptions options)
    : options_(std::move(options)),
      rng_(stream(1)),
      chosen_(stream(7)),
      trace_(options_.trace, options_.nodes > 1),
      relays_(*this, stream(11)) {
  CHECK(options_.nodes >= 1 && options_.nodes <= kMostHosts);
  if (options_.trace) log_ = std::make_unique<PrintedLog>(timeline_);
  else log_ = std::make_unique<QuietLog>();
  SimClient::Hooks hooks;
  hooks.choose_host = [this] { return alone() ? 0 : chosen_.below(hosts()); };
  hooks.newest_host = [this] { return newest_host(); };
  hooks.upload = [this](std::size_t host, const std::string& digest) { relays_.uploaded(host, digest); };
  hooks.agent_listens = [this](std::size_t host) { return hosts_[host]->node() != nullptr; };
  hooks.post = [this](std::size_t host, node::Event event) { hosts_[host]->post(std::move(event)); };
  hooks.asked = [this](const SentRequest& sent) {
    for (const auto& checker : checkers_) checker->on_asked(sent);
  };
  hooks.replied = [this](const SentRequest& sent, const wire::Message& message) {
    told(sent, message);
    if (sent.type == wire::MessageType::drain && !sent.drain.on && message.type == wire::MessageType::ok)
      for (std::size_t i = 0; i < hosts_.size(); ++i)
        if (hosts_[i]->name() == sent.drain.node) drained_.erase(i);
    for (const auto& checker : checkers_) checker->on_reply(sent, message);
  };
  hooks.looked = [this](const wire::JobsReply& jobs, std::uint64_t index) {
    if (!book_.seen(jobs, index, timeline_.now())) return;
    tell_checkers([&](Checker& checker) { checker.on_jobs(jobs); });
  };
  hooks.complain = [this](std::string_view invariant, std::string what) { violation(invariant, std::move(what)); };
  client_ = std::make_unique<SimClient>(timeline_, stream(5), book_, hooks);
  if (stream(11).chance(1, kHungryOneIn)) client_->set_hungry(placeable(options_.nodes));
  // What only they show takes two hosts that are lost and three that go on.
  if (options_.nodes >= kFewestDynamic && stream(15).chance(1, kDynamicOneIn)) client_->set_dynamic();
  if (many()) client_->set_many(std::min(placeable(options_.nodes), kWidest));
  if (options_.nodes > 1)
    network_ = std::make_unique<ClusterNetwork>(
        timeline_, stream(8), [this](std::size_t host, node::Event event) { hosts_[host]->post(std::move(event)); },
        [this](std::string_view invariant, std::string what) { violation(invariant, std::move(what)); });
  if (network_ && stream(9).chance(1, kFormOneIn)) {
    founders_ = std::min(kFounders, options_.nodes);
    network_->set_seeds(founders_);
  }
  host_hooks_ = stream(16).chance(1, kHostHooksOneIn);
  lease_ = kLeases[stream(10).below(std::size(kLeases))];
  auto files = std::make_shared<SimCheckpoints::Files>();
  Rng checkpoints = stream(12);
  own_directories_ = options_.nodes > 1 && checkpoints.chance(1, 2);
  restore_wait_ = kRestoreWaits[checkpoints.below(std::size(kRestoreWaits))];
  ticks_.assign(options_.nodes, kNever);
  for (std::size_t i = 0; i < options_.nodes; ++i) {
    if (own_directories_ && i > 0) files = std::make_shared<SimCheckpoints::Files>();
    files->number = own_directories_ ? i : 0;
    hosts_.push_back(std::make_unique<SimHost>(*this, i, files));
    if (network_) network_->add_host();
  }
  checkers_ = all_checkers(*this);
  std::erase_if(checkers_, [&](const auto& checker) { return checker->name() == options_.without; });
}

ClusterWorld::~ClusterWorld() = default;

std::vector<std::string> ClusterWorld::checker_names() const {
  std::vector<std::string> names;
  for (const CheckerList* list : std::initializer_list<const CheckerList*>{&checkers_, &hosts_.front()->checkers_})
    for (const auto& checker : *list) names.emplace_back(checker->name());
  std::sort(names.begin(), names.end());
  return names;
}

std::string ClusterWorld::node_rule() const { return is_world_rule(options_.broken_rule) ? "" : options_.broken_rule; }

void ClusterWorld::count_start(const SimShim& shim) {
  ++attempts_;
  Generation& newest = generations_[shim.spec.id.job];
  if (newest != 0 && shim.spec.id.generation > newest) ++recoveries_;
  newest = std::max(newest, shim.spec.id.generation);
}

void ClusterWorld::watch_end(const SimShim& shim) {
  if (!tasks_leave_ || shim.exit->success()) return;
  watched_away_.insert(shim.spec.id);
  for (const auto& host : hosts_) host->tasks().watched_ended(shim.spec.id);
}

RunResult ClusterWorld::run() {
  // Users have as long a time, however the cluster begins.
  const Instant end_of_run = Instant{} + std::max(options_.duration, kShortest) + forming_takes() - kForming;
  busy_until_ = end_of_run - kConverge - kEnd;
  Chaos chaos(*this, options_.faults, stream(6), busy_until_);
  start_agents();
  if (!alone()) run_until(Instant{} + forming_takes());
  // With random numbers of its own: a run without it is as it was.
  Rng losses = stream(14);
  const bool loses = options_.faults.has(Fault::quorum_lost) && hosts() >= kFewestVoters && losses.chance(1, kQuorumLostOneIn);
  if (loses) client_->set_keeping();
  Rng stops = stream(17);
  tasks_leave_ = options_.faults.has(Fault::host_stop) && !alone() && stops.chance(1, kHostStopsOneIn);
  if (tasks_leave_) client_->set_leaving();
  Rng upgrades = stream(18);
  const bool upgraded = options_.faults.has(Fault::upgrade) && upgrades.chance(1, kUpgradedOneIn);
  if (upgraded) client_->set_rehearsing();
  Rng aways = stream(19);
  const bool elastic = options_.faults.has(Fault::host_away) && hosts() >= kFewestVoters && aways.chance(1, kElasticOneIn);
  if (elastic) client_->set_elastic(placeable(hosts()));
  users_act_ = true;
  observe_later();
  act_later();
  chaos.begin();
  if (tasks_leave_) chaos.stop_hosts(stops);
  if (elastic) chaos.lose_hosts(aways);
  if (upgraded) {
    upgrades_ = std::make_unique<Upgrades>(*this, upgrades, busy_until_);
    upgrades_->begin();
  }
  if (loses) {
    quorum_loss_ = std::make_unique<QuorumLoss>(*this, losses, busy_until_);
    quorum_loss_->begin();
  }
  run_until(busy_until_);
  begin_calm();
  run_until(busy_until_ + kConverge);
  client_->observe();
  run_until(now() + kAnswerTime);
  if (!violation_) tell_checkers([](Checker& checker) { checker.at_rest(); });
  client_->cancel_all();
  run_until(end_of_run);
  client_->observe();
  run_until(now() + kAnswerTime);
  if (!violation_) tell_checkers([](Checker& checker) { checker.at_end(); });
  RunResult result;
  result.violation = violation_;
  result.trace_hash = trace_.hash();
  result.events = trace_.events();
  result.jobs = book_.jobs().size();
  result.attempts = attempts_;
  result.recoveries = recoveries_;
  for (const auto& host : hosts_) {
    result.lives += host->lives();
    result.commits += host->disk().commits();
  }
  result.covered = now() - Instant{};
  return result;
}

void ClusterWorld::tell_checkers(const std::function<void(Checker&)>& tell) {
  for (const auto& checker : checkers_) tell(*checker);
  for (const auto& host : hosts_)
    for (const auto& checker : host->checkers_) tell(*checker);
}

void ClusterWorld::begin_calm() {
  calm_ = true;
  users_act_ = false;
  for (const auto& host : hosts_) {
    host->storage().set_full(false);
    host->storage().set_slowest(SimDisk::kUsualCommit);
    host->tasks().set_calm();
  }
  if (network_) network_->heal();
  if (upgrades_) upgrades_->finish();
  trace_.note(now(), "calm");
  undrain_later();
}

Duration ClusterWorld::forming_takes() const { return (founders_ > 0 ? kFoundersTake : kForming) + (many() ? kFormingOfMany : Duration{}); }

void ClusterWorld::start_agents() {
  if (founders_ > 0) return begin_forming();
  for (const auto& host : hosts_) host->start_agent();
}

void ClusterWorld::begin_forming() {
  Rng rng = stream(10);
  const auto within = [&rng](Duration most) {
    return Duration(static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(most.count()))));
  };
  for (const auto& host : hosts_) timeline_.after(within(kStartedWithin), [&host] { host->start_agent(); });
  const std::size_t victim = rng.below(founders_);
  const Duration at = within(kKilledWithin), back_after = within(kBackWithin);
  timeline_.after(at, [this, victim, back_after] { hosts_[victim]->kill_agent(back_after); });
}

// What is due first: something in the world, something on the network, or the wish of an agent to be called.
void ClusterWorld::run_until(Instant end) {
  while (!violation_) {
    const Instant next = timeline_.next(), mail = network_ ? network_->next() : kNever;
    const auto due = std::ranges::min_element(ticks_);
    const Instant tick = *due;
    if (std::min({next, mail, tick}) > end) break;
    if (mail < next && mail < tick) {
      network_->run_next();
    } else if (tick > next) {
      timeline_.run_next();
    } else {
      timeline_.advance_to(std::max(tick, now()));
      hosts_[static_cast<std::size_t>(due - ticks_.begin())]->tick();
    }
  }
  if (!violation_) timeline_.advance_to(end);
}

std::size_t ClusterWorld::newest_host() const {
  std::size_t newest = 0;
  std::uint64_t index = 0;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (!hosts_[i]->agent_runs() || hosts_[i]->ledger_index() <= index) continue;
    newest = i;
    index = hosts_[i]->ledger_index();
  }
  return newest;
}

bool ClusterWorld::all_reported() const {
  const bool idle = std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return host->disk().idle(); });
  return idle && (alone() || (calm_ && now() - std::max(busy_until_, undisturbed_since_) > kAllReported));
}

const cluster::Ledger& ClusterWorld::ledger() const {
  static const cluster::Ledger kNone;
  const SimHost* newest = nullptr;
  for (const auto& host : hosts_)
    if (host->node() != nullptr && !host->of_older_history() && (newest == nullptr || host->ledger_index() > newest->ledger_index()))
      newest = host.get();
  return newest == nullptr ? kNone : newest->node()->ledger();
}

Duration ClusterWorld::takes_effect() const { return alone() ? kTakesEffect : kTakesEffectAmongSeveral; }

void ClusterWorld::cluster_disturbed_until(Instant until) {
  if (!alone()) undisturbed_since_ = std::max(undisturbed_since_, until + kAmends);
}

void ClusterWorld::note(std::size_t host, std::string_view text) {
  trace_.at_host(host);
  trace_.note(now(), text);
}

// No founder loses its disk here and no operator goes without one, so the first cluster is the only one.
void ClusterWorld::entered(std::size_t host, const MemberId& cluster) {
  if (cluster_.none()) cluster_ = cluster;
  if (!cluster.none() && cluster != cluster_)
    violation("never_two_clusters", hosts_[host]->name() + " enters another cluster than the first");
}

// The survivor's disk has what recover-quorum wrote, one entry and no more: what others have behind the last before it is void. So is what
// they have in place of entries that it had not known to be committed (five hosts, seed 152).
void ClusterWorld::look_at_history(std::size_t host) {
  const raft::Stored& replica = hosts_[host]->disk().stored().replica;
  if (replica.hard.history.number <= history_) return;
  CHECK(!replica.log.empty());
  history_ = replica.hard.history.number;
  note(host, "history " + std::to_string(history_) + " begins");
  const std::uint64_t last = std::min(replica.log.back().index - 1, hosts_[host]->ledger_index());
  tell_checkers([last](Checker& checker) { checker.undone(last); });
}

void ClusterWorld::told(const SentRequest& sent, const wire::Message& message) {
  if (quorum_loss_) quorum_loss_->answered(sent, message);
  const bool changes =
      sent.type == wire::MessageType::submit || sent.type == wire::MessageType::action || sent.type == wire::MessageType::drain;
  if (!changes && !sent.observer) return;
  acknowledged_ = std::max(acknowledged_, sent.index);
  for (std::size_t i = 0; sent.index == 0 && i < hosts_.size(); ++i)  // another agent's answer, passed on
    acknowledged_ = std::max(acknowledged_, hosts_[i]->ledger_index());
}

void ClusterWorld::observe_later() {
  timeline_.after(kLookEvery, [this] {
    if (!users_rest_) client_->observe();
    observe_later();
  });
}

void ClusterWorld::drain(std::size_t host, bool on, Duration within) {
  if (on) drained_.insert(host);
  client_->drain({hosts_[host]->name(), "sim", on, std::chrono::duration_cast<std::chrono::milliseconds>(within).count()});
}

// Repeats every undrain until it is known to be done. An operator also sees a drain that took effect after the undrain
// that was sent after it (seed 1782 of three hosts).
void ClusterWorld::undrain_later() {
  const cluster::Ledger& seen = ledger();
  for (const auto& [node, drain] : seen.state().drained)
    for (std::size_t i = 0; i < hosts_.size(); ++i)
      if (hosts_[i]->name() == drain.name) drained_.insert(i);
  for (const std::size_t host : drained_) drain(host, false, {});
  if (!drained_.empty()) timeline_.after(kLookEvery, [this] { undrain_later(); });
}

void ClusterWorld::act_later() {
  timeline_.after(Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(kLongestIdle.count())) + 1)), [this] {
    if (!users_act_) return;
    if (!users_rest_) client_->act();
    act_later();
  });
}

void ClusterWorld::violation(std::string_view invariant, std::string what) {
  if (violation_) return;
  violation_ = Violation{std::string(invariant), std::move(what), now()};
}

}  // namespace dtrain::sim
