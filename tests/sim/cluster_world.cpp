#include "tests/sim/cluster_world.h"

#include <algorithm>
#include <cstdio>

#include "common/base/check.h"
#include "tests/sim/chaos.h"
#include "tests/sim/job_factory.h"

namespace dtrain::sim {
namespace {

constexpr Duration kLookEvery = 4s, kLongestIdle = 4s, kReplyTime = 1ms, kAnswerTime = 100ms;
constexpr Duration kRestartAfterDiskError = 1s;
constexpr std::uint32_t kTicksInPlace = 64;   // more Ticks without time going on: the agent spins

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

// Independent streams of one seed, so that a change in one part of the world does not reshuffle the others.
Rng stream(std::uint64_t seed, std::uint64_t which) { return Rng(seed * 0x9e3779b97f4a7c15ull + which); }

// What Node cannot break, the world breaks: each of these is a promise of the ring around Node.
constexpr std::string_view kWorldRules[] = {"commit-durable", "one-completion", "exit-told", "staging-told",
                                            "end-is-true", "new-ports", "own-gpu", "disk-failure-told"};
constexpr std::string_view kNodeRules[] = {"completion-durable", "start-order", "budget", "kill-before-next-generation",
                                           "ack-after-commit", "orphan-kill", "verify-before-restore"};

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
    : options_(std::move(options)), rng_(stream(options_.seed, 1)), trace_(options_.trace) {
  const auto to_node = [this](node::Event event) { post(std::move(event)); };
  disk_ = std::make_unique<SimDisk>(timeline_, stream(options_.seed, 2), to_node,
                                    [this](std::string what) { violation("log_without_gaps", std::move(what)); });
  checkpoints_ = std::make_unique<SimCheckpoints>(timeline_, stream(options_.seed, 3), to_node);
  SimRunner::Observer observer;
  observer.started = [this](const SimShim& shim) {
    ++attempts_;
    Generation& newest = generations_[shim.spec.id.job];
    if (newest != 0 && shim.spec.id.generation > newest) ++recoveries_;
    newest = std::max(newest, shim.spec.id.generation);
    for (const auto& checker : checkers_) checker->process_started(shim);
  };
  observer.ended = [this](const SimShim& shim) {
    for (const auto& checker : checkers_) checker->process_ended(shim);
  };
  observer.checkpoint = [this](const SimShim& shim, std::int64_t step, bool torn, bool rotten) {
    const auto dir = shim.spec.env.find("DTRAIN_CHECKPOINT_DIR");
    if (dir != shim.spec.env.end())
      checkpoints_->write(dir->second, shim.spec.id.job, shim.spec.id.generation, step, torn, rotten);
  };
  runner_ = std::make_unique<SimRunner>(timeline_, stream(options_.seed, 4), to_node, observer);
  runner_->set_wall([this] { return clock_.read(timeline_.now()).wall; });
  SimClient::Hooks hooks;
  hooks.agent_listens = [this] { return node_ != nullptr; };
  hooks.post = to_node;
  hooks.replied = [this](const SentRequest& sent, const wire::Message& message) {
    for (const auto& checker : checkers_) checker->on_reply(sent, message);
  };
  hooks.looked = [this](const wire::JobsReply& jobs) {
    book_.seen(jobs, timeline_.now());
    for (const auto& checker : checkers_) checker->on_jobs(jobs);
  };
  hooks.complain = [this](std::string_view invariant, std::string what) { violation(invariant, std::move(what)); };
  client_ = std::make_unique<SimClient>(timeline_, stream(options_.seed, 5), book_, hooks);
  if (options_.trace)
    log_ = std::make_unique<PrintedLog>(timeline_);
  else
    log_ = std::make_unique<QuietLog>();
  checkers_ = all_checkers(*this);
  if (breaks("commit-durable")) disk_->set_forgetful();
  if (breaks("end-is-true")) runner_->set_lying();
}

ClusterWorld::~ClusterWorld() = default;

RunResult ClusterWorld::run() {
  const Instant end_of_run = Instant{} + std::max(options_.duration, kShortest);
  busy_until_ = end_of_run - kConverge - kEnd;
  Chaos chaos(*this, options_.faults, stream(options_.seed, 6), busy_until_);
  start_agent();
  users_act_ = true;
  observe_later();
  act_later();
  chaos.begin();
  run_until(busy_until_);
  begin_calm();
  run_until(busy_until_ + kConverge);
  client_->observe();
  run_until(now() + kAnswerTime);
  if (!violation_)
    for (const auto& checker : checkers_) checker->at_rest();
  client_->cancel_all();
  run_until(end_of_run);
  client_->observe();
  run_until(now() + kAnswerTime);
  if (!violation_)
    for (const auto& checker : checkers_) checker->at_end();
  RunResult result;
  result.violation = violation_;
  result.trace_hash = trace_.hash();
  result.events = trace_.events();
  result.jobs = book_.jobs().size();
  result.attempts = attempts_;
  result.recoveries = recoveries_;
  result.lives = life_;
  result.commits = disk_->commits();
  result.covered = now() - Instant{};
  return result;
}

void ClusterWorld::begin_calm() {
  calm_ = true;
  users_act_ = false;
  disk_->set_full(false);
  disk_->set_slowest(SimDisk::kUsualCommit);
  runner_->set_calm();
  trace_.note(now(), "calm");
}

void ClusterWorld::run_until(Instant end) {
  while (!violation_) {
    const Instant next = timeline_.next();
    const Instant tick = node_ != nullptr && !paused_ ? clock_.to_world(node_->deadline()) : kNever;
    if (std::min(next, tick) > end) break;
    if (tick > next) {
      timeline_.run_next();
      continue;
    }
    timeline_.advance_to(std::max(tick, now()));
    ticks_in_place_ = last_tick_ == now() ? ticks_in_place_ + 1 : 0;
    last_tick_ = now();
    if (ticks_in_place_ > kTicksInPlace) return violation("no_spinning", "the agent's deadline does not move on");
    step(node::Tick{});
  }
  if (!violation_) timeline_.advance_to(end);
}

void ClusterWorld::observe_later() {
  timeline_.after(kLookEvery, [this] {
    client_->observe();
    observe_later();
  });
}

void ClusterWorld::act_later() {
  timeline_.after(Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(kLongestIdle.count())) + 1)), [this] {
    if (!users_act_) return;
    client_->act();
    act_later();
  });
}

