#include "common/node/job_requests.h"

#include <algorithm>

#include "common/base/limits.h"
#include "common/job/manifest.h"
#include "common/node/host_capacities.h"
#include "common/node/reply.h"
#include "common/node/serve.h"
#include "common/node/views.h"

namespace dtrain::node {

using cluster::JobRecord;
using wire::MessageType;

std::optional<job::JobSpec> JobRequests::checked_spec(const Request& e, const std::string& bytes, const Caller& caller) {
  if (callers_.refuse_user(e, caller)) return std::nullopt;
  auto spec = wire::decode_strictly<job::JobSpec>(bytes);
  if (!spec) {
    reply_error(c_, e,
                {ErrorCode::invalid, "could not read the job's description: " + spec.error().message,
                 "this host's dtrain may be older than dtrainctl: dtrainctl version says both"});
    return std::nullopt;
  }
  const auto errors = job::validate(*spec);
  if (errors.empty()) return std::move(*spec);
  wire::ErrorReply r;
  for (const auto& x : errors) r.errors.push_back({ErrorCode::invalid, x.code, x.file, x.line, x.path, x.message, x.next});
  reply(c_, e, MessageType::error, r);
  return std::nullopt;
}

void JobRequests::submit(const Request& e, const wire::SubmitRequest& q, const Caller& caller) {
  const auto spec = checked_spec(e, q.spec, caller);
  if (!spec || !commands_.room(e)) return;
  if (q.spec.size() > limits::kLedgerEntryBytes)
    return reply_error(c_, e, {ErrorCode::limit, "could not submit job: its description is too large", "move data out of it"});
  if (packages_.refuse(e, caller, spec->package_digest, "could not submit job")) return;
  if (const Status may = may_have_images(c_, *spec, "could not submit job " + spec->name); !may) return reply_error(c_, e, may.error());
  const cluster::SubmitJob command{q.spec, {caller.user, caller.uid}, q.request_id, q.replace, c_.facts.id, callers_.asker(caller)};
  const std::uint32_t needs = cluster::version_of_submit(command, *spec);
  if (const Status may = versions_.may_propose(needs, "could not submit job " + spec->name); !may) return reply_error(c_, e, may.error());
  if (!packages_.spread(e, spec->package_digest, "could not submit job")) return;
  const MemberId id = commands_.add(cluster::CommandType::submit, command, needs);
  if (c_.options.broken_rule != "ack-after-commit") return commands_.pend(id, e, MessageType::submit, caller, place_warnings(c_, *spec));
  // For the simulator: answers before the disk has the entry.
  reply(c_, e, MessageType::submitted, wire::SubmitReply{spec->name, c_.replicated->raft().last_index() + 1, 0, false, {}});
}

void JobRequests::plan(const Request& e, const wire::SubmitRequest& q, const Caller& caller) {
  auto spec = checked_spec(e, q.spec, caller);
  if (!spec) return;
  if (const Status may = may_have_images(c_, *spec, "could not plan job " + spec->name); !may) return reply_error(c_, e, may.error());
  cluster::JobRecord job;
  job.spec = std::move(*spec);
  if (job.spec.name.empty()) job.spec.name = job.spec.generate_name + "0";
  job.user = {caller.user, caller.uid};
  job.generation = 1;
  wire::TaskSpecsReply r;
  const auto placed = coordinator_.try_place(job.spec);
  if (!placed) {
    r.waiting_for = placed.error().message;
    return reply(c_, e, MessageType::task_specs, r);
  }
  for (const auto& p : *placed) job.tasks[p.task].place = p;
  auto views = task_spec_views(c_, job, "");
  if (!views) return reply_error(c_, e, views.error());
  r.tasks = std::move(*views);
  reply(c_, e, MessageType::task_specs, r);
}

void JobRequests::action(const Request& e, const wire::ActionRequest& q, const Caller& caller) {
  static constexpr const char* kWords[] = {"cancel", "suspend", "resume", "restart", "scale", "delete", "rerun"};
  const std::string word = kWords[static_cast<int>(q.action)];
  // Another package is code that would run as the job's user.
  const Deed deed = q.package_digest.empty() ? Deed::change : Deed::enter;
  const JobRecord* job = callers_.permitted_job(e, q.job, caller, deed, word);
  if (job == nullptr || !commands_.room(e)) return;
  if (packages_.refuse(e, caller, q.package_digest, "could not restart job " + q.job + " with another package")) return;
  cluster::JobAction a;
  a.kind = static_cast<cluster::ActionKind>(q.action);
  a.job = job->id;
  a.user = caller.user;
  a.role = q.role;
  a.replicas = q.replicas;
  a.force = q.force;
  a.from_scratch = q.from_scratch;
  a.package_digest = q.package_digest;
  a.package_host = c_.facts.id;
  a.request_id = q.request_id;
  a.asker = callers_.asker(caller);
  if (!q.task.empty()) {
    const auto dash = q.task.rfind('-');
    const auto task = std::ranges::find_if(job->tasks, [&](const auto& t) { return t.first.text() == q.task; });
    if (dash == std::string::npos || task == job->tasks.end())
      return reply_error(
          c_, e,
          {ErrorCode::not_found, "could not restart task " + q.task + ": job " + q.job + " has no such task", "dtrainctl tasks " + q.job});
    // A host that is away carries out no action.
    if (const auto away = relays_.away(task->second.place.node); away && !task->second.ended && q.action == wire::Action::restart)
      return reply_error(c_, e,
                         {ErrorCode::refused, "could not restart task " + q.task + ": " + away->message,
                          "dtrainctl describe job " + q.job + " says what becomes of it"});
    a.task = task->first;
  }
  if (q.action == wire::Action::scale) {
    job::JobSpec scaled = job->spec;
    const auto role = scaled.roles.find(q.role);
    if (role != scaled.roles.end()) {
      role->second.min_replicas = std::min(role->second.min_replicas, q.replicas);
      role->second.replicas = q.replicas;
      const auto errors = job::validate(scaled);
      if (!errors.empty())
        return reply_error(c_, e,
                           {ErrorCode::invalid, "could not scale job " + q.job + ": " + errors.front().path + ": " + errors.front().message,
                            errors.front().next});
    }
  }
  if (const Status may = versions_.may_propose(wire::needed_version(a), "could not " + word + " job " + q.job); !may)
    return reply_error(c_, e, may.error());
  const bool rerun = q.action == wire::Action::rerun;
  // Nobody keeps the package of a job that has ended.
  if (!packages_.spread(e, rerun ? job->spec.package_digest : q.package_digest,
                        rerun ? "could not rerun job " + q.job : "could not restart job " + q.job + " with another package"))
    return;
  commands_.pend(commands_.add(cluster::CommandType::action, a), e, rerun ? MessageType::submit : MessageType::action, caller);
}

// ---------------------------------------------------------------- rows

constinit const Verb verbs::submit{.serve = serve<&JobRequests::submit>,
                                   .rule = {Needs::current_copy, "submit job", PassedOn::to_coordinator},
                                   .role = Role::submit,
                                   .audit = Audit::entry};
constinit const Verb verbs::plan{
    .serve = serve<&JobRequests::plan>, .rule = {Needs::coordinator, "plan job", PassedOn::to_coordinator}, .role = Role::submit};
constinit const Verb verbs::action{.serve = serve<&JobRequests::action>,
                                   .rule = {Needs::current_copy, "change job", PassedOn::to_coordinator},
                                   .role = Role::submit,
                                   .judged = Judged::by_handler,
                                   .audit = Audit::entry};

}  // namespace dtrain::node
