#include "common/node/cluster_members.h"

#include <algorithm>

#include "common/node/cluster_views.h"
#include "common/node/forming.h"
#include "common/wire/codec.h"

namespace dtrain::node {
namespace {

using gossip::ChangeKind;

constexpr const char* kToJoinAgain = "stop the agent, remove the file members of its data directory, start it with --join HOST";

struct KindWords {
  const char* event;  // the name in the log
  LogLevel level;
  bool listed;  // also listed by `dtrainctl events`
};

KindWords kind_of(ChangeKind kind) {
  switch (kind) {
    case ChangeKind::alive: return {"member.alive", LogLevel::info, true};
    case ChangeKind::suspect: return {"member.suspect", LogLevel::info, true};
    case ChangeKind::down: return {"member.down", LogLevel::warn, true};
    case ChangeKind::dead: return {"member.dead", LogLevel::warn, true};
    case ChangeKind::left: return {"member.left", LogLevel::info, true};
    case ChangeKind::restarted: return {"member.restarted", LogLevel::info, true};
    case ChangeKind::rebooted: return {"member.rebooted", LogLevel::info, true};
    case ChangeKind::refute: return {"member.refute", LogLevel::info, true};
    case ChangeKind::conflict: return {"member.conflict", LogLevel::error, true};
    case ChangeKind::fact: return {"member.fact", LogLevel::debug, false};
    case ChangeKind::joined: return {"cluster.joined", LogLevel::info, false};
    case ChangeKind::address_mismatch: return {"network.address-mismatch", LogLevel::warn, true};
    case ChangeKind::frozen: return {"membership.frozen", LogLevel::warn, false};
    case ChangeKind::thawed: return {"membership.thawed", LogLevel::warn, false};
    case ChangeKind::refused: return {"member.refused", LogLevel::warn, false};
    case ChangeKind::stalled: return {"agent.stalled", LogLevel::warn, false};
    case ChangeKind::moved: return {"member.moved", LogLevel::debug, false};
  }
  return {"member.changed", LogLevel::info, false};
}

template <class T>
std::optional<T> fact_of(const gossip::MemberView& member, wire::FactKey key) {
  const wire::Fact* fact = member.facts[static_cast<std::size_t>(key)];
  if (fact == nullptr) return std::nullopt;
  auto value = wire::decode<T>(fact->value);
  if (!value) return std::nullopt;
  return std::move(*value);
}

// FNV-1a over the texts, each followed by a byte that occurs in none of them.
std::uint64_t running_hash(const ClusterMembers::Running& running) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  const auto add = [&](const std::string& text) {
    for (const char c : text + "\n") hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  };
  for (const auto& [id, attempt] : running) add(id.text() + " " + std::to_string(attempt));
  return hash;
}

}  // namespace

std::optional<HostFacts> host_facts_of(const gossip::MemberView& member) { return fact_of<HostFacts>(member, wire::FactKey::resources); }
std::optional<FreeFacts> free_facts_of(const gossip::MemberView& member) { return fact_of<FreeFacts>(member, wire::FactKey::free); }
CouncilFact council_fact_of(const gossip::MemberView& member) {
  return fact_of<CouncilFact>(member, wire::FactKey::council).value_or(CouncilFact{});
}

wire::Identity ClusterMembers::identity() const {
  wire::Identity i;
  i.id = MemberId::parse(c_.facts.id).value_or(kNameless);
  i.name = c_.facts.name;
  i.address = start_.endpoint;
  i.boot_id = c_.facts.boot_id;
  i.life = life_;
  i.key_print = start_.key_print;
  return i;
}

std::string ClusterMembers::own_resources() {
  CutFacts facts = encode_within(host_facts_here(c_), wire::kFactBytes);
  if (facts.left_out != left_out_ && !facts.left_out.empty())
    c_.log.write(LogLevel::warn, "member.facts-cut",
                 {{"left_out", facts.left_out},
                  {"reason", "what this node tells of itself is longer than " + std::to_string(wire::kFactBytes) + " bytes"},
                  {"next", "give this node fewer or shorter labels"}});
  left_out_ = std::move(facts.left_out);
  return std::move(facts.value);
}

