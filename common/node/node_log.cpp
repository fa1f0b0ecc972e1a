// Node and its log: carries out what the log wants, follows who leads, and applies entries (rules: docs/consensus.md).
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/node/cluster_views.h"
#include "common/node/node_impl.h"
#include "common/node/recovery.h"

namespace dtrain::node {
namespace {

// Entries in one message of the log: it goes, in order with the heartbeats, on the lane of small messages.
constexpr std::size_t kAppendBytes = 32 << 10;
// Forwarded commands that wait until this leader coordinates; further ones are dropped, and their senders send them again.
constexpr std::size_t kBeforeOffice = 256;
// Longer than a dead coordinator is taken to be alive, and longer than it takes to elect another one that adds this node.
constexpr Duration kLetGoAfter = 15s;
constexpr Duration kQuorumLostAfter = 10s;  // longer than an election, and than the elections of a cluster that begins
constexpr Duration kLookForLeader = 1s;     // how often to look for one among all members meanwhile
// Beyond, a Hello is lost like any message, and the log sends it again.
constexpr std::size_t kEarlyHellos = 64;

}  // namespace

void Node::Impl::open_log(raft::Stored stored, std::optional<MemberId> found) {
  raft::RaftOptions options;
  options.snapshot_every = c.options.snapshot_every;
  options.proposals = kProposals;
  options.message_bytes = kAppendBytes;
  c.replicated.emplace(raft::Self{MemberId::parse(c.facts.id).value_or(kNameless), life}, options, Rng(c.rng.next()), c.log,
                       std::move(stored), found);
}

void Node::Impl::start_ledger(const Started& e) {
  life = e.life;
  c.ledger.knows = c.options.ledger_knows;
  c.ledger.broken_rule = c.options.broken_rule;
  if (const auto& snapshot = e.replica.snapshot) install(*snapshot);
  std::optional<MemberId> found;
  if (e.members.holds_ledger) found = e.members.record.cluster_id.none() ? e.members.new_cluster_id : e.members.record.cluster_id;
  open_log(e.replica, found);
  if (c.replicated->alone())
    for (const auto& entry : e.replica.log) apply(entry);
  history.begin_anew();
}

// The state in a snapshot replaces the present one.
void Node::Impl::install(const raft::StoredSnapshot& snapshot) {
  auto restored = cluster::Ledger::restore(snapshot.payload, snapshot.index, c.options.ledger_knows);
  if (!restored) {
    if (!c.ledger.behind()) c.ledger.stop(std::move(restored.error()));
    return;
  }
  c.ledger = std::move(*restored);
  c.ledger.broken_rule = c.options.broken_rule;
  history.begin_anew();
  copy_check.begin_anew();
}

// This program cannot read the log's next entry: its tasks run on, and it decides nothing for them any more. It
// stands for no election, because it could not act as coordinator.
void Node::Impl::watch_reading() {
  const auto& behind = c.ledger.behind();
  if (!c.replicated || behind.has_value() == stopped_reading) return;
  stopped_reading = behind.has_value();
  c.replicated->step(c.now.boot, raft::MayLead{!stopped_reading});
  members.touch();
  if (!stopped_reading) return members.tell("ledger.readable", "");
  members.tell(LogLevel::error, "ledger.behind", c.facts.name,
               {{"node", c.facts.name},
                {"needs", behind->needs == 0 ? "?" : std::to_string(behind->needs)},
                {"knows", std::to_string(c.ledger.knows)}},
               behind->cause);
}

// This node's log was given up for that of a newer history, which is about to come. Its tasks run on: the new ledger
// decides about them once it is current here, as after a start. Tasks that it does not know are ended then.
void Node::Impl::forget_ledger() {
  tasks.remember_jobs();
  members.tell("council.followed", "history " + std::to_string(c.replicated->raft().history().number) +
                                       " of this cluster began on another node: the log of the one before is dropped here, with what "
                                       "the other had not of it");
  c.ledger = {};
  c.ledger.knows = c.options.ledger_knows;
  c.ledger.broken_rule = c.options.broken_rule;
  history.begin_anew();
  copy_check.begin_anew();
  c.current = asked_for_current = false;
}

// Carries out what the log wants until it wants nothing more in this turn: all proposals of the turn go to the disk together.
void Node::Impl::log_advanced() {
  if (!c.replicated || forming.log_changes()) return;
  do {
    while (auto out = c.storage_failed ? std::nullopt : c.replicated->take()) take_outputs(std::move(*out));
    if (!c.storage_failed) {
      ask_for_current();
      watch_reading();
    }
    for (Part* part : parts)
      if (runs(*part)) part->log_advanced();
    if (c.storage_failed) return;
    for (const MemberId& id : proposals.give_up()) {
      client_commands.given_up(id);
      checkpoint_watch.given_up(id);
    }
    if (!c.replicated->dirty()) return;
    c.replicated->flush(c.now.boot);
  } while (true);
}

void Node::Impl::take_outputs(raft::Outputs out) {
  for (const raft::Send& message : out.sends) send(message);
  if (out.forgotten) forget_ledger();
  if (out.installed) {
    std::vector<JobId> gone;  // including jobs that had ended, whose files are still here
    for (const auto& [id, job] : c.ledger.state().jobs) gone.push_back(id);
    install(*out.installed);
    if (c.ledger.behind()) gone.clear();  // nothing new is known
    std::erase_if(gone, [&](JobId id) { return c.ledger.find(id) != nullptr; });
    for (const JobId id : gone) {
      tasks.give_orders(id);
      checkpoint_watch.job_changed(id);
      tasks.remove_files(id, JobFiles::logs);
      history.forget(id);
    }
  }
  for (const raft::LogEntry& entry : out.committed) apply(entry);
  if (out.leadership) lead_or_follow();
  for (const raft::Answer& answer : out.answers)
    if (!answer.read) seats.answered(answer);
  if (out.installed || !out.committed.empty()) after_commit();
  for (const raft::Answer& answer : out.answers)
    if (answer.read) leases.answered(answer);
  if (out.snapshot_wanted && !c.ledger.behind())
    c.replicated->step(c.now.boot, raft::Snapshotted{c.ledger.state().applied, c.ledger.snapshot()});
  if (out.persist) persist(std::move(*out.persist));
}

// A learner that the leader removes from the configuration gets no message about it, because the leader only speaks
// to members of the configuration. So a learner that hears no leader while another node says that it coordinates
// takes itself to be removed: it answers as a member without a copy, since its copy may be old, until a leader speaks
// to it again.
void Node::Impl::watch_copy() {
  if (!c.replicated) return;
  const raft::Raft& raft = c.replicated->raft();
  if (raft.role() == raft::Role::leader) c.led = c.now.boot;
  if (c.storage_failed || !tasks.adopted()) return;
  const bool learns = raft.configuration().learns(raft.id());
  last_entry = !learns || last_entry == Instant{} ? c.now.boot : std::max(last_entry, raft.heard());
  const bool silent = c.now.boot - last_entry >= kLetGoAfter;
  if (silent && c.now.boot < next_copy_look) return;
  next_copy_look = c.now.boot + kLookForLeader;
  const bool gone = silent && somebody_coordinates(c);
  if (std::exchange(c.let_go, gone) == gone) return;
  members.touch();
  if (gone && tasks.running().empty()) c.current = asked_for_current = false;
}

// Reports that nothing is decided any more, which concerns more people than those who ask for the status.
void Node::Impl::watch_quorum() {
  if (!c.replicated || !tasks.adopted() || !c.holds_ledger()) return;
  if (!without_leader(c) || c.last_led == Instant{}) c.last_led = c.now.boot;
  const bool lost = c.now.boot - c.last_led >= kQuorumLostAfter;
  if (std::exchange(quorum_lost, lost) == lost) return;
  const std::string advice = quorum_advice(c);
  const std::vector<cluster::EventField> node{{"node", c.facts.name}};
  if (lost) members.tell(LogLevel::error, "quorum.lost", c.facts.name, node, advice.empty() ? "no coordinator is known" : advice);
  else members.tell(LogLevel::info, "quorum.back", c.facts.name, node, "");
}

// A node that leads and has applied its own entry of this term coordinates; no other node decides anything for others.
void Node::Impl::lead_or_follow() {
  const raft::Raft& raft = c.replicated->raft();
  proposals.leadership_changed();
  members.touch();
  if (own_entry != 0 && (!raft.ready() || raft.term() != own_term)) {
    own_entry = 0;
    if (std::exchange(c.serving, false)) {
      coordinator.reset();
      leases.end();
    }
    seats.lost_leadership();
  }
  if (raft.role() != raft::Role::leader) before_office.clear();
  take_office();
}

void Node::Impl::take_office() {
  if (!c.replicated->raft().ready() || own_entry != 0 || c.ledger.behind()) return;
  own_term = c.replicated->raft().term();
  own_entry = c.propose(cluster::CommandType::coordinator_started,
                        cluster::CoordinatorStarted{c.facts.id, c.facts.name, c.facts.boot_id,
                                                    (c.replicated->raft().history().number - 1) * cluster::kJobsOfHistory});
}

void Node::Impl::send(const raft::Send& message) {
  const auto member = members.table().find(message.to);
  if (!member || members.cluster_id().empty()) {  // lost, as on any network
    // A Hello is the exception: it is ready before any member is known here, and this member neither votes nor
    // acknowledges until it is answered.
    if (std::holds_alternative<wire::Hello>(message.message.body) && early_hellos.size() < kEarlyHellos)
      early_hellos.insert_or_assign(message.to, message);
    return;
  }
  c.emit(SendLog{member->identity->address, message.to, members.header(), message.message});
}

// From a member that believes that this node leads. The member sends the command again until it sees it applied.
void Node::Impl::forwarded(wire::Forward forward) {
  const auto type = static_cast<cluster::CommandType>(forward.type);
  const bool of_user = type == cluster::CommandType::submit || type == cluster::CommandType::action ||
                       type == cluster::CommandType::drain_host || type == cluster::CommandType::checkpoint;
  if (c.storage_failed || (!of_user && type != cluster::CommandType::report) || of_user == forward.id.none()) return;
  if (!c.serving) {
    const bool soon = c.replicated->raft().role() == raft::Role::leader;
    if (soon && before_office.size() < kBeforeOffice) before_office.push_back(std::move(forward));
    return;
  }
  if (c.replicated->pending() >= limits::kPendingProposals) return;
  // The sender's program is newer than this one, or than that of another member with a copy.
  const auto needs = cluster::version_needed(type, forward.body);
  if (!needs || *needs > c.ledger.state().version) {
    c.log.write(LogLevel::warn, "ledger.request-refused",
                {{"type", std::to_string(forward.type)},
                 {"cause", needs ? "it needs version " + std::to_string(*needs) + " of the ledger" : needs.error().message}});
    return;
  }
  std::optional<cluster::RequestStamp> request;
  if (of_user) request = cluster::RequestStamp{forward.id.high, forward.id.low, forward.minted};
  c.propose_encoded(type, std::move(forward.body), *needs, request);
}

// A new connection to the leader is refused: nobody needs to wait for its silence.
void Node::Impl::gossiped(const gossip::Input& input) {
  if (!may_hear(input)) return;
  const auto* checked = std::get_if<gossip::GoneChecked>(&input);
  if (checked != nullptr && checked->answer == gossip::GoneChecked::Answer::refused && !c.storage_failed && !forming.log_changes()) {
    const MemberId leader = c.replicated->raft().leader();
    const auto member = leader.none() ? std::nullopt : members.table().find(leader);
    if (member && member->identity->address == checked->to) c.replicated->step(c.now.boot, raft::LeaderGone{leader});
  }
  members.handle(input);
  if (early_hellos.empty()) return;
  const auto hellos = std::exchange(early_hellos, {});
  if (!c.replicated->raft().settled())
    for (const auto& [to, hello] : hellos) send(hello);
}

// A sole voter applied its entries when it started; they come again once they are known to be committed.
void Node::Impl::apply(const raft::LogEntry& entry) {
  if (entry.index <= c.ledger.state().applied || c.ledger.behind()) return;
  CHECK(entry.index == c.ledger.state().applied + 1);
  const bool of_log = entry.kind != raft::EntryKind::command;  // the log's own business
  if (of_log) c.ledger.skip(entry.index);
  const cluster::Applied result = of_log ? cluster::Applied{} : c.ledger.apply(entry.index, entry.payload, entry.elapsed);
  copy_check.applied();
  if (result.request.none()) return;
  proposals.applied(result.request);
  client_commands.applied(result);
  checkpoint_watch.applied(result.request);
}

void Node::Impl::after_commit() {
  const cluster::LedgerState& state = c.ledger.state();
  members.touch();
  const auto reports = state.reports.find(c.facts.id);
  if (reports != state.reports.end()) proposals.reported(reports->second);
  const bool leads = !c.serving && own_entry != 0 && state.applied >= own_entry;
  c.serving = c.serving || leads;
  // A snapshot of a history that this member follows may be older than its last report.
  const bool reported = asked_for_current && reports != state.reports.end() && reports->second.life == c.replicated->raft().life().number &&
                        reports->second.sequence >= current_from;
  const std::set<JobId> signalled = c.ledger.take_signalled();
  if (c.current)
    for (const JobId id : signalled) tasks.signal(id);
  const bool begins = !c.current && (c.serving || reported);
  c.current = c.current || begins;
  if (!c.current) return;
  std::set<JobId> touched = c.ledger.take_touched();
  if (c.serving) touched.merge(coordinator.applied(state.applied));
  if (begins || leads)
    for (const auto& [id, job] : state.jobs) touched.insert(id);
  for (const JobId id : c.ledger.take_forgotten()) {
    tasks.remove_files(id, JobFiles::logs);
    history.forget(id);
  }
  // Files of a job that the ledger does not know (its removal was interrupted) are removed, too.
  if (begins)
    for (const JobId id : tasks.take_found_jobs())
      if (c.ledger.find(id) == nullptr) {
        tasks.remove_files(id, JobFiles::logs);
        touched.insert(id);
      }
  if (c.among_others()) tasks.need_leases();
  if (leads) leases.begin();
  if (leads) versions.touch();
  if (c.serving)
    for (const JobId id : touched) leases.job_changed(id);
  for (const JobId id : touched) tasks.give_orders(id);
  for (const JobId id : touched) {
    checkpoint_watch.job_changed(id);
    packages.job_changed(id);
  }
  if (begins) tasks.finish_adoption();
  const bool drains = c.ledger.take_drains();
  if (c.serving) coordinator.consider(touched);
  seats.jobs_changed(touched);
  if (c.serving && drains) coordinator.drains_changed();
  if (leads) {
    seats.touch();
    for (wire::Forward& forward : std::exchange(before_office, {})) forwarded(std::move(forward));
  }
  for (const JobId id : touched) {
    streams.changed(id);
    host_logs.changed(id);
  }
  if (history.applied(leads)) streams.new_events();
  if (begins)
    for (const auto& event : std::exchange(early, {})) decide(event);
}

void Node::Impl::persist(raft::Persist wanted) {
  CHECK(ticket == 0);
  Persist p;
  p.ticket = ticket = c.next_token();
  log_token = wanted.token;
  p.forget_log = wanted.forget;
  p.hard = std::move(wanted.hard);
  p.snapshot = std::move(wanted.snapshot);
  p.reset_log = wanted.reset_log;
  p.truncate_from = wanted.truncate_from;
  p.append = std::move(wanted.entries);
  held_sends = std::move(wanted.sends);
  c.emit(std::move(p));
}

// A deposed coordinator may still be believed.
void Node::Impl::log_received(const LogReceived& e) {
  if (c.storage_failed || forming.log_changes()) return;
  struct Visitor {
    Impl& n;
    const MemberId& sender;
    void operator()(const wire::RaftMessage& message) { n.c.replicated->step(n.c.now.boot, raft::Received{message}); }
    void operator()(const wire::Forward& forward) { n.forwarded(forward); }
    void operator()(const wire::LeaseRequest& request) { n.leases.requested(sender, request); }
    void operator()(const wire::LeaseAnswer& answer) { n.leases.received(answer); }
  };
  std::visit(Visitor{*this, e.header.sender}, e.message);
}

}  // namespace dtrain::node
