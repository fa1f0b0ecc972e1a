#include "tests/sim/sim_host.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"
#include "tests/sim/cluster_world.h"
#include "tests/sim/job_factory.h"

namespace dtrain::sim {
namespace {

constexpr Duration kRestartAfterDiskError = 1s;
constexpr Duration kAgentGrace = 20s;  // longer than any agent is away by itself
constexpr Duration kSlowestHook = 2s;
constexpr Duration kGoodbye = 200ms;  // of an agent that is stopped
constexpr std::uint64_t kHookFailsOneIn = 6;
constexpr std::uint32_t kTicksInPlace = 64;  // more Ticks without time going on: the agent spins
// Each host draws from streams of its own; those of the first are as they were when there was but one.
constexpr std::uint64_t kStreams = 1'000'000;
constexpr std::uint64_t kCopiesCompareEvery = 8;     // entries: a run has some hundred
constexpr std::uint64_t kSnapshotEvery = 50;         // a run is short: snapshots must happen in it
constexpr std::uint64_t kSnapshotEveryOfMany = 500;  // there are more entries, and more copies that write one
constexpr MemberId kCluster{0xc1, 0x57e2};

std::string host_id(std::size_t number) {
  constexpr std::string_view kDigits = "fedcba9876543210";
  std::string id = "0123456789abcdef0123456789abcdef";
  id.back() = kDigits[number % kDigits.size()];
  if (number >= kDigits.size()) id[id.size() - 2] = kDigits[kDigits.size() - 1 - number / kDigits.size()];
  return id;
}
static_assert(kMostHosts <= 14 * 16, "host_id() of the last is that of another");

// The first hyperthreads of all cores come before the second ones, as on most machines.
std::vector<task::HostCpu> host_cpus() {
  constexpr std::uint32_t kCores = kHostCpus / 2, kCoresPerNode = kCores / 2;
  std::vector<task::HostCpu> cpus;
  for (std::uint32_t i = 0; i < kHostCpus; ++i) cpus.push_back({i, i % kCores, static_cast<std::int32_t>(i % kCores / kCoresPerNode)});
  return cpus;
}

std::string host_name(std::size_t number) { return "sim" + std::to_string(number); }

}  // namespace

SimHost::SimHost(ClusterWorld& world, std::size_t number, std::shared_ptr<SimCheckpoints::Files> files)
    : world_(world), number_(number), name_(host_name(number)), hooks_(world.stream(number * kStreams + 50)) {
  const auto to_node = [this](node::Event event) { post(std::move(event)); };
  const std::uint64_t streams = number_ * kStreams;
  disk_ = std::make_unique<SimDisk>(world_.timeline_, world_.stream(streams + 2), to_node,
                                    [this](std::string what) { world_.violation("log_without_gaps", std::move(what)); });
  checkpoints_ = std::make_unique<SimCheckpoints>(world_.timeline_, world_.stream(streams + 3), to_node, std::move(files));
  runner_ = std::make_unique<SimRunner>(world_.timeline_, world_.stream(streams + 4), to_node, observer());
  runner_->set_wall([this] { return clock_.read(world_.now()).wall; });
  runner_->set_boot_clock([this] { return clock_.read(world_.now()).boot; }, [this](Instant boot) { return clock_.to_world(boot); });
  runner_->set_watched([this](const AssignmentId& id) { return world_.watched_away_.contains(id); });
  if (world_.breaks("commit-durable")) disk_->set_forgetful();
  if (world_.breaks("end-is-true")) runner_->set_lying();
  checkers_ = all_host_checkers(world_, number_);
}

SimRunner::Observer SimHost::observer() {
  SimRunner::Observer observer;
  observer.started = [this](const SimShim& shim) {
    world_.count_start(shim);
    for (const auto* list : {&world_.checkers_, &checkers_})
      for (const auto& checker : *list) checker->process_started(shim);
    world_.watch_start(shim);
  };
  observer.thawed = [this](const SimShim& shim) {
    for (const auto* list : {&world_.checkers_, &checkers_})
      for (const auto& checker : *list) checker->process_thawed(shim);
  };
  observer.ended = [this](const SimShim& shim) {
    for (const auto* list : {&world_.checkers_, &checkers_})
      for (const auto& checker : *list) checker->process_ended(shim);
    world_.watch_end(shim);
  };
  observer.checkpoint = [this](const SimShim& shim, std::int64_t step, bool torn, bool rotten) {
    const auto dir = shim.spec.env.find("DTRAIN_CHECKPOINT_DIR");
    if (dir != shim.spec.env.end()) checkpoints_->write(dir->second, shim.spec.id.job, shim.spec.id.generation, step, torn, rotten);
  };
  return observer;
}

node::NodeOptions SimHost::node_options() const {
  node::NodeOptions options;
  options.snapshot_every = world_.many() ? kSnapshotEveryOfMany : kSnapshotEvery;
  if (world_.options_.whole_log) options.snapshot_every = std::numeric_limits<std::uint64_t>::max();
  options.cluster_name = "sim";
  options.version = "sim";
  options.access.fallback = node::Role::submit;
  options.packages_are_given = true;
  options.broken_rule = world_.node_rule();
  options.ledger_knows = knows_;
  options.compare_every = world_.options_.copies_compare ? kCopiesCompareEvery : std::numeric_limits<std::uint64_t>::max();
  // Of a run alone, so that also cuts and pauses of some seconds outlast them.
  options.lease = world_.lease();
  options.agent_grace = kAgentGrace;
  options.restore_wait = world_.restore_wait();
  if (world_.host_hooks()) {
    options.prolog = "/prolog";
    options.epilog = "/epilog";
  }
  return options;
}

node::MemberStart SimHost::member_start() const {
  node::MemberStart start;
  if (world_.alone()) return start;
  start.network = true;
  const bool founder = number_ < world_.founders();
  start.holds_ledger = number_ == 0 && !founder && disks_ == 1;
  start.endpoint = ClusterNetwork::endpoint(number_);
  if (!member_record_.empty()) start.record = gossip::MemberRecord::decode(member_record_).value_or(gossip::MemberRecord{});
  start.found = start.holds_ledger && start.record.cluster_id.none();
  start.new_cluster_id = kCluster;
  if (founder) {
    for (std::size_t i = 0; i < world_.founders(); ++i) start.founders.push_back(host_name(i));
    start.founder = name_;
    const std::string& promised = disk_->stored().formation;
    if (!promised.empty()) start.formation = *cluster::formation::Record::decode(promised);
  }
  if (number_ != 0 || founder || disks_ != 1) {
    start.seeds = {"sim0"};
    start.waiting_for = "the cluster of --join to admit this node";
  }
  return start;
}

// A lost disk means another member.
std::string SimHost::id() const {
  std::string id = host_id(number_);
  id.front() = static_cast<char>('0' + disks_ - 1);
  return id;
}

bool SimHost::votes_in(const wire::Configuration& configuration) const {
  const auto self = MemberId::parse(id());
  return self && configuration.votes(*self);
}

// What an older history says is void, and who has it gives it up.
bool SimHost::of_older_history() const {
  const std::uint64_t own = disk_->stored().replica.hard.history.number;
  return own != 0 && own < world_.history_;
}

std::uint64_t SimHost::ledger_index() const { return node_ == nullptr || of_older_history() ? 0 : node_->ledger_index(); }

node::Started SimHost::facts() const {
  node::Started started;
  started.life = life_;
  started.facts.id = id();
  started.facts.name = name_;
  started.facts.boot_id = (number_ == 0 ? "boot-" : name_ + "-boot-") + std::to_string(boot_);
  started.facts.address = started.facts.task_address = world_.alone() ? "127.0.0.1" : ClusterNetwork::endpoint(number_).ip;
  started.facts.task_interface = "lo";
  started.facts.cpu_millis = kHostCpuMillis;
  started.facts.memory_bytes = kHostMemoryBytes;
  started.facts.cpus = host_cpus();
  for (std::uint32_t i = 0; i < kHostGpus; ++i) {
    node::NodeFacts::Gpu gpu;
    gpu.index = i;
    gpu.pci = "0000:0" + std::to_string(i + 1) + ":00.0";
    gpu.vendor = "nvidia";
    gpu.minor = static_cast<std::int32_t>(i);
    started.facts.gpus.push_back(gpu);
  }
  started.replica = disk_->stored().replica;
  started.task_records = disk_->stored().task_records;
  started.shims = runner_->found();
  started.members = member_start();
  return started;
}

std::unique_ptr<node::Node> SimHost::make_node() const {
  return std::make_unique<node::Node>(node_options(), world_.stream(number_ * kStreams + 100 + life_), *world_.log_);
}

std::unique_ptr<node::Node> SimHost::replayed() const {
  auto node = make_node();
  std::vector<node::Effect> ignored;
  node->step(clock_.read(world_.now()), facts(), ignored);
  return node;
}

Instant SimHost::undisturbed_since() const { return std::max(undisturbed_since_, world_.undisturbed_since()); }

void SimHost::start_agent() {
  ++life_;
  paused_ = false;
  held_.clear();
  disturbed_until(world_.now());
  node_ = make_node();
  cluster_ = {};
  if (world_.network_) world_.network_->agent_starts(number_);
  step(facts());
  runner_->agent_started();
  if (world_.network_) step(node::NetworkUp{});
}

void SimHost::post(node::Event event) {
  if (node_ == nullptr) return;  // nobody listens
  const auto* about_log = std::get_if<node::LogReceived>(&event);
  if (about_log != nullptr && about_log->header.cluster != cluster_) return;  // the links drop it
  Rng& rng = world_.rng_;
  if (world_.breaks("exit-told") && std::holds_alternative<node::AttemptExited>(event) && rng.chance(1, 8)) return;
  if (world_.breaks("staging-told") && std::holds_alternative<node::Staged>(event) && rng.chance(1, 8)) return;
  if (world_.breaks("one-completion") && !paused_ && std::holds_alternative<node::ShimUp>(event) && rng.chance(1, 8)) step(event);
  if (paused_) held_.push_back(std::move(event));
  else step(event);
}

void SimHost::tick() {
  ticks_in_place_ = last_tick_ == world_.now() ? ticks_in_place_ + 1 : 0;
  last_tick_ = world_.now();
  if (ticks_in_place_ > kTicksInPlace) return world_.violation("no_spinning", "the agent's deadline does not move on");
  step(node::Tick{});
}

void SimHost::step(const node::Event& event) {
  CHECK(!stepping_);  // effects only schedule; nothing answers within the same turn
  if (world_.violation_) return;
  world_.look_at_history(number_);
  stepping_ = true;
  world_.trace_.at_host(number_);
  world_.trace_.event(world_.now(), event);
  for (const auto* list : {&world_.checkers_, &checkers_})
    for (const auto& checker : *list) checker->on_event(event);
  effects_.clear();
  const auto* failed = std::get_if<node::PersistFailed>(&event);
  if (failed != nullptr && world_.breaks("disk-failure-told"))
    node_->step(clock_.read(world_.now()), node::Persisted{failed->ticket}, effects_);
  else node_->step(clock_.read(world_.now()), event, effects_);
  for (const node::Effect& effect : effects_) {
    world_.trace_.effect(world_.now(), effect);
    for (const auto* list : {&world_.checkers_, &checkers_})
      for (const auto& checker : *list) checker->on_effect(effect);
    perform(effect);
  }
  for (const auto& checker : world_.checkers_) checker->stepped(number_);
  stepping_ = false;
  plan_tick();
  // The agent ends itself when its disk fails; somebody starts it again. The tasks run on.
  if (failed != nullptr)
    world_.timeline_.after(kReplyTime, [this, life = life_] {
      if (node_ != nullptr && life == life_) agent_lost(false, kRestartAfterDiskError);
    });
}

void SimHost::plan_tick() { world_.ticks_[number_] = agent_runs() ? clock_.to_world(node_->deadline()) : kNever; }

void SimHost::soon(node::Event event, Duration after) {
  world_.timeline_.after(after, [this, life = life_, event = std::move(event)] {
    if (life == life_) post(event);
  });
}

// Broken, every list of jobs is that of the agent's first answer.
std::string SimHost::answer_of(const node::Reply& reply) {
  if (!world_.breaks("lists-as-of-now")) return reply.body;
  auto message = wire::decode<wire::Message>(reply.body);
  if (!message || message->type != wire::MessageType::jobs) return reply.body;
  if (first_list_.empty()) first_list_ = message->payload;
  message->payload = first_list_;
  return wire::encode(*message);
}

void SimHost::perform(const node::Effect& effect) {
  SimClient& client = *world_.client_;
  Timeline& timeline = world_.timeline_;
  std::visit(
      [&](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, node::Persist>) {
          disk_->perform(e);
        } else if constexpr (std::is_same_v<E, node::Reply>) {
          if (world_.relays_.replied(number_, e)) return;
          timeline.after(kReplyTime, [&client, connection = e.connection, body = answer_of(e), index = ledger_index()] {
            client.receive(connection, body, index);
          });
        } else if constexpr (std::is_same_v<E, node::CloseConnection>) {
          timeline.after(kReplyTime, [&client, connection = e.connection] { client.closed(connection); });
        } else if constexpr (std::is_same_v<E, node::WriteBlob>) {
          if (e.own) world_.relays_.perform(number_, e);
          else if (e.last) soon(node::BlobWritten{e.connection, e.request, e.digest});
        } else if constexpr (std::is_same_v<E, node::DropBlob> || std::is_same_v<E, node::FindBlob> || std::is_same_v<E, node::SendBlob> ||
                             std::is_same_v<E, node::AcceptRelay> || std::is_same_v<E, node::CloseRelay> ||
                             std::is_same_v<E, node::SendCheckpoint> || std::is_same_v<E, node::WriteCheckpoint> ||
                             std::is_same_v<E, node::DropCheckpoint>) {
          world_.relays_.perform(number_, e);
        } else if constexpr (std::is_same_v<E, node::OpenLog> || std::is_same_v<E, node::UpdateLog>) {
          // Streams pass Node by; the users hang up by themselves.
        } else if constexpr (std::is_same_v<E, node::EndHooks>) {
          // They end at once.
        } else if constexpr (std::is_same_v<E, node::OpenRelay>) {
          const auto query = wire::decode<wire::Message>(e.query);
          const bool streams = query && (query->type == wire::MessageType::logs || query->type == wire::MessageType::exec);
          if (!streams) world_.relays_.perform(number_, e);
          else  // their bytes pass Node by
            soon(node::RelayEnded{e.part, node::RelayEnded::How::done, {}});
        } else if constexpr (std::is_same_v<E, node::SendRelay>) {
          // Between agents.
        } else if constexpr (std::is_same_v<E, node::Stage>) {
          if (e.package_digest.empty() || world_.alone()) runner_->perform(e);
          else world_.relays_.perform(number_, e);
        } else if constexpr (std::is_same_v<E, node::OpenExec>) {
          timeline.after(kReplyTime, [&client, connection = e.connection] { client.closed(connection); });
        } else if constexpr (std::is_same_v<E, node::RunHook>) {
          if (e.user) soon(node::HookEnded{e.token, {}});
          else run_host_hook(e);
        } else if constexpr (std::is_same_v<E, node::Examine>) {
          soon(node::Examined{e.token, {}});
        } else if constexpr (std::is_same_v<E, node::WatchCheckpoints> || std::is_same_v<E, node::ScanCheckpoints> ||
                             std::is_same_v<E, node::VerifyCheckpoint> || std::is_same_v<E, node::EndVerification> ||
                             std::is_same_v<E, node::QuarantineCheckpoint> || std::is_same_v<E, node::DeleteCheckpoint>) {
          checkpoints_->perform(e);
        } else if constexpr (std::is_same_v<E, node::LaunchShim>) {
          node::LaunchShim launch = e;
          if (world_.breaks("new-ports") && launch.spec.port != 0)
            launch.spec.port = static_cast<std::uint16_t>(20000 + launch.spec.id.task.index);
          if (world_.breaks("own-gpu")) launch.spec.gpu_ids.assign(1, "0");
          runner_->perform(launch);
        } else if constexpr (std::is_same_v<E, node::SaveMembers>) {
          timeline.after(kReplyTime, [this, life = life_, e] {
            if (life != life_ || node_ == nullptr) return;
            member_record_ = e.record;
            post(node::MembersSaved{e.ticket, {}});
          });
        } else if constexpr (std::is_same_v<E, gossip::Send> || std::is_same_v<E, gossip::KeepLinks> ||
                             std::is_same_v<E, gossip::CheckGone> || std::is_same_v<E, gossip::ResolveSeeds> ||
                             std::is_same_v<E, node::SendLog>) {
          if (world_.network_) world_.network_->perform(number_, e);
        } else if constexpr (std::is_same_v<E, node::SendFormation>) {
          for (std::size_t to = 0; world_.network_ && to < world_.founders(); ++to)
            if (e.founder == host_name(to)) world_.network_->perform(number_, to, e);
        } else if constexpr (std::is_same_v<E, node::EnterCluster>) {
          cluster_ = e.cluster;
          world_.entered(number_, cluster_);
        } else if constexpr (std::is_same_v<E, node::KnowMember>) {
          // Whose key the links believe.
        } else {
          runner_->perform(e);
        }
      },
      effect);
}

