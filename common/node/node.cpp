#include "common/node/node.h"

#include <algorithm>
#include <set>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/node/cluster_members.h"
#include "common/node/context.h"
#include "common/node/coordinator.h"
#include "common/node/orders.h"
#include "common/node/requests.h"
#include "common/node/streams.h"
#include "common/task/assignments.h"

namespace dtrain::node {
namespace {

using cluster::JobRecord;

// Turns what the host's tasks want into effects.
class EffectActions final : public task::HostActions {
 public:
  explicit EffectActions(Context& c) : c_(c) {}
  void stage(const task::TaskOrder& o) override {
    const job::JobSpec& spec = o.context->spec;
    c_.emit(Stage{o.id, spec.name, o.context->user, spec.package_digest, spec.work_dir, spec.require_paths,
                  o.address.host, o.address.port, true});
  }
  void launch(task::ShimSpec spec) override { c_.emit(LaunchShim{std::move(spec)}); }
  void start(const AssignmentId& id, AttemptNumber attempt) override { c_.emit(StartAttempt{id, attempt}); }
  void signal(const AssignmentId& id, std::int32_t signal) override {
    c_.emit(SignalTask{id, signal, false});
  }
  void kill(const AssignmentId& id) override { c_.emit(KillTask{id}); }
  void freeze(const AssignmentId& id, bool freeze) override { c_.emit(FreezeTask{id, freeze}); }
  void end(const AssignmentId& id) override { c_.emit(EndShim{id}); }

 private:
  Context& c_;
};

}  // namespace

struct Node::Impl {
  Impl(Options options, Rng rng, Log& log)
      : c(std::move(options), rng, log),
        actions(c),
        members(c),
        coordinator(c),
        streams(c),
        requests(c, coordinator, streams) {
    c.members = &members;
  }

  Context c;
  EffectActions actions;
  ClusterMembers members;
  Coordinator coordinator;
  Streams streams;
  Requests requests;
  std::optional<task::Assignments> host;
  std::map<JobId, std::shared_ptr<const task::JobContext>>
      contexts;                     // of active jobs, per generation and size
  std::set<JobId> files_to_remove;  // forgotten jobs, until nothing of them runs
  std::vector<Event> early;         // arrived before this life's own entry was applied: kept until then
  std::uint64_t ticket = 0;         // of the Persist in flight; 0: none
  std::uint64_t last_ticket = 0;
  std::uint64_t snapshot_index = 0;
  std::uint64_t logged_event = 0;  // newest event written to the log
  std::uint64_t told_local = 0;    // newest event of members that followers were told