CouncilFact ClusterMembers::council_fact() const {
  CouncilFact fact = council_role();
  fact.knows = c_.ledger.knows;
  fact.version = c_.holds_ledger() ? c_.ledger.state().version : 0;
  fact.behind = c_.ledger.behind().has_value();
  fact.mark = c_.copy.mark;
  fact.wants_state = c_.copy.wants_state;
  return fact;
}

CouncilFact ClusterMembers::council_role() const {
  if (!c_.replicated) return {};
  const raft::Raft& raft = c_.replicated->raft();
  const std::uint64_t history = raft.history().number;
  if (c_.serving) return {"coordinator", c_.ledger.state().epoch, history, 0, 0};
  if (!c_.holds_ledger()) return {"member", 0, history, 0, 0};
  CouncilFact fact{raft.configuration().votes(raft.id()) ? "voter" : "learner", c_.replicated->epoch(), history, 0, 0};
  if (membership_ && without_leader(c_)) {
    fact.last_index = raft.last_index();
    fact.last_term = raft.term_at(fact.last_index);
  }
  return fact;
}

void ClusterMembers::start(const Started& e) {
  start_ = e.members;
  start_.record = record_of_members(start_);
  life_ = e.life;
  left_ = start_.record.left;
  events_.begin_above(life_ << 32);  // numbers continue above those of earlier lives, without a file
  if (!start_.network && !start_.found && start_.record.cluster_id.none()) {  // --dev, tests: there will never be another member
    start_.found = start_.holds_ledger;
    start_.new_cluster_id = MemberId::parse(c_.options.cluster_id).value_or(kNameless);
  }
  begin_membership(start_.founders.empty() || start_.found || !start_.record.cluster_id.none());
  if (start_.network) {
    if (!start_.record.cluster_id.none()) c_.emit(EnterCluster{cluster_ = start_.record.cluster_id});
    for (const wire::Identity& known : start_.record.book) c_.emit(KnowMember{known});
  } else {
    network_up();
  }
}

void ClusterMembers::begin_membership(bool with_seeds) {
  gossip::Self self;
  self.identity = identity();
  self.cluster_name = c_.options.cluster_name;
  self.record = start_.record;
  self.found = start_.found;
  self.new_cluster_id = start_.new_cluster_id;
  if (asks_seeds_ = with_seeds; with_seeds) self.seeds = start_.seeds;
  // Facts that are known already travel with the first message to the others and cost no rumours.
  const auto fact = [&](wire::FactKey key) -> std::string& { return facts_[static_cast<std::size_t>(key)]; };
  fact(wire::FactKey::resources) = own_resources();
  if (!start_.holds_ledger) {
    fact(wire::FactKey::free) = wire::encode(free_here(c_));
    fact(wire::FactKey::running) = wire::encode(RunningFact{running_hash({})});
    fact(wire::FactKey::council) = wire::encode(council_fact());
  }
  for (std::size_t key = 0; key < wire::kFactKeys; ++key)
    if (!facts_[key].empty()) self.facts.push_back({static_cast<wire::FactKey>(key), 0, facts_[key]});
  gossip::MembershipOptions options;
  options.broken_rule = c_.options.broken_rule;
  membership_.emplace(std::move(self), options, Rng(c_.rng.next()), c_.log);
}

void ClusterMembers::enter(const MemberId& cluster) {
  start_.record = {};
  start_.record.cluster_id = cluster;
  refused_.clear();
  self_announced_ = false;
  if (cluster.none()) {  // the other cluster's entries must not bring it back
    record_ = start_.record.encode();
    save();
  }
  begin_membership(!cluster.none());
  step(gossip::Tick{});
}

void ClusterMembers::ask_seeds() {
  if (asks_seeds_ || !begun_) return;
  begin_membership(true);
  step(gossip::Tick{});
}

void ClusterMembers::network_up() {
  if (begun_ || !membership_) return;
  begun_ = true;
  touched_ = true;
  step(gossip::Tick{});
}

void ClusterMembers::handle(const gossip::Input& input) {
  if (begun_) step(input);
}

void ClusterMembers::tick() {
  if (!begun_) return;
  if (membership_->deadline() <= c_.now.boot) step(gossip::Tick{});
  if (retry_save_at_ <= c_.now.boot) save();
}

