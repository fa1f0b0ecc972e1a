#include "common/node/node.h"

#include <algorithm>
#include <utility>

#include "common/node/cluster_views.h"
#include "common/node/event_levels.h"
#include "common/node/node_impl.h"

namespace dtrain::node {

namespace {

constexpr std::size_t kEarlyEvents = 65'536;

// Returns the assignment that a shim's event belongs to; nullptr for any other event.
const AssignmentId* shim_of(const Event& event) {
  return std::visit(
      [](const auto& e) -> const AssignmentId* {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, AttemptStarted> || std::is_same_v<E, AttemptExited> || std::is_same_v<E, ShimGone> ||
                      std::is_same_v<E, LeaseFroze> || std::is_same_v<E, ProcessesSeen> || std::is_same_v<E, Notified>)
          return &e.id;
        else return nullptr;
      },
      event);
}

}  // namespace

Node::Node(NodeOptions options, Rng rng, Log& log) : impl_(std::make_unique<Impl>(std::move(options), rng, log)) {}
Node::~Node() = default;

void Node::step(Now now, const Event& event, std::vector<Effect>& out) {
  impl_->c.now = now;
  impl_->c.out = &out;
  // A failed disk ends all decisions of this node, also those that watch_word() would make.
  if (!std::holds_alternative<PersistFailed>(event)) impl_->tasks.watch_word();
  impl_->watch_copy();
  impl_->watch_quorum();
  impl_->handle(event);
  impl_->drive_parts();
  impl_->log_advanced();
  impl_->take_what_is_formed();
  impl_->pass_on_members();
  for (Part* part : impl_->parts)
    if (impl_->runs(*part)) part->end_turn();
  impl_->c.out = nullptr;
}

Instant Node::deadline() const {
  Instant next = kNever;
  for (const Part* part : impl_->parts)
    if (impl_->runs(*part)) next = std::min(next, part->deadline());
  const Context& c = impl_->c;
  if (c.storage_failed) return next;
  if (!c.later.empty()) return c.now.boot;
  if (c.replicated && !impl_->forming.log_changes()) next = std::min(next, c.replicated->deadline());
  return next;
}

std::string Node::status_line() const { return node::status_line(impl_->c); }

bool Node::among_others() const {
  const auto counts = impl_->c.members->table().counts();
  return counts.alive + counts.suspect + counts.down + counts.dead > 1;
}

bool Node::may_have_package(ConnectionId connection, const std::string& digest) const {
  return impl_->package_requests.may_have(connection, digest);
}

ConnectionId Node::next_connection() { return impl_->c.connections.next(); }

std::size_t Node::own_connections() const { return impl_->c.connections.own(); }

std::string Node::ledger_bytes() const { return impl_->c.ledger.snapshot(); }

const cluster::Ledger& Node::ledger() const { return impl_->c.ledger; }

std::uint64_t Node::ledger_index() const { return impl_->c.holds_ledger() ? impl_->c.ledger.state().applied : 0; }

bool Node::coordinates() const { return impl_->c.serving; }

void Node::Impl::start(const Started& e) {
  c.facts = e.facts;
  c.connections.start(e.life);
  fitness.start();
  relays.start(e.life);
  member_requests.started();
  start_ledger(e);
  tasks.start(e);
  staging.start(e.task_records);
  forming.start(e.members);
  members.start(e);
  if (!c.storage_failed) c.replicated->step(c.now.boot, raft::Tick{});
}

bool Node::Impl::runs(const Part& part) const {
  if (part.runs() == Part::Runs::always) return true;
  if (c.storage_failed || !tasks.adopted()) return false;
  return part.runs() == Part::Runs::with_disk || !forming.log_changes();
}

void Node::Impl::drive_parts() {
  for (Part* part : parts) {
    if (!runs(*part)) continue;
    part->drive();
    deliver();
  }
}

void Node::Impl::deliver() {
  if (!staging.has_news() && c.later.empty() && c.fell_sick.empty()) return;  // so it is after nearly every part
  if (!tasks.adopted() || c.storage_failed) return;
  tasks.take_from_staging();
  while (!c.later.empty()) {  // called for each part in each turn: exchanging a deque would allocate anew
    const Event event = std::move(c.later.front());
    c.later.pop_front();
    decide(event);
  }
  for (const std::string& reason : std::exchange(c.fell_sick, {})) fitness.report_sick(reason);
}

// Whose question about checkpoints was answered; nullptr: nobody's who still wants to know. Nobody asked where a directory changed, or a
// checkpoint was verified in the background.
Part* Node::Impl::asker_of(std::uint64_t token) {
  checkpoint_requests.came(token);
  Part* part = token == 0 ? &checkpoint_watch : c.tickets.take(token);
  return part != nullptr && runs(*part) ? part : nullptr;
}

// What the ledger says of this host may be old until it contains a report of this life: before that nothing is done.
void Node::Impl::ask_for_current() {
  if (!c.current && !asked_for_current && c.holds_ledger() && !c.replicated->alone()) {
    asked_for_current = true;
    proposals.report({});
    current_from = proposals.last_report();
  }
}

