#include "common/node/member_requests.h"

#include <algorithm>

#include "common/base/duration_text.h"
#include "common/node/cluster_members.h"
#include "common/node/cluster_views.h"
#include "common/node/forming.h"
#include "common/node/recovery.h"
#include "common/node/reply.h"
#include "common/node/serve.h"

namespace dtrain::node {
namespace {

using wire::MessageType;

struct Host {
  NodeId id;
  std::string name;
};

// Finds a host by name or id: a member that has not left, or one that was drained, wherever it is now.
std::optional<Host> find_host(const Context& c, const std::string& wanted) {
  if (wanted == c.facts.name || wanted == c.facts.id) return Host{c.facts.id, c.facts.name};
  std::optional<Host> found;
  c.members->table().each([&](const gossip::MemberView& m) {
    const std::string id = m.identity->id.text();
    if (m.state != wire::MemberState::left && (wanted == id || (wanted == m.identity->name && !found))) found = Host{id, m.identity->name};
  });
  for (const auto& [id, drain] : c.ledger.state().drained)
    if (!found && (wanted == id || wanted == drain.name)) found = Host{id, drain.name};
  return found;
}

}  // namespace

void MemberRequests::closed(ConnectionId connection) {
  std::erase_if(leaving_, [&](const Leaving& l) { return l.connection == connection; });
  for (Recovering& r : recovering_)
    if (r.connection == connection) r.connection = 0;  // the recovery is carried out all the same
  if (std::erase_if(departures_, [&](const Departure& d) { return d.connection == connection; }) != 0) seats_.leave(!departures_.empty());
}

void MemberRequests::storage_failed(const Error& error) {
  for (const Recovering& r : std::exchange(recovering_, {}))
    if (r.connection != 0)
      reply_error(c_, r.connection, r.request,
                  {ErrorCode::unavailable, "could not make the new history durable: " + error.message, error.next});
}

void MemberRequests::log_advanced() {
  drive_departure();
  drive_recovery();
}

void MemberRequests::form(const Request& e, const wire::FormRequest& q, const Caller& caller) {
  if (q.without.size() > wire::kMostFounders)
    return reply_error(
        c_, e,
        {ErrorCode::limit, "could not form a cluster: more than " + std::to_string(wire::kMostFounders) + " founders are named",
         "name those that will not come"});
  if (const Status wished = c_.forming->form_without(q.without); !wished) return reply_error(c_, e, wished.error());
  std::string without;
  for (const std::string& name : q.without) without += (without.empty() ? "without " : ", ") + name;
  callers_.audit(MessageType::form, caller, "form", c_.facts.name, without, {{"node", c_.facts.name}});
  reply(c_, e, MessageType::ok, wire::Empty{});
}

void MemberRequests::recover_quorum(const Request& e, const wire::RecoverRequest& q, const Caller& caller) {
  auto view = recovery_view(c_, q.force);
  if (!view) return reply_error(c_, e, view.error());
  if (const Duration left = started_ + kHeardWithin - c_.now.boot; left > 0ns) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left).count() + 1;
    return reply_error(
        c_, e,
        {ErrorCode::refused, "could not recover the quorum: this agent has just started, and may not have heard yet who is alive",
         "try again in " + std::to_string(seconds) + " s"});
  }
  if (!q.go) return reply(c_, e, MessageType::recovery, *view);
  c_.replicated->step(c_.now.boot, raft::Recover{{c_.rng.next(), c_.rng.next() | 1}});
  view->new_history = c_.replicated->raft().history().number;
  if (view->new_history == view->history)
    return reply_error(c_, e, {ErrorCode::unavailable, "could not recover the quorum: a coordinator is heard", "dtrainctl status"});
  recovering_.push_back({e.connection, e.request, caller, std::move(*view)});
}

void MemberRequests::drive_recovery() {
  if (recovering_.empty() || !c_.serving) return;
  c_.members->others_lost();
  for (Recovering& r : std::exchange(recovering_, {})) {
    std::string lost;
    for (const std::string& name : r.view.lost) lost += (lost.empty() ? "" : ", ") + name;
    c_.members->tell("council.recovered", "by uid " + std::to_string(r.caller.uid) + ": history " + std::to_string(r.view.new_history) +
                                              " begins behind entry " + std::to_string(r.view.index) + " of term " +
                                              std::to_string(r.view.term) + " of history " + std::to_string(r.view.history) +
                                              "; voters lost: " + lost);
    callers_.audit(MessageType::recover_quorum, r.caller, "recover-quorum", c_.facts.name, "history " + std::to_string(r.view.new_history),
                   {{"node", c_.facts.name}});
    r.view.epoch = c_.ledger.state().epoch;
    if (r.connection != 0) reply(c_, r.connection, r.request, MessageType::recovery, r.view);
  }
}