node::Options ClusterWorld::node_options() const {
  node::Options options;
  options.snapshot_every = 50;  // a run is short: snapshots must happen in it
  options.cluster_name = "sim";
  options.version = "sim";
  if (!is_world_rule(options_.broken_rule)) options.broken_rule = options_.broken_rule;
  return options;
}

node::Started ClusterWorld::facts() const {
  node::Started started;
  started.life = life_;
  started.facts.id = "0123456789abcdef0123456789abcdef";
  started.facts.name = "sim0";
  started.facts.boot_id = "boot-" + std::to_string(boot_);
  started.facts.address = started.facts.task_address = "127.0.0.1";
  started.facts.task_interface = "lo";
  started.facts.cpu_millis = kHostCpuMillis;
  started.facts.memory_bytes = kHostMemoryBytes;
  for (std::uint32_t i = 0; i < kHostGpus; ++i) {
    node::NodeFacts::Gpu gpu;
    gpu.index = i;
    gpu.pci = "0000:0" + std::to_string(i + 1) + ":00.0";
    gpu.pretended = true;
    started.facts.gpus.push_back(gpu);
  }
  started.replica = disk_->stored().replica;
  started.task_records = disk_->stored().task_records;
  started.shims = runner_->found();
  return started;
}

std::unique_ptr<node::Node> ClusterWorld::replayed() const {
  auto node = std::make_unique<node::Node>(node_options(), stream(options_.seed, 100 + life_), *log_);
  std::vector<node::Effect> ignored;
  node->step(clock_.read(now()), facts(), ignored);
  return node;
}

void ClusterWorld::start_agent() {
  ++life_;
  paused_ = false;
  held_.clear();
  undisturbed_since_ = std::max(undisturbed_since_, now());
  node_ = std::make_unique<node::Node>(node_options(), stream(options_.seed, 100 + life_), *log_);
  step(facts());
}

void ClusterWorld::post(node::Event event) {
  if (node_ == nullptr) return;   // nobody listens
  if (breaks("exit-told") && std::holds_alternative<node::AttemptExited>(event) && rng_.chance(1, 8)) return;
  if (breaks("staging-told") && std::holds_alternative<node::Staged>(event) && rng_.chance(1, 8)) return;
  if (breaks("one-completion") && !paused_ && std::holds_alternative<node::ShimUp>(event) && rng_.chance(1, 8)) step(event);
  if (paused_)
    held_.push_back(std::move(event));
  else
    step(event);
}

void ClusterWorld::step(const node::Event& event) {
  CHECK(!stepping_);              // effects only schedule; nothing answers within the same turn
  if (violation_) return;
  stepping_ = true;
  trace_.event(now(), event);
  for (const auto& checker : checkers_) checker->on_event(event);
  effects_.clear();
  const auto* failed = std::get_if<node::PersistFailed>(&event);
  if (failed != nullptr && breaks("disk-failure-told"))
    node_->step(clock_.read(now()), node::Persisted{failed->ticket}, effects_);
  else
    node_->step(clock_.read(now()), event, effects_);
  for (const node::Effect& effect : effects_) {
    trace_.effect(now(), effect);
    for (const auto& checker : checkers_) checker->on_effect(effect);
    perform(effect);
  }
  stepping_ = false;
  // The agent ends itself when its disk fails; somebody starts it again. The tasks run on.
  if (failed != nullptr)
    timeline_.after(kReplyTime, [this, life = life_] {
      if (node_ != nullptr && life == life_) agent_lost(false, kRestartAfterDiskError);
    });
}