// Announces this node's facts once the step's decisions are made, and sends events about the others to followers.
void Node::Impl::pass_on_members() {
  members.announce([this] { return tasks.running(); });
  if (members.take_facts_changed()) copy_check.touch();
  const auto& events = members.local_events();
  if (events.empty() || events.back().local == told_local) return;
  told_local = events.back().local;
  if (c.holds_ledger() && without_leader(c)) members.touch();  // it then announces how far its log reaches
  for (Part* part : parts) part->members_changed();
}

// Until the ledger is current here, nothing is decided for this host: events of its tasks wait, and so do requests of
// clients that concern only this node's disk. Bounded, because a shim sends little and the control server limits
// connections and frames; texts beyond kEarlyEvents are dropped.
void Node::Impl::handle(const Event& event) {
  const bool storage =
      std::holds_alternative<Started>(event) || std::holds_alternative<Persisted>(event) || std::holds_alternative<PersistFailed>(event);
  const bool connection = std::holds_alternative<ConnectionOpened>(event) || std::holds_alternative<ConnectionClosed>(event);
  // Events of other members do not wait for this node's disk.
  const bool of_members = std::holds_alternative<NetworkUp>(event) || std::holds_alternative<Gossiped>(event) ||
                          std::holds_alternative<LogReceived>(event) || std::holds_alternative<FormationReceived>(event) ||
                          std::holds_alternative<RelayReceived>(event) || std::holds_alternative<RelayEnded>(event) ||
                          std::holds_alternative<RelayAnswered>(event) || std::holds_alternative<MembersSaved>(event) ||
                          std::holds_alternative<Examined>(event) || std::holds_alternative<GpusSampled>(event) ||
                          std::holds_alternative<GpuFaulted>(event) || std::holds_alternative<HostChecked>(event) ||
                          std::holds_alternative<DiskLooked>(event) || std::holds_alternative<GpuHoldersFound>(event) ||
                          std::holds_alternative<HookEnded>(event) || std::holds_alternative<HookProgress>(event) ||
                          std::holds_alternative<Tick>(event) || std::holds_alternative<Stopping>(event);
  // Until there are orders again, shims of an earlier life of the agent belong to no task here; also while there is
  // no ledger, because another history's is about to come.
  const AssignmentId* told_by = shim_of(event);
  const bool unclaimed = !c.current && told_by != nullptr && tasks.unclaimed(*told_by);
  const bool waits = c.holds_ledger() || unclaimed;
  if (storage || connection || of_members || c.current || c.storage_failed || !waits) return decide(event);
  if (std::holds_alternative<Request>(event) && !c.replicated->alone()) return decide(event);
  // asked again soon; if the program cannot read the log, the question of a running task is passed on now
  if (std::holds_alternative<LeaseAsked>(event)) {
    if (unclaimed && c.ledger.behind()) decide(event);
    return;
  }
  const auto* froze = std::get_if<LeaseFroze>(&event);
  if (froze != nullptr && tasks.adopted()) tasks.found_frozen(froze->id, froze->frozen);
  if (early.size() < kEarlyEvents || !std::holds_alternative<Notified>(event)) early.push_back(event);
}

