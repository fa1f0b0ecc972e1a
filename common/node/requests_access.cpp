// Judges whether the caller may do what it asks. A refused caller is told whom to ask, and the log says so once in a while.
#include "common/node/access.h"
#include "common/node/cluster_members.h"
#include "common/node/reply.h"
#include "common/node/requests.h"

namespace dtrain::node {

using cluster::JobRecord;

const JobRecord* Requests::permitted_job(const Request& e, const std::string& name, const Caller& caller, Deed deed,
                                         const std::string& verb) {
  const JobRecord* job = find_job(e, name);
  if (job == nullptr) return nullptr;
  const Status may = permit(deed, caller, role_of(caller), *job, "could not " + verb + " job " + name);
  if (may) return job;
  forbid(e, caller, may.error());
  return nullptr;
}

Role Requests::role_of(const Caller& caller) const {
  return node::role_of(caller, c_.options.access, c_.options.agent_uid);
}

void Requests::forbid(const Request& e, const Caller& caller, const Error& error) {
  note_refusal(caller, error.message);
  reply_error(c_, e.connection, e.request, error);
}

void Requests::note_refusal(const Caller& caller, const std::string& reason) {
  if (const auto report = refusals_.refused(c_.now.boot, caller, reason)) tell_refusal(*report);
}

void Requests::tell_refusal(const Refusals::Report& r) {
  const std::vector<cluster::EventField> details{{"user", r.caller.user},
                                                 {"uid", std::to_string(r.caller.uid)},
                                                 {"at", asked_at(r.caller)},
                                                 {"outcome", "refused"},
                                                 {"count", std::to_string(r.count)}};
  const std::string object = r.caller.user.empty() ? "uid " + std::to_string(r.caller.uid) : r.caller.user;
  refusals_.told(r.caller, c_.members->tell(LogLevel::warn, "access.refused", object, details, r.reason, r.said_as));
}

void Requests::drive_refusals() {
  if (refusals_.deadline() > c_.now.boot) return;
  for (const Refusals::Report& report : refusals_.due(c_.now.boot)) tell_refusal(report);
}

const std::string& Requests::asked_at(const Caller& caller) const { return caller.at.empty() ? c_.facts.name : caller.at; }

void Requests::audit(const Caller& caller, const std::string& verb, const std::string& object, const std::string& reason,
                     std::vector<cluster::EventField> details) {
  details.insert(details.end(),
                 {{"user", caller.user}, {"uid", std::to_string(caller.uid)}, {"at", asked_at(caller)}, {"outcome", "accepted"}});
  c_.members->tell(LogLevel::info, "audit." + verb, object, details, reason);
}

void Requests::access_changed(const Access& before, const Access& after, const Caller& by) {
  if (const std::string what = difference(before, after); !what.empty())
    audit(by, "access", c_.facts.name, what, {{"node", c_.facts.name}});
}

Status Requests::may_submit(const Caller& caller) const {
  if (Status may = permit_submit(caller, role_of(caller)); !may) return may;
  if (caller.uid == 0 && !c_.options.allow_root)
    return fail(ErrorCode::refused, "could not submit as root: this cluster does not run jobs as root",
                "submit as an ordinary user, or set tasks.allowRoot: true on the agents");
  if (caller.user.empty())
    return fail(ErrorCode::refused,
                "could not submit: uid " + std::to_string(caller.uid) + " has no user name on this host",
                "create the account");
  if (c_.options.agent_uid != 0 && caller.uid != c_.options.agent_uid)
    return fail(ErrorCode::refused,
                "could not submit as " + caller.user +
                    ": this agent does not run as root and can start "
                    "jobs of its own user only",
                "submit as uid " + std::to_string(c_.options.agent_uid) + ", or run dtraind as root");
  return {};
}

bool Requests::may_have_package(ConnectionId connection, const std::string& digest) const {
  const auto caller = callers_.find(connection);
  return caller != callers_.end() && rights_.may_have(caller->second, digest);
}

bool Requests::refuse_package(const Request& e, const Caller& caller, const std::string& digest, const std::string& could_not) {
  if (digest.empty() || c_.options.packages_are_given || rights_.may_have(caller, digest)) return false;
  refuse(e, {ErrorCode::refused,
             could_not + ": " + caller.user + " has not given package " + shown_digest(digest) + " to the agent of " + c_.facts.name +
                 ", and has no job with it",
             "let dtrainctl upload it: name its directory, and submit again"});
  return true;
}

bool Requests::refuse_non_operator(const Request& e, const Caller& caller, const std::string& could_not) {
  const Status may = permit_operate(caller, role_of(caller), could_not);
  if (!may) forbid(e, caller, may.error());
  return !may;
}

}  // namespace dtrain::node