void SimHost::run_host_hook(const node::RunHook& e) {
  node::HookEnded ended{e.token, {}};
  const bool fails = hooks_.chance(1, kHookFailsOneIn);
  if (fails && world_.hooks_may_fail()) ended.exit.code = 3;
  soon(std::move(ended), Duration(static_cast<std::int64_t>(hooks_.below(static_cast<std::uint64_t>(kSlowestHook.count())))));
}

void SimHost::kill_agent(Duration back_after) {
  if (node_ != nullptr) agent_lost(false, back_after);
}

void SimHost::reboot(Duration back_after) {
  if (!away_) agent_lost(true, back_after);
}

// systemd stops the agent first (After= of its unit), and the tasks run on until theirs is stopped.
void SimHost::stop(Duration tasks_have, Duration back_after) {
  if (node_ == nullptr || paused_ || away_) return;
  disturbed_until(world_.now() + kGoodbye + tasks_have);
  world_.cluster_disturbed_until(world_.now() + kGoodbye + tasks_have);
  post(node::Stopping{});
  world_.timeline_.after(kGoodbye, [this, life = life_, tasks_have, back_after] {
    if (node_ == nullptr || life != life_) return;
    end_agent(false);
    runner_->host_stops();
    world_.timeline_.after(tasks_have, [this, start = agent_starts_, back_after] {
      if (start == agent_starts_) agent_lost(true, back_after);
    });
  });
}

