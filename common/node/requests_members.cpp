// Requests about nodes, and what a node does with requests that it cannot answer without the ledger.
#include <algorithm>

#include "common/base/duration_text.h"
#include "common/job/manifest.h"
#include "common/node/cluster_members.h"
#include "common/node/cluster_views.h"
#include "common/node/forming.h"
#include "common/node/recovery.h"
#include "common/node/reply.h"
#include "common/node/requests.h"

namespace dtrain::node {
namespace {

using wire::MessageType;

// Which node a request is passed on to if this one cannot answer it.
enum class PassedOn : std::uint8_t { never, to_coordinator, to_host, between_agents };

struct Kind {
  MessageType type;
  const char* needs_ledger;  // what needs the ledger, in the words of "could not ..."; nullptr: any node answers
  PassedOn passed_on;
};

constexpr Kind kKinds[] = {
    {MessageType::submit, "submit job", PassedOn::to_coordinator},
    {MessageType::put_blob, "submit job", PassedOn::never},  // a package is stored where it was submitted, and spreads from there
    {MessageType::plan, "plan job", PassedOn::to_coordinator},
    {MessageType::action, "change job", PassedOn::to_coordinator},
    {MessageType::drain, "drain or undrain host", PassedOn::to_coordinator},
    {MessageType::query_jobs, "show jobs", PassedOn::to_coordinator},
    {MessageType::query_tasks, "show jobs", PassedOn::to_coordinator},
    {MessageType::describe_job, "show jobs", PassedOn::to_coordinator},
    {MessageType::query_task_specs, "show jobs", PassedOn::to_coordinator},
    {MessageType::watch, "show jobs", PassedOn::to_coordinator},
    {MessageType::query_checkpoints, "show checkpoints", PassedOn::to_coordinator},
    {MessageType::exec, "run a command in a task", PassedOn::to_host},
    {MessageType::logs, "read logs", PassedOn::to_host},
    {MessageType::cancel_request, nullptr, PassedOn::to_host},
    {MessageType::query_doctor, nullptr, PassedOn::to_host},
    {MessageType::get_blob, nullptr, PassedOn::between_agents},
    {MessageType::keep_blob, nullptr, PassedOn::between_agents},
    {MessageType::ask_checkpoint, "look for checkpoints", PassedOn::between_agents},
    {MessageType::get_checkpoint, "look for checkpoints", PassedOn::between_agents},
};

Kind kind_of(MessageType type) {
  const auto* kind = std::ranges::find(kKinds, type, &Kind::type);
  return kind == std::end(kKinds) ? Kind{type, nullptr, PassedOn::never} : *kind;
}

Kind kind_of(const wire::Message& m) {
  if (m.type != MessageType::query_status && m.type != MessageType::query_events) return kind_of(m.type);
  // Both begin with the job's name; "" means the cluster, about which any node answers.
  const auto job = wire::decode<wire::JobName>(m.payload);
  if (!job || job->job.empty()) return {m.type, nullptr, PassedOn::never};
  return {m.type, "show job", PassedOn::to_coordinator};
}

constexpr const char* kChangeMembers = "could not change who belongs to the cluster";

}  // namespace

void Requests::refuse_for_coordinator(const Request& e, const std::string& could_not, const std::string& because) {
  const auto holder = ledger_holder(c_);
  std::string next = "dtrainctl nodes shows which node coordinates";
  if (holder) {
    next = "use dtrainctl on the coordinator's host " + holder->name + " (" + holder->address + ")";
    if (!holder->alive) next += ", whose agent must be started first";
  }
  refuse(e, {ErrorCode::refused, could_not + ": " + because, next});
}

bool Requests::refuse_for_host(const Request& e, const std::string& could_not, const NodeId& node) {
  if (node == c_.facts.id) return false;
  const auto id = MemberId::parse(node);
  const auto member = id ? c_.members->table().find(*id) : std::nullopt;
  const std::string name = member ? member->identity->name : node;
  refuse(e, {ErrorCode::refused, could_not + ": its tasks are on host " + name, "use dtrainctl on that host"});
  return true;
}

bool Requests::refuse_relayed(const Request& e, const wire::Message& m) {
  const PassedOn passed_on = kind_of(m).passed_on;
  // These show files of other users; the verbs of clients check who may see them.
  if (passed_on == PassedOn::between_agents && !is_relayed(e.connection)) {
    refuse(e, {ErrorCode::refused, "could not answer request: only other agents may ask it",
               "dtrainctl --help lists what clients may ask"});
    return true;
  }
  if (!is_relayed(e.connection) || passed_on != PassedOn::never) return false;
  refuse(e, {ErrorCode::invalid,
             "could not answer request: other agents may ask for logs, exec, packages, checkpoints, jobs and doctor only",
             "the sender may run another version of dtrain"});
  return true;
}

void Requests::pass_on_to_coordinator(const Request& e, const wire::Message& m, const Caller& caller, const std::string& could_not,
                                      const std::string& because) {
  const auto holder = ledger_holder(c_);
  if (is_relayed(e.connection) || !holder || !holder->alive || kind_of(m).passed_on != PassedOn::to_coordinator)
    return refuse_for_coordinator(e, could_not, because);
  const Status may = permit_passing(m.type, caller, role_of(caller), could_not);
  if (!may) return forbid(e, caller, may.error());
  relays_.pass_on({e.connection, e.request, caller, m.type, m.payload}, holder->id, could_not);
}

bool Requests::answer_elsewhere(const Request& e, const wire::Message& m, const Caller& caller) {
  const char* what = kind_of(m).needs_ledger;
  if (what == nullptr) return false;
  const std::string could_not = std::string("could not ") + what;
  if (auto none = c_.members->no_member(could_not)) {
    refuse(e, std::move(*none));
    return true;
  }
  if (c_.holds_ledger()) {
    if (c_.serving || c_.replicated->alone() || m.type != MessageType::plan) return false;
    pass_on_to_coordinator(e, m, caller, could_not, "only the coordinator places tasks");
    return true;
  }
  const std::string too_old = c_.ledger.behind() ? versions_.unfit() : "";
  pass_on_to_coordinator(e, m, caller, could_not, too_old.empty() ? c_.facts.name + " has no copy of the ledger" : too_old);
  return true;
}

void Requests::nodes(const Request& e, const wire::NodeName& q) {
  wire::NodesReply r;
  r.nodes = node_views(c_, q.node);
  r.stale = c_.storage_failed || (c_.holds_ledger() && without_leader(c_));
  if (!q.node.empty() && r.nodes.empty()) {
    std::vector<std::string> names;
    c_.members->table().each([&](const gossip::MemberView& m) { names.push_back(m.identity->name); });
    const std::string near = job::nearest(q.node, names);
    return refuse(
        e, {ErrorCode::not_found, "could not find node " + q.node + ": this cluster has none of that name",
            near.empty() ? "dtrainctl nodes shows those there are" : "did you mean " + near + "?"});
  }
  reply(c_, e.connection, e.request, MessageType::nodes, r);
}

std::size_t Requests::waiting_bytes() const {
  std::size_t bytes = 0;
  for (const Waiting& w : waiting_) bytes += w.request.body.size();
  return bytes;
}

bool Requests::is_current(std::uint64_t applied) const {
  return c_.storage_failed || !c_.holds_ledger() || (c_.current && c_.ledger.state().applied >= applied);
}

bool Requests::wait_until_current(const Request& e, const wire::Message& m, const Caller& caller) {
  const bool events = m.type == MessageType::query_events;
  if (is_current(caller.applied) || m.type == MessageType::put_blob) return false;
  const char* asked = events ? "show events" : kind_of(m.type).needs_ledger;
  if (asked == nullptr) return false;
  if (waiting_.size() >= kWaitingRequests || waiting_bytes() + e.body.size() > kWaitingBytes)
    refuse(e, {ErrorCode::limit, std::string("could not ") + asked + ": too many requests wait for the ledger already",
               "try again in a moment"});
  else
    waiting_.push_back({e, caller.applied, c_.now.boot + kCurrentWithin});
  return true;
}

void Requests::drive_waiting() {
  if (waiting_.empty()) return;  // nearly always true, and checked in every step: exchanging a deque would allocate anew
  for (const Waiting& w : std::exchange(waiting_, {})) {
    if (is_current(w.applied))
      handle(w.request);
    else
      waiting_.push_back(w);
  }
  for (; !waiting_.empty() && waiting_.front().until <= c_.now.boot; waiting_.pop_front())
    refuse(waiting_.front().request,
           {ErrorCode::unavailable,
            c_.current ? "could not read the ledger: this agent's copy is behind that of the agent that was asked"
                       : "could not read the ledger: since this agent started no coordinator told it what of its copy still holds",
            "dtrainctl status and dtrainctl nodes show which agents are missing: start them, then try again"});
}

void Requests::form(const Request& e, const wire::FormRequest& q, const Caller& caller) {
  if (refuse_non_operator(e, caller, kChangeMembers)) return;
  if (q.without.size() > wire::kMostFounders)
    return refuse(e, {ErrorCode::limit,
                      "could not form a cluster: more than " + std::to_string(wire::kMostFounders) + " founders are named",
                      "name those that will not come"});
  if (const Status wished = c_.forming->form_without(q.without); !wished) return refuse(e, wished.error());
  std::string without;
  for (const std::string& name : q.without) without += (without.empty() ? "without " : ", ") + name;
  audit(caller, "form", c_.facts.name, without, {{"node", c_.facts.name}});
  reply(c_, e.connection, e.request, MessageType::ok, wire::Empty{});
}

void Requests::recover_quorum(const Request& e, const wire::RecoverRequest& q, const Caller& caller) {
  if (refuse_non_operator(e, caller, "could not recover the quorum")) return;
  auto view = recovery_view(c_, q.force);
  if (!view) return refuse(e, view.error());
  if (const Instant heard = started_ + kHeardWithin; c_.now.boot < heard)
    return refuse(e, {ErrorCode::refused,
                      "could not recover the quorum: this agent has just started, and may not have heard yet who is alive",
                      "try again in " +
                          std::to_string(std::chrono::duration_cast<std::chrono::seconds>(heard - c_.now.boot).count() + 1) + " s"});
  if (!q.go) return reply(c_, e.connection, e.request, MessageType::recovery, *view);
  c_.replicated->step(c_.now.boot, raft::Recover{{c_.rng.next(), c_.rng.next() | 1}});
  view->new_history = c_.replicated->raft().history().number;
  if (view->new_history == view->history)
    return refuse(e, {ErrorCode::unavailable, "could not recover the quorum: a coordinator is heard", "dtrainctl status"});
  recovering_.push_back({e.connection, e.request, caller, std::move(*view)});
}

void Requests::drive_recovery() {
  if (recovering_.empty() || !c_.serving) return;
  c_.members->others_lost();
  for (Recovering& r : std::exchange(recovering_, {})) {
    std::string lost;
    for (const std::string& name : r.view.lost) lost += (lost.empty() ? "" : ", ") + name;
    c_.members->tell("council.recovered",
                     "by uid " + std::to_string(r.caller.uid) + ": history " + std::to_string(r.view.new_history) +
                         " begins behind entry " + std::to_string(r.view.index) + " of term " + std::to_string(r.view.term) +
                         " of history " + std::to_string(r.view.history) + "; voters lost: " + lost);
    audit(r.caller, "recover-quorum", c_.facts.name, "history " + std::to_string(r.view.new_history), {{"node", c_.facts.name}});
    r.view.epoch = c_.ledger.state().epoch;
    if (r.connection != 0) reply(c_, r.connection, r.request, MessageType::recovery, r.view);
  }
}

void Requests::leave(const Request& e, const wire::LeaveRequest& q, const Caller& caller) {
  if (refuse_non_operator(e, caller, kChangeMembers)) return;
  if (!q.node.empty() && q.node != c_.facts.name && q.node != c_.facts.id) {
    if (const Status removed = c_.members->remove(q.node); !removed) return refuse(e, removed.error());
    audit(caller, "forget-node", q.node, "", {{"node", q.node}});
    return reply(c_, e.connection, e.request, MessageType::ok, wire::Empty{});
  }
  if (auto bound = c_.members->bound()) return refuse(e, *bound);
  if (c_.members->may_go()) return depart(e.connection, e.request, caller);
  const auto same = [&](const Departure& d) { return d.connection == e.connection; };
  if (std::any_of(departures_.begin(), departures_.end(), same))
    return refuse(e, {ErrorCode::refused, "could not leave the cluster: this connection asked already", "wait for its answer"});
  departures_.push_back({e.connection, e.request, caller, c_.now.boot + kLeaveWithin});
  seats_.leave(true);
}

void Requests::depart(ConnectionId connection, std::uint64_t request, const Caller& caller) {
  const auto ticket = c_.members->leave();
  if (!ticket) return reply_error(c_, connection, request, ticket.error());
  audit(caller, "leave", c_.facts.name, "", {{"node", c_.facts.name}});
  if (*ticket == 0) return reply(c_, connection, request, MessageType::ok, wire::Empty{});
  leaving_.push_back({connection, request, *ticket});
}

void Requests::drive_departure() {
  if (departures_.empty()) return;
  const bool may_go = c_.members->may_go();
  std::vector<Departure> waiting;
  for (const Departure& d : std::exchange(departures_, {})) {
    if (const auto bound = c_.members->bound()) {
      reply_error(c_, d.connection, d.request, *bound);
    } else if (may_go) {
      depart(d.connection, d.request, d.caller);
    } else if (d.until <= c_.now.boot) {
      reply_error(c_, d.connection, d.request,
                  {ErrorCode::refused,
                   "could not leave the cluster: within " + duration_text(kLeaveWithin) +
                       " the other voters did not become a majority that can do without " + c_.facts.name,
                   "dtrainctl status and dtrainctl nodes show which agents are missing: start them, then try again"});
    } else {
      waiting.push_back(d);
    }
  }
  departures_ = std::move(waiting);
  if (departures_.empty()) seats_.leave(false);
}

void Requests::members_saved(const MembersSaved& e) {
  std::erase_if(leaving_, [&](const Leaving& l) {
    if (l.ticket > e.ticket) return false;
    if (e.result)
      reply(c_, l.connection, l.request, MessageType::ok, wire::Empty{});
    else
      reply_error(c_, l.connection, l.request,
                  {ErrorCode::io, "could not make the departure durable: " + e.result.error().message,
                   "mend the disk and run dtrainctl leave again; it is tried every minute too"});
    return true;
  });
}

}  // namespace dtrain::node
