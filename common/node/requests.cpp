#include "common/node/requests.h"

#include "common/node/checkpoint_copies.h"
#include "common/node/checkpoint_queries.h"
#include "common/node/checkpoint_requests.h"
#include "common/node/checkups.h"
#include "common/node/client_commands.h"
#include "common/node/cluster_members.h"
#include "common/node/cluster_views.h"
#include "common/node/job_requests.h"
#include "common/node/member_requests.h"
#include "common/node/package_requests.h"
#include "common/node/packages.h"
#include "common/node/reply.h"
#include "common/node/stream_requests.h"
#include "common/node/view_requests.h"

namespace dtrain::node {
namespace {

std::string could_not(const Rule& rule) { return std::string("could not ") + rule.what; }

}  // namespace

void Requests::refuse(const Request& e, const Error& error) { reply_error(c_, e, error); }

void Requests::closed(ConnectionId connection) {
  std::erase_if(waiting_, [&](const Waiting& w) { return w.request.connection == connection; });
}

void Requests::handle(const Request& e) {
  const Caller* caller = callers_.find(e.connection);
  if (caller == nullptr) return;  // closed in the same turn
  const auto message = wire::decode<wire::Message>(e.body);
  if (!message) return refuse(e, message.error());
  static constexpr Verb kUnknown{nullptr};
  const Verb* verb = verb_of(message->type);
  const Asked asked{e, *message, *caller, verb == nullptr ? kUnknown : *verb};
  if (caller->inside && !asked.verb.from_task)
    return callers_.forbid(e, *caller,
                           {ErrorCode::refused, "could not answer request: it comes from inside a task",
                            "call dtrainctl from a login shell; a task may only launch programs in tasks of its own job (dtrain-rsh)"});
  if (verb != nullptr) return verb->serve(*this, asked);
  if (!refuse_relayed(asked, kUnknown.rule))
    refuse(e, {ErrorCode::invalid, "could not answer request: its type is not known here", "use a dtrainctl of the agent's version"});
}

bool Requests::answers_now(const Asked& asked, const Rule& rule) {
  return !refuse_relayed(asked, rule) && !answer_elsewhere(asked, rule) && !wait_until_current(asked, rule);
}

bool Requests::refuse_role(const Asked& asked) {
  const auto& [e, m, caller, verb] = asked;
  if (verb.judged == Judged::by_handler || callers_.role_of(caller) >= verb.role) return false;
  return callers_.refuse_role(e, caller, verb.role, could_not(verb.rule));
}

bool Requests::refuse_relayed(const Asked& asked, const Rule& rule) {
  const bool relayed = asked.caller.relayed_by.has_value();
  // These show files of other users; the verbs of clients check who may see them.
  if (rule.passed_on == PassedOn::between_agents && !relayed) {
    refuse(asked.request,
           {ErrorCode::refused, "could not answer request: only other agents may ask it", "dtrainctl --help lists what clients may ask"});
    return true;
  }
  if (!relayed || rule.passed_on != PassedOn::never) return false;
  refuse(asked.request,
         {ErrorCode::invalid, "could not answer request: other agents may ask for logs, exec, packages, checkpoints, jobs and doctor only",
          "the sender may run another version of dtrain"});
  return true;
}

void Requests::pass_on_to_coordinator(const Asked& asked, const Rule& rule, const std::string& could_not, const std::string& because) {
  const auto& [e, m, caller, verb] = asked;
  const auto holder = ledger_holder(c_);
  if (caller.relayed_by || !holder || !holder->alive || rule.passed_on != PassedOn::to_coordinator) {
    std::string next = "dtrainctl nodes shows which node coordinates";
    if (holder) {
      next = "use dtrainctl on the coordinator's host " + holder->name + " (" + holder->address + ")";
      if (!holder->alive) next += ", whose agent must be started first";
    }
    return refuse(e, {ErrorCode::refused, could_not + ": " + because, next});
  }
  if (!callers_.refuse_role(e, caller, verb.role, could_not))
    relays_.pass_on({e.connection, e.request, caller, m.type, m.payload}, holder->id, could_not);
}

bool Requests::answer_elsewhere(const Asked& asked, const Rule& rule) {
  if (rule.needs < Needs::copy) return false;
  const std::string no = could_not(rule);
  if (auto none = c_.members->no_member(no)) {
    refuse(asked.request, *none);
    return true;
  }
  if (c_.holds_ledger()) {
    if (c_.serving || c_.replicated->alone() || rule.needs != Needs::coordinator) return false;
    pass_on_to_coordinator(asked, rule, no, "only the coordinator places tasks");
    return true;
  }
  const std::string too_old = c_.ledger.behind() ? versions_.unfit() : "";
  pass_on_to_coordinator(asked, rule, no, too_old.empty() ? c_.facts.name + " has no copy of the ledger" : too_old);
  return true;
}

std::size_t Requests::waiting_bytes() const {
  std::size_t bytes = 0;
  for (const Waiting& w : waiting_) bytes += w.request.body.size();
  return bytes;
}

bool Requests::is_current(std::uint64_t applied) const {
  return c_.storage_failed || !c_.holds_ledger() || (c_.current && c_.ledger.state().applied >= applied);
}

bool Requests::wait_until_current(const Asked& asked, const Rule& rule) {
  const auto& [e, m, caller, verb] = asked;
  if (rule.needs == Needs::nothing || rule.needs == Needs::copy || is_current(caller.applied)) return false;
  if (waiting_.size() >= kWaitingRequests || waiting_bytes() + e.body.size() > kWaitingBytes)
    refuse(e, {ErrorCode::limit, could_not(*verb.rule.what ? verb.rule : rule) + ": too many requests wait for the ledger already",
               "try again in a moment"});
  else waiting_.push_back({e, caller.applied, c_.now.boot + kCurrentWithin});
  return true;
}

void Requests::log_advanced() {
  if (waiting_.empty()) return;  // nearly always true, and checked in every step: exchanging a deque would allocate anew
  for (const Waiting& w : std::exchange(waiting_, {})) {
    if (is_current(w.applied)) handle(w.request);
    else waiting_.push_back(w);
  }
  for (; !waiting_.empty() && waiting_.front().until <= c_.now.boot; waiting_.pop_front())
    refuse(waiting_.front().request,
           {ErrorCode::unavailable,
            c_.current ? "could not read the ledger: this agent's copy is behind that of the agent that was asked"
                       : "could not read the ledger: since this agent started no coordinator told it what of its copy still holds",
            "dtrainctl status and dtrainctl nodes show which agents are missing: start them, then try again"});
}

}  // namespace dtrain::node