void SimHost::go_away(bool host_too) {
  away_ = true;
  down_ = host_too;
  end_agent(host_too);
}

void SimHost::come_back() {
  away_ = false;
  if (down_) clock_.reboot(world_.now());
  start_agent();
}

void SimHost::lose_disk() {
  CHECK(away_ && down_);
  ++disks_;
  disk_->lose();
  runner_->lose_files();
  if (world_.own_directories_) checkpoints_->lose();
  member_record_.clear();
}

void SimHost::end_agent(bool host_too) {
  ++agent_starts_;  // an earlier plan to start it again is void
  if (node_ != nullptr)
    for (const auto* list : {&world_.checkers_, &checkers_})
      for (const auto& checker : *list) checker->agent_dies();
  world_.note(number_, host_too ? "host goes down" : "agent dies");
  node_.reset();
  held_.clear();
  paused_ = false;
  plan_tick();
  world_.book_.agent_died(host_too);
  world_.client_->agent_died(number_);
  disk_->agent_died();
  checkpoints_->agent_died();
  world_.relays_.agent_ends(number_);
  runner_->agent_died();
  if (world_.network_) world_.network_->agent_ends(number_, host_too);
  if (host_too) {
    runner_->host_died();
    ++boot_;
  }
}

void SimHost::agent_lost(bool host_too, Duration back_after) {
  end_agent(host_too);
  const std::uint64_t start = agent_starts_;
  disturbed_until(world_.now() + back_after);
  world_.cluster_disturbed_until(world_.now() + back_after);
  world_.timeline_.after(back_after, [this, start, host_too] {
    if (start != agent_starts_) return;
    if (host_too) clock_.reboot(world_.now());
    start_agent();
  });
}

void SimHost::pause_agent(Duration length) {
  if (node_ == nullptr || paused_) return;
  paused_ = true;
  plan_tick();
  runner_->pause_agent(true);
  disturbed_until(world_.now() + length);
  world_.cluster_disturbed_until(world_.now() + length);
  world_.timeline_.after(length, [this, life = life_] {
    if (life != life_ || !paused_) return;
    paused_ = false;
    plan_tick();
    runner_->pause_agent(false);
    // What came meanwhile is delivered in order, before anything new.
    const std::deque<node::Event> held = std::exchange(held_, {});
    for (const node::Event& event : held)
      if (node_ != nullptr && life == life_) step(event);
  });
}

}  // namespace dtrain::sim