void MemberRequests::leave(const Request& e, const wire::LeaveRequest& q, const Caller& caller) {
  if (!q.node.empty() && q.node != c_.facts.name && q.node != c_.facts.id) {
    if (const Status removed = c_.members->remove(q.node); !removed) return reply_error(c_, e, removed.error());
    callers_.audit(MessageType::leave, caller, "forget-node", q.node, "", {{"node", q.node}});
    return reply(c_, e, MessageType::ok, wire::Empty{});
  }
  if (auto bound = c_.members->bound()) return reply_error(c_, e, *bound);
  if (c_.members->may_go()) return depart(e.connection, e.request, caller);
  const auto same = [&](const Departure& d) { return d.connection == e.connection; };
  if (std::any_of(departures_.begin(), departures_.end(), same))
    return reply_error(c_, e, {ErrorCode::refused, "could not leave the cluster: this connection asked already", "wait for its answer"});
  departures_.push_back({e.connection, e.request, caller, c_.now.boot + kLeaveWithin});
  seats_.leave(true);
}

void MemberRequests::depart(ConnectionId connection, std::uint64_t request, const Caller& caller) {
  const auto ticket = c_.members->leave();
  if (!ticket) return reply_error(c_, connection, request, ticket.error());
  callers_.audit(MessageType::leave, caller, "leave", c_.facts.name, "", {{"node", c_.facts.name}});
  if (*ticket == 0) return reply(c_, connection, request, MessageType::ok, wire::Empty{});
  leaving_.push_back({connection, request, *ticket});
}

void MemberRequests::drive_departure() {
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

void MemberRequests::saved(const MembersSaved& e) {
  std::erase_if(leaving_, [&](const Leaving& l) {
    if (l.ticket > e.ticket) return false;
    if (e.result) reply(c_, l.connection, l.request, MessageType::ok, wire::Empty{});
    else
      reply_error(c_, l.connection, l.request,
                  {ErrorCode::io, "could not make the departure durable: " + e.result.error().message,
                   "mend the disk and run dtrainctl leave again; it is tried every minute too"});
    return true;
  });
}

void MemberRequests::drain(const Request& e, const wire::DrainRequest& q, const Caller& caller) {
  const std::string could_not = std::string("could not ") + (q.on ? "drain" : "undrain") + " host " + q.node;
  const auto refused = [&](ErrorCode code, const std::string& why, const std::string& next) {
    reply_error(c_, e, {code, could_not + ": " + why, next});
  };
  if (callers_.refuse_role(e, caller, Role::operate, could_not)) return;
  const auto host = find_host(c_, q.node);
  if (!host) return refused(ErrorCode::not_found, "this cluster has none of that name", instead_of_node(c_, q.node));
  if (q.reason.size() > wire::kDrainReasonBytes)
    return refused(ErrorCode::limit, "the reason is longer than " + std::to_string(wire::kDrainReasonBytes) + " bytes", "say it shorter");
  if (q.deadline_ms < 0) return refused(ErrorCode::invalid, "its deadline lies in the past", "give a time span such as 30m");
  if (!commands_.room(e)) return;
  const cluster::DrainHost command{
      host->id, host->name, q.reason, caller.user, q.on, std::chrono::milliseconds(q.deadline_ms), callers_.asker(caller)};
  commands_.pend(commands_.add(cluster::CommandType::drain_host, command), e, wire::MessageType::drain, caller);
}

// ---------------------------------------------------------------- rows

namespace {
constexpr Rule kChangeMembers{Needs::nothing, "change who belongs to the cluster"};
}  // namespace

constinit const Verb verbs::leave{
    .serve = serve<&MemberRequests::leave>, .rule = kChangeMembers, .role = Role::operate, .audit = Audit::event};
constinit const Verb verbs::form{
    .serve = serve<&MemberRequests::form>, .rule = kChangeMembers, .role = Role::operate, .audit = Audit::event};
constinit const Verb verbs::recover_quorum{.serve = serve<&MemberRequests::recover_quorum>,
                                           .rule = {Needs::nothing, "recover the quorum"},
                                           .role = Role::operate,
                                           .audit = Audit::event};
constinit const Verb verbs::drain{.serve = serve<&MemberRequests::drain>,
                                  .rule = {Needs::current_copy, "drain or undrain host", PassedOn::to_coordinator},
                                  .role = Role::operate,
                                  .judged = Judged::by_handler,
                                  .audit = Audit::entry};

}  // namespace dtrain::node
