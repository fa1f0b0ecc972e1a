// May the caller do what it asks? Who may not is told whom to ask, and the log says so, once in a while.
#include "common/node/access.h"
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
  if (refusals_.size() >= kRefusedCallers && !refusals_.contains(caller.uid)) refusals_.clear();
  if (Instant& quiet_until = refusals_[caller.uid]; quiet_until <= c_.now.boot) {
    quiet_until = c_.now.boot + kRefusalEvery;
    c_.log.write(LogLevel::warn, "access.refused",
                 {{"user", caller.user}, {"uid", std::to_string(caller.uid)}, {"reason", error.message.substr(0, kRefusalBytes)}});
  }
  reply_error(c_, e.connection, e.request, error);
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

bool Requests::refuse_non_operator(const Request& e, const Caller& caller, const std::string& could_not) {
  const Status may = permit_operate(caller, role_of(caller), could_not);
  if (!may) forbid(e, caller, may.error());
  return !may;
}

}  // namespace dtrain::node