  void start(const Started& e);
  void start_ledger(const Started& e);
  void tell_members();
  void commit();
  void after_commit();
  void give_orders(JobId id);
  void report();
  void persist();
  void log_events();
  void run_hooks(const cluster::LedgerEvent& e);
  void handle(const Event& event);
  void decide(const Event& event);
};

Node::Node(Options options, Rng rng, Log& log)
    : impl_(std::make_unique<Impl>(std::move(options), rng, log)) {}
Node::~Node() = default;

void Node::step(Now now, const Event& event, std::vector<Effect>& out) {
  impl_->c.now = now;
  impl_->c.out = &out;
  impl_->handle(event);
  impl_->report();
  impl_->persist();
  impl_->tell_members();
  impl_->c.out = nullptr;
}

Instant Node::deadline() const {
  const Instant always = std::min(impl_->streams.deadline(), impl_->members.deadline());
  if (!impl_->c.serving || impl_->c.storage_failed) return always;
  return std::min({impl_->host->deadline(), impl_->coordinator.deadline(), always});
}

std::string Node::ledger_bytes() const {
  return impl_->c.ledger.snapshot();
}

void Node::Impl::start(const Started& e) {
  CHECK(!host);
  c.facts = e.facts;
  c.holds_ledger = e.members.holds_ledger;
  if (c.holds_ledger) start_ledger(e);
  members.start(e);
}

void Node::Impl::start_ledger(const Started& e) {
  std::uint64_t index = 0, term = 0;
  if (const auto& snapshot = e.replica.snapshot) {
    auto restored = cluster::Ledger::restore(snapshot->payload);
    if (!restored) {
      c.storage_failed = true;
      c.log.write(LogLevel::error, "ledger.damaged", {{"cause", restored.error().text()}});
    } else {
      c.ledger = std::move(*restored);
    }
    index = snapshot_index = snapshot->index;
    term = snapshot->term;
  }
  c.ledger.broken_rule = c.options.broken_rule;
  for (const auto& entry : e.replica.log) {
    if (entry.index <= index) continue;
    CHECK(entry.index == index + 1);
    c.ledger.apply(entry.index, entry.payload);
    index = entry.index;
    term = entry.term;
  }
  logged_event = c.ledger.state().next_event - 1;
  for (const JobId id : c.ledger.take_forgotten()) files_to_remove.insert(id);
  c.ledger.take_touched();
  c.replicated.emplace(index, term);
  host.emplace(task::HostContext{c.facts.name, c.facts.task_interface, c.options.pass_env}, actions);
  host->broken_rule = c.options.broken_rule;
  // Files of a job that the ledger does not know (its removal was cut short): they go too.
  for (const auto& shim : e.shims)
    if (c.ledger.find(shim.id.job) == nullptr) files_to_remove.insert(shim.id.job);
  for (const auto& shim : e.shims)
    if (shim.running && !shim.status.empty()) c.status_text[shim.id] = shim.status;
  host->adopt(e.shims);
  if (!c.storage_failed)
    c.propose(cluster::CommandType::coordinator_started,
              cluster::CoordinatorStarted{c.facts.id, c.facts.name, c.facts.boot_id});
}

void Node::Impl::commit() {
  for (const auto& entry : c.replicated->persisted()) {
    const cluster::Applied result = c.ledger.apply(entry.index, entry.payload);
    if (!result.status && result.status.error().code == ErrorCode::damaged)
      c.log.write(LogLevel::error, "ledger.entry-refused", {{"cause", result.status.error().text()}});
    requests.applied(entry.index, result);
  }
  after_commit();
}

void Node::Impl::after_commit() {
  const bool begins = !c.serving;
  c.serving = true;
  members.touch();
  std::set<JobId> touched = c.ledger.take_touched();
  touched.merge(coordinator.applied(c.ledger.state().applied));
  if (begins)
    for (const auto& [id, job] : c.ledger.state().jobs) touched.insert(id);
  for (const JobId id : c.ledger.take_forgotten()) files_to_remove.insert(id);
  for (const JobId id : touched) give_orders(id);
  if (begins) host->finish_adoption();
  for (const JobId id : touched) coordinator.consider(id);
  for (const JobId id : touched) streams.changed(id);
  log_events();
  if (begins)
    for (const auto& event : std::exchange(early, {})) decide(event);
}

// Recomputes what this host is to do for one job.
void Node::Impl::give_orders(JobId id) {
  const JobRecord* job = c.ledger.find(id);
  if (job == nullptr || job->nothing_runs()) {
    host->forget(c.now.boot, id);
    contexts.erase(id);
  } else {
    auto& context = contexts[id];
    if (!context || context->cluster.generation != job->generation ||
        context->cluster.tasks.size() != job->tasks.size())
      context = make_context(*job);
    host->update(c.now.boot,
                 make_orders(*job, c.facts, context, {c.now.boot, c.elapsed()}, c.options.broken_rule));
  }
  if (job == nullptr) {
    std::erase_if(c.status_text, [&](const auto& entry) { return entry.first.job == id; });
  } else if (is_final(job->state) && job->nothing_runs() &&
             job->spec.policy.clean_pod_policy == job::CleanPodPolicy::all) {
    c.emit(RemoveJobFiles{id, false});
  }
}

// Observations become one proposal; forgotten jobs lose their files once nothing of them runs.
void Node::Impl::report() {
  if (!host || !c.serving || c.storage_failed) return;
  auto seen = host->take_observations();
  if (!seen.empty()) c.propose(cluster::CommandType::report, cluster::Report{c.facts.id, std::move(seen)});
  for (auto it = files_to_remove.begin(); it != files_to_remove.end();) {
    if (!host->quiet(*it)) {
      ++it;
      continue;
    }
    c.emit(RemoveJobFiles{*it, true});
    it = files_to_remove.erase(it);
  }
}

void Node::Impl::persist() {
  if (!c.replicated || ticket != 0 || c.storage_failed) return;
  auto batch = c.replicated->take_batch();
  if (!batch) return;
  Persist p;
  p.ticket = ticket = ++last_ticket;
  p.append = std::move(*batch);
  const std::uint64_t applied = c.ledger.state().applied;
  if (applied >= snapshot_index + c.options.snapshot_every) {
    p.snapshot = raft::StoredSnapshot{applied, c.replicated->term(), c.ledger.snapshot()};
    snapshot_index = applied;
  }
  c.emit(std::move(p));
}

// What this node says of itself, once the step is decided; and what it saw of the others, to those who
// follow.
void Node::Impl::tell_members() {
  members.announce([this] { return host ? host->running() : ClusterMembers::Running{}; });
  const auto& events = members.local_events();
  if (events.empty() || events.back().local == told_local) return;
  told_local = events.back().local;
  streams.new_events();
}

void Node::Impl::log_events() {
  const auto& events = c.ledger.events();
  auto from = std::upper_bound(events.begin(), events.end(), logged_event,
                               [](std::uint64_t seq, const auto& e) { return seq < e.seq; });
  const bool any = from != events.end();
  for (; from != events.end(); ++from) {
    std::vector<LogField> fields;
    for (const auto& d : from->details) fields.push_back({d.key, d.value});
    if (!from->reason.empty()) fields.push_back({"reason", from->reason});
    c.log.write(LogLevel::info, from->type, fields);
    logged_event = from->seq;
    run_hooks(*from);
  }
  if (any) streams.new_events();
}

void Node::Impl::run_hooks(const cluster::LedgerEvent& e) {
  const JobRecord* job = c.ledger.find(e.job);
  if (job == nullptr || job->spec.notify.command.empty() || !e.type.starts_with("job.")) return;
  const auto& on = job->spec.notify.on;
  const auto wanted = [&](const std::string& state) {
    return e.type.size() == 4 + state.size() &&
           std::equal(state.begin(), state.end(), e.type.begin() + 4,
                      [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
  };
  if (std::none_of(on.begin(), on.end(), wanted)) return;
  c.emit(RunHook{c.next_token(),
                 job->spec.notify.command,
                 {{"DTRAIN_JOB", job->spec.name},
                  {"DTRAIN_EVENT", e.type.substr(4)},
                  {"DTRAIN_REASON", e.reason},
                  {"DTRAIN_GENERATION", std::to_string(job->generation)}},
                 job->user});
}

// Until this life's own entry is applied nothing is decided: what tasks and clients say meanwhile waits.
// Bounded: a shim says little, and the control server limits connections and frames.
void Node::Impl::handle(const Event& event) {
  const bool storage = std::holds_alternative<Started>(event) || std::holds_alternative<Persisted>(event) ||
                       std::holds_alternative<PersistFailed>(event);
  const bool connection =
      std::holds_alternative<ConnectionOpened>(event) || std::holds_alternative<ConnectionClosed>(event);
  // What others do does not wait for this node's disk.
  const bool of_members = std::holds_alternative<NetworkUp>(event) ||
                          std::holds_alternative<Gossiped>(event) ||
                          std::holds_alternative<MembersSaved>(event) ||
                          std::holds_alternative<Tick>(event) || std::holds_alternative<Stopping>(event);
  if (storage || connection || of_members || !c.holds_ledger || c.serving || c.storage_failed)
    return decide(event);
  early.push_back(event);
}

void Node::Impl::decide(const Event& event) {
  const Instant now = c.now.boot;
  const auto with_task = [&](const AssignmentId& id, auto&& act) {
    if (!host || c.storage_failed) return;  // what cannot be written down is not acted on
    if (task::Task* t = host->find(id)) act(*t);
    host->settle(now, id.job);
  };
  struct Visitor {
    Impl& n;
    Instant now;
    decltype(with_task)& task_of;

    void operator()(const Started& e) { n.start(e); }
    void operator()(const Persisted& e) {
      if (e.ticket != n.ticket) return;
      n.ticket = 0;
      n.commit();
    }
    void operator()(const PersistFailed& e) {
      n.c.storage_failed = true;
      n.c.log.write(LogLevel::error, "disk.failed", {{"cause", e.error.text()}});
      n.requests.storage_failed(e.error);
    }
    void operator()(const ConnectionOpened& e) { n.requests.opened(e); }
    void operator()(const Request& e) { n.requests.handle(e); }
    void operator()(const ConnectionClosed& e) { n.requests.closed(e.connection); }
    void operator()(const BlobWritten& e) { n.requests.blob_written(e); }
    void operator()(const Staged& e) {
      task_of(e.id, [&](task::Task& t) { t.staged(e.work_dir); });
    }
    void operator()(const ShimUp& e) {
      task_of(e.id, [&](task::Task& t) { t.shim_up(now, e.result); });
    }
    void operator()(const AttemptStarted& e) {
      n.members.touch();
      task_of(e.id, [&](task::Task& t) { t.attempt_started(now, e.attempt, e.pid, e.at); });
    }
    void operator()(const AttemptRefused& e) {
      task_of(e.id, [&](task::Task& t) { t.attempt_refused(now, e.attempt, e.error); });
    }
    void operator()(const AttemptExited& e) {
      n.c.status_text.erase(e.id);
      n.members.touch();
      task_of(e.id, [&](task::Task& t) { t.attempt_exited(now, e.attempt, e.exit); });
    }
    void operator()(const ShimGone& e) {
      if (n.host && !n.c.storage_failed) n.host->shim_gone(now, e.id);
    }
    void operator()(const FreezeDone& e) {
      task_of(e.id, [&](task::Task& t) { t.freeze_done(now, e.frozen, e.result); });
    }
    void operator()(const JobFilesRemoved& e) {
      if (!e.result)
        n.c.log.write(LogLevel::warn, "files.not-removed",
                      {{"job", std::to_string(e.job)}, {"cause", e.result.error().text()}});
    }
    void operator()(const Notified& e) {
      task_of(e.id, [&](task::Task& t) {
        t.notified(now, e.attempt, e.ready, e.watchdog);
        if (!e.status || e.attempt != t.attempt()) return;
        n.c.status_text[e.id] = e.status->substr(0, limits::kStatusTextBytes);
        n.streams.changed(e.id.job);
      });
    }
    void operator()(const CheckpointsScanned& e) {
      if (!n.c.storage_failed) n.coordinator.scanned(e);
    }
    void operator()(const CheckpointVerified& e) {
      if (!n.requests.verified(e) && !n.c.storage_failed) n.coordinator.verified(e);
    }
    void operator()(const CheckpointQuarantined& e) {
      if (!n.c.storage_failed) n.coordinator.quarantined(e);
    }
    void operator()(const HookEnded& e) {
      if (!e.exit.success())
        n.c.log.write(LogLevel::warn, "hook.failed",
                      {{"exit", std::to_string(e.exit.signal ? e.exit.signal : e.exit.code)}});
    }
    void operator()(const NetworkUp&) { n.members.network_up(); }
    void operator()(const Gossiped& e) { n.members.handle(e.input); }
    void operator()(const MembersSaved& e) {
      n.members.saved(e);
      n.requests.members_saved(e);
    }
    void operator()(const Reconfigured& e) { n.members.reconfigured(e); }
    void operator()(const Tick&) {
      if (n.c.serving && !n.c.storage_failed) {
        n.host->tick(now);
        n.coordinator.tick();
      }
      n.streams.tick();
      n.members.tick();
    }
    void operator()(const Stopping&) {
      n.c.log.write(LogLevel::info, "agent.stopping", {{"node", n.c.facts.name}});
      n.members.stop();
    }
  };
  std::visit(Visitor{*this, now, with_task}, event);
}

}  // namespace dtrain::node