void ClusterWorld::perform(const node::Effect& effect) {
  const auto soon = [this](node::Event event) {
    timeline_.after(kReplyTime, [this, life = life_, event = std::move(event)] {
      if (life == life_) post(event);
    });
  };
  std::visit(
      [&](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, node::Persist>) {
          disk_->perform(e);
        } else if constexpr (std::is_same_v<E, node::Reply>) {
          timeline_.after(kReplyTime, [this, connection = e.connection, body = e.body] { client_->receive(connection, body); });
        } else if constexpr (std::is_same_v<E, node::CloseConnection>) {
          timeline_.after(kReplyTime, [this, connection = e.connection] { client_->closed(connection); });
        } else if constexpr (std::is_same_v<E, node::WriteBlob>) {
          if (e.last) soon(node::BlobWritten{e.connection, e.request, e.digest});
        } else if constexpr (std::is_same_v<E, node::OpenLog> || std::is_same_v<E, node::UpdateLog>) {
          // Streams pass Node by; the users hang up by themselves.
        } else if constexpr (std::is_same_v<E, node::OpenExec>) {
          timeline_.after(kReplyTime, [this, connection = e.connection] { client_->closed(connection); });
        } else if constexpr (std::is_same_v<E, node::RunHook>) {
          soon(node::HookEnded{e.token, {}});
        } else if constexpr (std::is_same_v<E, node::WatchCheckpoints> || std::is_same_v<E, node::ScanCheckpoints> ||
                             std::is_same_v<E, node::VerifyCheckpoint> || std::is_same_v<E, node::QuarantineCheckpoint> ||
                             std::is_same_v<E, node::DeleteCheckpoint>) {
          checkpoints_->perform(e);
        } else if constexpr (std::is_same_v<E, node::LaunchShim>) {
          node::LaunchShim launch = e;
          if (breaks("new-ports") && launch.spec.port != 0) launch.spec.port = static_cast<std::uint16_t>(20000 + launch.spec.id.task.index);
          if (breaks("own-gpu")) launch.spec.gpu_ids.assign(1, "0");
          runner_->perform(launch);
        } else if constexpr (std::is_same_v<E, node::SaveMembers>) {
          soon(node::MembersSaved{e.ticket, {}});
        } else if constexpr (std::is_same_v<E, gossip::Send> || std::is_same_v<E, gossip::KeepLinks> ||
                             std::is_same_v<E, gossip::CheckGone> || std::is_same_v<E, gossip::ResolveSeeds> ||
                             std::is_same_v<E, node::SendLog> || std::is_same_v<E, node::KnowMember> || std::is_same_v<E, node::EnterCluster>) {
          // One node alone: nobody hears it. Many nodes are the world `membership`.
        } else {
          runner_->perform(e);
        }
      },
      effect);
}

void ClusterWorld::kill_agent(Duration back_after) {
  if (node_ != nullptr) agent_lost(false, back_after);
}

void ClusterWorld::reboot(Duration back_after) { agent_lost(true, back_after); }

void ClusterWorld::agent_lost(bool host_too, Duration back_after) {
  const std::uint64_t start = ++agent_starts_;   // an earlier plan to start it again is void
  if (node_ != nullptr)
    for (const auto& checker : checkers_) checker->agent_dies();
  trace_.note(now(), host_too ? "host goes down" : "agent dies");
  node_.reset();
  held_.clear();
  paused_ = false;
  book_.agent_died(host_too);
  client_->agent_died();
  disk_->agent_died();
  checkpoints_->agent_died();
  runner_->agent_died();
  if (host_too) {
    runner_->host_died();
    ++boot_;
  }
  undisturbed_since_ = std::max(undisturbed_since_, now() + back_after);
  timeline_.after(back_after, [this, start, host_too] {
    if (start != agent_starts_) return;
    if (host_too) clock_.reboot(now());
    start_agent();
  });
}

void ClusterWorld::pause_agent(Duration length) {
  if (node_ == nullptr || paused_) return;
  paused_ = true;
  undisturbed_since_ = std::max(undisturbed_since_, now() + length);
  timeline_.after(length, [this, life = life_] {
    if (life != life_ || !paused_) return;
    paused_ = false;
    // What came meanwhile is delivered in order, before anything new.
    const std::deque<node::Event> held = std::exchange(held_, {});
    for (const node::Event& event : held)
      if (node_ != nullptr && life == life_) step(event);
  });
}

void ClusterWorld::violation(std::string_view invariant, std::string what) {
  if (violation_) return;
  violation_ = Violation{std::string(invariant), std::move(what), now()};
}

}  // namespace dtrain::sim