void ClusterMembers::stop() {
  if (begun_) step(gossip::StopAsked{});
}

void ClusterMembers::reconfigured(const Reconfigured& e) {
  c_.facts.labels = e.labels;
  touched_ = true;
  if (e.key_print == start_.key_print) return;
  start_.key_print = e.key_print;
  if (begun_) step(gossip::IdentityChanged{identity()});
}

void ClusterMembers::save() {
  retry_save_at_ = kNever;
  c_.emit(SaveMembers{++save_ticket_, record_});
}

void ClusterMembers::saved(const MembersSaved& e) {
  if (e.result) {
    durable_ = std::max(durable_, e.ticket);
    return;
  }
  c_.log.write(LogLevel::error, "members.not-saved",
               {{"cause", e.result.error().text()}, {"next", "look at the disk; it is tried again every minute"}});
  if (e.ticket == save_ticket_) retry_save_at_ = c_.now.boot + kSaveRetry;  // otherwise a newer record is being written
}

std::optional<Error> ClusterMembers::bound() const {
  // Without a copy of the log, or removed from it, this node is not told what the ledger says it has; but it knows by
  // itself what is left here.
  if (!c_.holds_ledger()) {
    if (c_.host == nullptr || c_.host->quiet()) return std::nullopt;
    const auto& jobs = c_.ledger.state().jobs;
    const auto job = std::ranges::find_if(jobs, [&](const auto& known) { return !c_.host->quiet(known.first); });
    const std::string name = job == jobs.end() ? "" : " " + job->second.spec.name;
    return Error{ErrorCode::refused,
                 "could not leave the cluster: tasks of " + (name.empty() ? "some job" : "job" + name) + " run on " + c_.facts.name,
                 name.empty() ? "dtrainctl tasks shows of which; wait for their end, or cancel it"
                              : "wait for their end, or dtrainctl cancel" + name};
  }
  const auto counts = membership_->counts();
  if (counts.alive + counts.suspect <= 1 && c_.replicated->raft().configuration().votes(c_.replicated->raft().id()))
    return Error{ErrorCode::refused, "could not leave the cluster: " + c_.facts.name + " is the last of it that is up",
                 "to end the cluster, stop this agent"};
  for (const auto& [id, job] : c_.ledger.state().jobs)
    for (const auto& [task, t] : job.tasks)
      if (!t.ended && t.place.node == c_.facts.id)
        return Error{ErrorCode::refused, "could not leave the cluster: tasks of job " + job.spec.name + " run on " + c_.facts.name,
                     "wait for their end, or dtrainctl cancel " + job.spec.name};
  return std::nullopt;
}

bool ClusterMembers::may_go() const {
  if (left_ || !c_.holds_ledger()) return true;
  const raft::Raft& raft = c_.replicated->raft();
  if (c_.serving || raft.role() == raft::Role::leader || without_leader(c_)) return false;
  const auto& voters = raft.configuration().voters;
  if (!raft.configuration().votes(raft.id())) return true;
  const auto stay = std::ranges::count_if(voters, [&](const MemberId& id) {
    const auto member = membership_->find(id);
    return id != raft.id() && member && wire::in_service(member->state);
  });
  return static_cast<std::size_t>(stay) > voters.size() / 2;
}

Result<std::uint64_t> ClusterMembers::leave() {
  if (!left_ && !waiting_for().empty())
    return fail(ErrorCode::refused, "could not leave the cluster: " + c_.facts.name + " belongs to none; it waits for " + waiting_for(),
                "nothing is to be left: stop the agent");
  if (!left_) {
    left_ = true;
    step(gossip::LeaveAsked{});
  } else if (durable_ < save_ticket_) {  // asked a second time: the first write failed, or is not done yet
    save();
  }
  return durable_ < save_ticket_ ? save_ticket_ : 0;
}