void Node::Impl::decide(const Event& event) {
  struct Visitor {
    Impl& n;

    void operator()(const Started& e) { n.start(e); }
    void operator()(const Persisted& e) {
      if (Part* part = n.c.tickets.take(e.ticket)) part->persisted(e.ticket);
      if (const auto durable = n.forming.take_durable()) n.formation_durable(*durable);
      if (e.ticket != n.ticket) return;
      n.ticket = 0;
      for (const raft::Send& message : std::exchange(n.held_sends, {})) n.send(message);
      n.c.replicated->step(n.c.now.boot, raft::Persisted{n.log_token});
    }
    void operator()(const PersistFailed& e) {
      n.c.storage_failed = true;
      n.c.log.write(LogLevel::error, "disk.failed", {{"cause", e.error.text()}});
      n.client_commands.storage_failed(e.error);
      n.member_requests.storage_failed(e.error);
    }
    void operator()(const ConnectionOpened& e) { n.callers.opened(e); }
    void operator()(const Request& e) { n.requests.handle(e); }
    void operator()(const ConnectionClosed& e) {
      for (Part* part : n.parts) part->closed(e.connection);
    }
    void operator()(const BlobWritten& e) {
      if (Part* part = n.c.connections.sink_of(e.connection)) return part->blob_written(e);
      n.package_requests.written(e);
    }
    void operator()(const BlobFound& e) { n.packages.found(e); }
    void operator()(const Staged& e) { n.tasks.staged(e); }
    void operator()(const ShimUp& e) { n.tasks.shim_up(e); }
    void operator()(const AttemptStarted& e) { n.tasks.attempt_started(e); }
    void operator()(const AttemptRefused& e) { n.tasks.attempt_refused(e); }
    void operator()(const AttemptExited& e) { n.tasks.attempt_exited(e); }
    void operator()(const ShimGone& e) { n.tasks.shim_gone(e); }
    void operator()(const FreezeDone& e) { n.tasks.freeze_done(e); }
    void operator()(const LeaseAsked& e) { n.tasks.lease_asked(e); }
    void operator()(const LeaseFroze& e) { n.tasks.lease_froze(e); }
    void operator()(const StandbyReport& e) { n.tasks.standby_reported(e); }
    void operator()(const ProcessesSeen& e) { n.tasks.processes_seen(e); }
    void operator()(const JobFilesRemoved& e) { n.tasks.files_removed(e); }
    void operator()(const Notified& e) { n.tasks.notified(e); }
    void operator()(const CheckpointsScanned& e) {
      Part* part = n.asker_of(e.token);
      if (part == nullptr) return;
      // Programs that do not know a format could not read of it: it is found once all of them do.
      const auto too_new = [this](const transfer::CheckpointInfo& info) { return wire::needed_version(info) > n.c.ledger.state().version; };
      if (!e.found || std::ranges::none_of(*e.found, too_new)) return part->scanned(e);
      CheckpointsScanned known = e;
      std::erase_if(*known.found, too_new);
      part->scanned(known);
    }
    void operator()(const CheckpointVerified& e) {
      if (Part* part = n.asker_of(e.token)) part->verified(e);
    }
    void operator()(const CheckpointQuarantined& e) {
      if (Part* part = n.asker_of(e.token)) part->quarantined(e);
    }
    void operator()(const CheckpointWritten& e) {
      Part* part = n.c.connections.sink_of(e.writer);
      if (part != nullptr && !n.c.storage_failed) part->checkpoint_written(e);
    }
    void operator()(const HookEnded& e) {
      if (n.c.storage_failed) return;  // what cannot be stored is not acted on
      if (Part* part = n.c.tickets.take(e.token)) return part->hook_ended(e);
      if (!e.exit.success())
        n.c.log.write(LogLevel::warn, "hook.failed", {{"exit", std::to_string(e.exit.signal ? e.exit.signal : e.exit.code)}});
    }
    void operator()(const HookProgress& e) {
      Part* part = n.c.storage_failed ? nullptr : n.c.tickets.owner(e.token);
      if (part != nullptr) part->hook_told(e);
    }
    void operator()(const NetworkUp&) {
      n.members.network_up();
      n.forming.network_up();
    }
    void operator()(const Gossiped& e) { n.gossiped(e.input); }
    void operator()(const LogReceived& e) { n.log_received(e); }
    void operator()(const FormationReceived& e) { n.forming.received(e); }
    void operator()(const RelayReceived& e) {
      if (const auto accepted = n.relays.received(e)) n.callers.opened({accepted->connection, accepted->caller});
    }
    void operator()(const RelayEnded& e) {
      for (Part* part : n.parts) part->relay_ended(e);
    }
    void operator()(const RelayAnswered& e) {
      if (Part* part = n.c.connections.sink_of(e.connection)) part->relay_answered(e);
    }
    void operator()(const Examined& e) { n.checkups.examined(e); }
    void operator()(const MembersSaved& e) {
      n.members.saved(e);
      n.member_requests.saved(e);
    }
    void operator()(const Reconfigured& e) {
      n.callers.access_changed(n.c.options.access, e.access, e.by);
      n.c.options.access = e.access;
      n.members.reconfigured(e);
      if (!e.health_check) n.fitness.no_health_check();
    }
    void operator()(const GpusSampled& e) { n.fitness.sampled(e); }
    void operator()(const GpuFaulted& e) { n.fitness.faulted(e); }
    void operator()(const HostChecked& e) { n.fitness.checked(e); }
    void operator()(const DiskLooked& e) { n.fitness.looked(e); }
    void operator()(const GpuHoldersFound& e) {
      if (!n.c.storage_failed) n.gpu_reclaim.found(e);
    }
    void operator()(const Tick&) {
      if (!n.c.storage_failed && !n.forming.log_changes() && n.c.replicated->deadline() <= n.c.now.boot) {
        n.c.replicated->step(n.c.now.boot, raft::Tick{});
        n.take_office();  // if the log refused the earlier proposal
      }
      for (Part* part : n.parts)
        if (n.runs(*part)) part->tick();
    }
    void operator()(const Stopping&) {
      n.tasks.stop();
      n.c.log.write(LogLevel::info, "agent.stopping", {{"node", n.c.facts.name}});
      // The remaining voters then elect at once instead of waiting for this node's silence to be noticed.
      if (n.c.serving && !n.c.storage_failed && !n.c.replicated->alone()) n.c.replicated->step(n.c.now.boot, raft::TransferAsked{});
      n.members.stop();
    }
  };
  std::visit(Visitor{*this}, event);
}

}  // namespace dtrain::node
