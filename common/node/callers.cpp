#include "common/node/callers.h"

#include "common/base/check.h"
#include "common/job/manifest.h"
#include "common/node/cluster_members.h"
#include "common/node/reply.h"
#include "common/node/verbs.h"

namespace dtrain::node {

using cluster::JobRecord;

const Caller* Callers::find(ConnectionId connection) const {
  const auto caller = callers_.find(connection);
  return caller == callers_.end() ? nullptr : &caller->second;
}

const JobRecord* Callers::find_job(const Request& e, const std::string& name) {
  if (const JobRecord* job = c_.ledger.find(name)) return job;
  std::vector<std::string> names;
  for (const auto& [id, job] : c_.ledger.state().jobs) names.push_back(job.spec.name);
  const std::string near = job::nearest(name, names);
  reply_error(c_, e,
              {ErrorCode::not_found, "could not find job " + name + ": there is none of that name",
               near.empty() ? "dtrainctl jobs" : "did you mean " + near + "?"});
  return nullptr;
}

const JobRecord* Callers::permitted_job(const Request& e, const std::string& name, const Caller& caller, Deed deed,
                                        const std::string& verb) {
  const JobRecord* job = find_job(e, name);
  if (job == nullptr) return nullptr;
  const Status may = permit(deed, caller, role_of(caller), *job, "could not " + verb + " job " + name);
  if (may) return job;
  forbid(e, caller, may.error());
  return nullptr;
}

void Callers::forbid(const Request& e, const Caller& caller, const Error& error) {
  note_refusal(caller, error.message);
  reply_error(c_, e, error);
}

void Callers::note_refusal(const Caller& caller, const std::string& reason) {
  if (const auto report = refusals_.refused(c_.now.boot, caller, reason)) report_refusal(*report);
}

void Callers::report_refusal(const Refusals::Summary& r) {
  const std::vector<cluster::EventField> details{{"user", r.caller.user},
                                                 {"uid", std::to_string(r.caller.uid)},
                                                 {"at", asked_at(r.caller)},
                                                 {"outcome", "refused"},
                                                 {"count", std::to_string(r.count)}};
  const std::string object = r.caller.user.empty() ? "uid " + std::to_string(r.caller.uid) : r.caller.user;
  refusals_.told(r.caller, c_.members->tell(LogLevel::warn, "access.refused", object, details, r.reason, r.said_as));
}

void Callers::tick() {
  if (refusals_.deadline() > c_.now.boot) return;
  for (const Refusals::Summary& report : refusals_.due(c_.now.boot)) report_refusal(report);
}

void Callers::audit(wire::MessageType of, const Caller& caller, const std::string& word, const std::string& object,
                    const std::string& reason, std::vector<cluster::EventField> details) {
  CHECK(verb_of(of)->audit == Audit::event);
  report_change(caller, word, object, reason, std::move(details));
}

void Callers::report_change(const Caller& caller, const std::string& word, const std::string& object, const std::string& reason,
                            std::vector<cluster::EventField> details) {
  details.insert(details.end(),
                 {{"user", caller.user}, {"uid", std::to_string(caller.uid)}, {"at", asked_at(caller)}, {"outcome", "accepted"}});
  c_.members->tell(LogLevel::info, "audit." + word, object, details, reason);
}

void Callers::access_changed(const Access& before, const Access& after, const Caller& by) {
  if (const std::string what = difference(before, after); !what.empty())
    report_change(by, "access", c_.facts.name, what, {{"node", c_.facts.name}});
}

bool Callers::refuse_role(const Request& e, const Caller& caller, Role least, const std::string& could_not) {
  const Status may = permit(least, caller, role_of(caller), could_not);
  if (!may) forbid(e, caller, may.error());
  return !may;
}

bool Callers::refuse_user(const Request& e, const Caller& caller) {
  const auto refused = [&](const std::string& why, const std::string& next) {
    forbid(e, caller, {ErrorCode::refused, "could not submit" + why, next});
    return true;
  };
  if (caller.uid == 0 && !c_.options.allow_root)
    return refused(" as root: this cluster does not run jobs as root",
                   "submit as an ordinary user, or set tasks.allowRoot: true on the agents");
  if (caller.user.empty()) return refused(": uid " + std::to_string(caller.uid) + " has no user name on this host", "create the account");
  if (c_.options.agent_uid != 0 && caller.uid != c_.options.agent_uid)
    return refused(" as " + caller.user + ": this agent does not run as root and can start jobs of its own user only",
                   "submit as uid " + std::to_string(c_.options.agent_uid) + ", or run dtraind as root");
  return false;
}

}  // namespace dtrain::node