Status ClusterMembers::remove(const std::string& name) {
  auto member = membership_->find(name);
  const auto named = MemberId::parse(name);
  if (!member && named) member = membership_->find(*named);
  const wire::Identity* absent = member ? nullptr : membership_->absent(name);
  if (!member && absent == nullptr && named) absent = membership_->absent(*named);
  if (!member && absent == nullptr)
    return fail(ErrorCode::not_found, "could not forget node " + name + ": there is none of that name",
                "dtrainctl nodes shows those there are");
  const MemberId id = member ? member->identity->id : absent->id;
  const std::string known_as = member ? member->identity->name : absent->name;
  // no member has spoken of it since this agent's start
  const wire::MemberState state = member ? member->state : wire::MemberState::dead;
  // A node that is cut off declares nobody dead, and never would when it is the last one left. Where somebody
  // coordinates, an operator may know better.
  const bool judged_by_nobody = state == wire::MemberState::suspect && membership_->frozen() && !without_leader(c_);
  if (state == wire::MemberState::left) return {};
  if (wire::in_service(state) && !judged_by_nobody)
    return fail(ErrorCode::refused, "could not forget node " + known_as + ": it is " + wire::to_string(state),
                "run dtrainctl leave on it; or stop its agent, and forget it when it is down");
  const auto holder = ledger_holder(c_);
  const bool needed = c_.holds_ledger() && without_leader(c_) && c_.replicated->raft().configuration().votes(id);
  if (needed || (holder && holder->name == known_as))
    return fail(ErrorCode::refused, "could not forget node " + known_as + ": it holds the cluster's ledger", "start its agent again");
  step(gossip::RemoveAsked{id});
  member = membership_->find(id);
  if (member && member->state != wire::MemberState::left)
    return fail(ErrorCode::refused, "could not forget node " + known_as + ": it is " + wire::to_string(member->state) + " now",
                "dtrainctl nodes");
  return {};
}

bool ClusterMembers::alone() const {
  const auto counts = membership_->counts();
  return counts.alive + counts.suspect + counts.down + counts.dead <= 1;
}

Instant ClusterMembers::deadline() const {
  if (!begun_) return kNever;
  Instant at = std::min(membership_->deadline(), retry_save_at_);
  if (touched_ && !alone()) at = std::min(at, next_announcement_);
  return at;
}

std::string ClusterMembers::waiting_for() const {
  if (left_) return std::string("nothing: it left its cluster for good; to join one again, ") + kToJoinAgain;
  if (membership_ && !membership_->cluster_id().none()) return "";
  if (const std::string forming = c_.forming->waiting_for(); !forming.empty())
    return "the cluster to be formed: " + forming + (refused_.empty() ? "" : "; " + refused_);
  return start_.waiting_for + (refused_.empty() ? "" : "; " + refused_);
}

std::optional<Error> ClusterMembers::no_member(const std::string& could_not) const {
  if (left_) return Error{ErrorCode::refused, could_not + ": " + c_.facts.name + " has left its cluster", kToJoinAgain};
  const std::string waiting = waiting_for();
  if (waiting.empty()) return std::nullopt;
  return Error{ErrorCode::unavailable, could_not + ": " + c_.facts.name + " belongs to no cluster; it waits for " + waiting,
               holds_back() ? "start the agents of all founders" : "start the agent with --found, or with --join HOST"};
}

wire::PeerHeader ClusterMembers::header() const {
  wire::PeerHeader header;
  header.cluster = membership_->cluster_id();
  header.sender = identity().id;
  header.incarnation = membership_->incarnation();
  header.epoch = c_.replicated ? c_.replicated->epoch() : 0;
  return header;
}

std::string ClusterMembers::cluster_id() const {
  return membership_ && !membership_->cluster_id().none() ? membership_->cluster_id().text() : "";
}

void ClusterMembers::step(const gossip::Input& input) {
  outputs_.clear();
  membership_->step(c_.now.boot, input, outputs_);
  // The links must know which members to accept before anything is sent.
  if (const MemberId cluster = membership_->cluster_id(); cluster != cluster_) {
    cluster_ = cluster;
    c_.emit(EnterCluster{cluster});
  }
  for (const gossip::Change& change : outputs_.changes) {
    // Every member in the table may connect; one that left is no member any more.
    if (change.kind > ChangeKind::dead && change.kind != ChangeKind::moved) continue;
    const auto member = membership_->find(change.id);
    if (member && member->state != wire::MemberState::left) c_.emit(KnowMember{*member->identity});
  }
  if (outputs_.links) c_.emit(std::move(*outputs_.links));
  for (gossip::Send& send : outputs_.sends) c_.emit(std::move(send));
  for (gossip::CheckGone& check : outputs_.checks) c_.emit(std::move(check));
  if (outputs_.resolve_seeds) c_.emit(gossip::ResolveSeeds{});
  if (outputs_.save) {
    record_ = outputs_.save->record.encode();
    save();
  }
  for (const gossip::Change& change : outputs_.changes) note(change);
  if (!self_announced_ && !cluster_.none() && !left_)
    note({ChangeKind::alive, identity().id, c_.facts.name, membership_->incarnation(), ""});
}

void ClusterMembers::note(const gossip::Change& change) {
  if (change.kind == ChangeKind::alive && change.id == identity().id) {
    if (self_announced_) return;  // that this node is alive is reported once
    self_announced_ = true;
  }
  if (change.kind == ChangeKind::left && change.id == identity().id) left_ = true;
  if (change.kind == ChangeKind::refused) refused_ = change.detail;
  if (change.kind == ChangeKind::fact) facts_changed_ = true;
  const KindWords kind = kind_of(change.kind);
  std::vector<LogField> fields{{"node", change.name}, {"incarnation", std::to_string(change.incarnation)}};
  if (change.kind == ChangeKind::joined) fields = {{"cluster", c_.options.cluster_name}, {"id", cluster_id()}};
  else if (!kind.listed && change.name.empty()) fields.clear();
  if (!change.detail.empty()) fields.push_back({"reason", change.detail});
  c_.log.write(kind.level, kind.event, fields);
  if (!kind.listed) return;
  wire::EventView v = event_now(kind.event, change.name, change.detail);
  v.message = "node=" + change.name + " incarnation=" + std::to_string(change.incarnation);
  events_.add(std::move(v));
}

wire::EventView ClusterMembers::event_now(const std::string& type, const std::string& object, const std::string& reason) const {
  wire::EventView v;
  v.seq = c_.ledger.state().next_event - 1;
  v.time = to_rfc3339(c_.now.wall);
  v.type = type;
  v.object = object;
  v.reason = reason;
  return v;
}

void ClusterMembers::tell(const std::string& type, const std::string& reason) {
  tell(LogLevel::warn, type, c_.facts.name, {{"node", c_.facts.name}}, reason);
}

std::uint64_t ClusterMembers::tell(LogLevel level, const std::string& type, const std::string& object,
                                   const std::vector<cluster::EventField>& details, const std::string& reason, std::uint64_t replaces) {
  wire::EventView v = event_now(type, object, reason);
  std::vector<LogField> fields;
  for (const cluster::EventField& d : details) {
    fields.push_back({d.key, d.value});
    v.message += (v.message.empty() ? "" : " ") + d.key + "=" + d.value;
  }
  if (!reason.empty()) fields.push_back({"reason", reason});
  c_.log.write(level, type, fields);
  if (replaces != 0) events_.replace(replaces);
  touched_ = true;
  return events_.add_bounded(std::move(v));
}

void ClusterMembers::set_fact(wire::FactKey key, std::string value) {
  std::string& last = facts_[static_cast<std::size_t>(key)];
  if (last == value) return;
  last = value;
  step(gossip::FactChanged{key, std::move(value)});
}

void ClusterMembers::announce(const std::function<Running()>& running) {
  // No event says that there is no leader any more: a suspected leader counts as gone after a while (is_up). The
  // others then wait to hear how far this node's log reaches.
  if (begun_ && !touched_ && c_.replicated && c_.now.boot >= next_announcement_ && c_.holds_ledger() && without_leader(c_))
    touched_ = facts_[static_cast<std::size_t>(wire::FactKey::council)] != wire::encode(council_fact());
  if (!begun_ || !touched_ || c_.now.boot < next_announcement_ || alone()) return;
  touched_ = false;
  next_announcement_ = c_.now.boot + kFactPause;
  set_fact(wire::FactKey::resources, own_resources());
  set_fact(wire::FactKey::free, wire::encode(free_here(c_)));
  set_fact(wire::FactKey::running, wire::encode(RunningFact{running_hash(running())}));
  set_fact(wire::FactKey::council, wire::encode(council_fact()));
}

}  // namespace dtrain::node
